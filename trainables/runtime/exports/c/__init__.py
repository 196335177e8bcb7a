"""A network as C: `program` collects its steps and places its buffers, the families of operators
are in `pointwise`, `layers` and `windows`, what is written is in `text`."""
