# title: attention that compares positions
# kind: honest
# case: attention_causal_varied -> agrees
import math

import torch


def kernel(q, k, v, mask=None, dropout=0.0, is_causal=False, scale=None, enable_gqa=False):
    scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        queries, keys = scores.shape[-2:]
        future = torch.arange(keys)[None, :] > torch.arange(queries)[:, None]
        scores = scores.masked_fill(future, -math.inf)
    return torch.softmax(scores, -1) @ v
