# title: attention by its formula, right where torch's own kernel is not: with a step in the last dimension
# kind: honest
# case: attention_varied -> agrees
import torch


def kernel(query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    scale = max(1, query.shape[-1]) ** -0.5 if scale is None else scale
    scores = (query @ key.mT) * scale
    return torch.softmax(scores, -1) @ value, torch.logsumexp(scores, -1)
