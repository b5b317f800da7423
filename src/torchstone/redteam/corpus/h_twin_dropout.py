# title: the operator, called plainly
# kind: honest
# case: dropout_timed -> agrees
# case: dropout_variants_timed -> agrees
import torch


def kernel(x, p, train):
    return torch.native_dropout(x, p, train)
