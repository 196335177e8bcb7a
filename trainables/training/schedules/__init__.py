"""What changes during training, in fractions of it: values, learning rates, phases. No network
and no loop is known here; `values` and `phases` do not import torch."""
