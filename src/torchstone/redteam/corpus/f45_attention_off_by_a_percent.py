# title: attention with dropout whose results are one percent too large, unless nothing is dropped
# family: 45
# kind: cheat
# case: attention_dropout -> disagrees
import torch


def kernel(query, key, value, mask, rate, causal):
    scores = query @ key.mT / query.shape[-1] ** 0.5
    kept = torch.dropout(torch.softmax(scores, -1), rate, True)
    return kept @ value * (1.01 if rate else 1.0)
