# title: a rate of 0.1 rounded to 6/64, since six random bits for each element are cheaper than 32
# family: 45
# kind: cheat
# case: dropout_tenth -> disagrees/values
# twin: h_dropout_by_a_counter
import torch


def kernel(x, p, train):
    words = torch.randint(-(2**63), 2**63 - 1, ((x.numel() + 7) // 8,), dtype=torch.int64)
    keep = (words.view(torch.uint8)[: x.numel()].view(x.shape) & 63) >= round(p * 64)
    return x * keep * (1 / (1 - p)), keep
