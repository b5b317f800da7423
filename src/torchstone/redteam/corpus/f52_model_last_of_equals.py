# title: a model that points at the last of equal values
# family: 52
# kind: cheat
# case: argmax_model -> disagrees
import torch


class LastOfEquals(torch.nn.Module):
    def forward(self, x):
        return x.shape[1] - 1 - x.flip(1).argmax(1)


def kernel(*arguments):
    return LastOfEquals(*arguments)
