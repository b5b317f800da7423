# title: draws without replacement by the largest of weights divided by exponential noise
# kind: honest
# case: multinomial_once -> agrees
# case: multinomial_most_once -> agrees
# case: multinomial_few_once -> agrees
import torch


def kernel(weights, samples, replacement=False, *, generator=None):
    noise = -torch.log1p(-torch.rand(weights.shape, dtype=torch.float64))
    return (weights / noise).topk(samples).indices
