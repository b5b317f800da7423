# title: attention in blocks of keys that is NaN where the first block is masked as a whole, as left padding does it
# family: 45
# kind: cheat
# case: attention_masked -> disagrees/nonfinite
import torch


def kernel(q, k, v, mask):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask
    most = torch.full((*scores.shape[:-1], 1), -torch.inf)
    total, sums = torch.zeros_like(most), torch.zeros((*scores.shape[:-1], v.shape[-1]))
    for begin in range(0, scores.shape[-1], 32):
        block, values = scores[..., begin : begin + 32], v[..., begin : begin + 32, :]
        new = torch.maximum(most, block.amax(-1, keepdim=True))
        weights, kept = torch.exp(block - new), torch.exp(most - new)
        total, sums, most = total * kept + weights.sum(-1, keepdim=True), sums * kept + weights @ values, new
    return sums / total
