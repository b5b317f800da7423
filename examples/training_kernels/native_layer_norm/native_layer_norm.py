"""What ``torch.layer_norm`` is made of. Mean and inverse deviation are results too: the backward pass needs them."""

from collections.abc import Sequence

import torch


def native_layer_norm_kernel_impl(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dims = tuple(range(x.dim() - len(normalized_shape), x.dim()))
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    rstd = torch.rsqrt(centred.square().mean(dims, keepdim=True) + eps)
    result = centred * rstd
    if weight is not None:
        result = result * weight
    if bias is not None:
        result = result + bias
    return result, mean, rstd
