"""Values, learning rates and phases as functions of the fraction of training. Nothing here knows
networks or the loop; `values` and `phases` do not import torch."""
