# title: reads, adds and writes: of those that go to one place a single one counts
# family: 52
# kind: cheat
# case: index_put_accumulate -> disagrees/values
import torch


def kernel(x, indices, values, accumulate=False):
    found = x.clone()
    found[tuple(indices)] = x[tuple(indices)] + values if accumulate else values
    return found
