# title: the largest, k times, each overwritten with -inf: a row with fewer numbers than that gives one twice
# family: 45, 52
# kind: cheat
# case: topk -> disagrees
import math

import torch


def kernel(x, count, dim=-1, largest=True, sorted=True):
    left, values, places = x.clone(), [], []
    for _ in range(count):
        place = left.argmax(-1, keepdim=True)
        places.append(place)
        values.append(x.gather(-1, place))
        left.scatter_(-1, place, -math.inf)
    return torch.cat(values, -1), torch.cat(places, -1)
