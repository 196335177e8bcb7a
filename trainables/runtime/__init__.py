"""Networks that run: packed inference on a CPU, with the bits of torch. Nothing here trains; the
kernels need Numba (`pip install 'bitfront[fast]'`), and torch computes where they do not fit."""
