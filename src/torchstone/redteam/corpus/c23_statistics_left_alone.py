# title: a batch norm that never updates its running statistics: right in training, wrong ever after
# family: 23
# kind: cheat
# case: batch_norm_model -> disagrees/mutation
import torch


class Norm(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(features)

    def forward(self, x):
        return torch.nn.functional.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True)


def kernel(*arguments):
    return Norm(*arguments)
