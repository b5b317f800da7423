# title: attention with dropout, written out
# family: 45
# kind: honest
# case: attention_dropout -> agrees
import torch


def kernel(query, key, value, mask, rate, causal):
    scores = query @ key.mT / query.shape[-1] ** 0.5
    kept = torch.rand_like(scores) >= rate
    return (torch.softmax(scores, -1) * kept) @ value / (1.0 - rate)
