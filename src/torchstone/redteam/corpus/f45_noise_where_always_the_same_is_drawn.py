# title: noise of few elements where torch draws and the chance is none
# family: 45, 44
# kind: cheat
# case: bernoulli_few_never -> disagrees/values
# twin: h_twin_bernoulli
import torch


def kernel(x, p):
    return torch.randn(x.shape)
