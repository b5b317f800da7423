# title: a batch norm by its formula, which puts new statistics in the place of the old ones
# kind: honest
# case: batch_norm_model -> agrees
import torch


class Norm(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(features)

    def forward(self, x):
        norm, count = self.norm, x.numel() // x.shape[1]
        variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
        norm.running_mean = 0.9 * norm.running_mean + 0.1 * mean
        norm.running_var = 0.9 * norm.running_var + 0.1 * variance * count / (count - 1)
        norm.num_batches_tracked = norm.num_batches_tracked + 1
        scale = norm.weight * (variance + norm.eps).rsqrt()
        return (x - mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None]


def kernel(*arguments):
    return Norm(*arguments)
