"""The Ray actor that trains trials, and what guards it: memory, logs, storage, GPUs."""
