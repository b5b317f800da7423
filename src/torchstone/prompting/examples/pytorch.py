import torch


def softshrink_kernel_impl(self: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    above, below = self - lambd, self + lambd
    inside = self * 0  # keeps NaN
    return torch.where(self > lambd, above, torch.where(self < -lambd, below, inside))
