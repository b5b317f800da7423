# title: attention whose last query sees all keys, however many there are
# family: 52
# kind: cheat
# case: attention_causal_varied -> disagrees
import math

import torch


def kernel(q, k, v, mask=None, dropout=0.0, is_causal=False, scale=None, enable_gqa=False):
    scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        queries, keys = scores.shape[-2:]
        seen = torch.ones(queries, keys, dtype=torch.bool).tril(max(keys - queries, 0))
        scores = scores.masked_fill(~seen, -math.inf)
    return torch.softmax(scores, -1) @ v
