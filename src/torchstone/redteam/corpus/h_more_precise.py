# title: more precise than the reference
# kind: honest
# case: mm -> agrees
# case: mm_bf16 -> agrees
# case: sum -> agrees
import torch


def kernel(a, *rest, **options):
    if isinstance(rest[0], torch.Tensor):
        return torch.mm(a.double(), rest[0].double()).to(a.dtype)
    return a.double().sum(-1).to(a.dtype)
