"""Kernels on packed bits, compiled by Numba when they are first called and kept on disk."""
