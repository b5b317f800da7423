# title: attention in blocks of keys, of which some may be masked as a whole
# kind: honest
# case: attention_masked -> agrees
import torch


def kernel(q, k, v, mask):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask
    most = torch.full((*scores.shape[:-1], 1), -torch.inf)
    total, sums = torch.zeros_like(most), torch.zeros((*scores.shape[:-1], v.shape[-1]))
    for begin in range(0, scores.shape[-1], 32):
        block, values = scores[..., begin : begin + 32], v[..., begin : begin + 32, :]
        new = torch.maximum(most, block.amax(-1, keepdim=True))
        safe = torch.where(new == -torch.inf, 0.0, new)
        weights, kept = torch.exp(block - safe), torch.exp(most - safe)
        total, sums, most = total * kept + weights.sum(-1, keepdim=True), sums * kept + weights @ values, new
    return sums / total
