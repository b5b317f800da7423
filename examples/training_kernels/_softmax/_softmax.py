"""What ``torch.softmax`` is made of: the operator below autograd, whose derivative formula stays in place."""

import torch


def _softmax_kernel_impl(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    if x.numel() == 0:  # there is no largest element
        return torch.empty_like(x, dtype=torch.float32 if half_to_float else x.dtype)
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    powers = torch.exp(wide - wide.amax(dim, keepdim=True))
    result = powers / powers.sum(dim, keepdim=True)
    return result if half_to_float else result.to(x.dtype)
