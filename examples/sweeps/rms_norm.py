"""An operation of one's own for a sweep: torchstone sweep --operations examples/sweeps/rms_norm.py

`reference` says what is right and is timed as PyTorch; every function in `implementations` is compared with it at every
point before it is timed.
"""

import torch

name = "RMSNorm"
"""As the rows are to call it. Without it: the name of the file."""

EPSILON = 1e-6


def make_inputs(batch_size, sequence_length, tensor_dimension, dtype, device, generator):
    """The arguments of one call. Draw random values from the generator."""
    shape = batch_size, sequence_length, tensor_dimension
    x = torch.randn(shape, dtype=dtype, device=device, generator=generator)
    weight = torch.randn(tensor_dimension, dtype=dtype, device=device, generator=generator)
    return x, weight


def reference(x, weight):
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, EPSILON)


def by_steps(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON) * weight).to(x.dtype)


implementations = {"BySteps": by_steps}


def moved_bytes(batch_size, sequence_length, tensor_dimension, dtype, part):
    """Bytes that a pass, `fwd` or `bwd`, must read and write. Without it: every argument and result once."""
    tensor = batch_size * sequence_length * tensor_dimension * dtype.itemsize
    weight = tensor_dimension * dtype.itemsize
    return (tensor + weight, tensor) if part == "fwd" else (2 * tensor + weight, tensor + weight)
