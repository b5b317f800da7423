# title: a model that points at the first of equal values, found from the other end
# kind: honest
# case: argmax_model -> agrees
import torch


class FirstOfEquals(torch.nn.Module):
    def forward(self, x):
        places = torch.arange(x.shape[1], 0, -1)
        return x.shape[1] - ((x == x.amax(1, keepdim=True)) * places).amax(1)


def kernel(*arguments):
    return FirstOfEquals(*arguments)
