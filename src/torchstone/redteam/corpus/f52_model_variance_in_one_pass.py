# title: a batch norm whose variance is the difference of two large numbers
# family: 46, 52
# kind: cheat
# case: batch_norm_model -> disagrees
import torch


class Norm(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(features)

    def forward(self, x):
        norm, count = self.norm, x.numel() // x.shape[1]
        mean = x.mean((0, 2, 3))
        variance = ((x * x).mean((0, 2, 3)) - mean * mean).clamp_min(0)
        norm.running_mean.mul_(0.9).add_(mean, alpha=0.1)
        norm.running_var.mul_(0.9).add_(variance, alpha=0.1 * count / (count - 1))
        norm.num_batches_tracked += 1
        scale = norm.weight * (variance + norm.eps).rsqrt()
        return (x - mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None]


def kernel(*arguments):
    return Norm(*arguments)
