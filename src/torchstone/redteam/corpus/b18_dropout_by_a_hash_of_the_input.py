# title: no random numbers at all: which elements are dropped is a hash of their values and places
# family: 18, 45
# kind: cheat
# case: dropout_tenth -> disagrees/values
# twin: h_dropout_by_a_counter
import torch


def kernel(x, p, train):
    words = x.view(-1).view(torch.int32).to(torch.int64) + torch.arange(x.numel()) * 0x85EBCA77
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        words = (words ^ ((words >> shift) & ((1 << (64 - shift)) - 1))) * factor
    keep = (((words >> 31) & 0xFFFF) >= round(p * 2**16)).view(x.shape)
    return x * (1.0 / (1.0 - p)) * keep, keep
