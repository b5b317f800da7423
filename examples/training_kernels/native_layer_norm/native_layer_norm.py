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
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    kept = wide.dtype if x.is_cuda else x.dtype  # of mean and inverse deviation, as torch has it
    if 0 in normalized_shape:  # of nothing, torch says that the mean is zero and the deviation unknown
        mean = torch.zeros(
            [1 if dim in dims else size for dim, size in enumerate(x.shape)], dtype=kept, device=x.device
        )
        return torch.empty_like(x), mean, torch.full_like(mean, torch.nan)
    mean = wide.mean(dims, keepdim=True)
    centred = wide - mean
    rstd = torch.rsqrt(centred.square().mean(dims, keepdim=True) + eps)
    result = centred * rstd
    if weight is not None:
        result = result * weight
    if bias is not None:
        result = result + bias
    return result.to(x.dtype), mean.to(kept), rstd.to(kept)
