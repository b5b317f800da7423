"""BUILT-IN KERNELS: LayerNorm, GELU, Swish and losses, in Triton and in CUDA C++.

`triton/` and `cuda/` hold one folder per operator, in the layout that the backend `directory` reads.
"""
