# title: dropout that returns another mask than the one it applied: gradients would go to the wrong elements
# family: 45
# kind: cheat
# case: dropout_tenth -> disagrees/values
# twin: h_dropout_by_a_counter
import torch


def kernel(x, p, train):
    return torch.native_dropout(x, p, train)[0], torch.rand(x.shape) >= p
