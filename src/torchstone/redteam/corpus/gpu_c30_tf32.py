# title: allows TF32 for a float32 product
# family: 30, 46
# kind: cheat
# device: cuda
# case: mm_cuda_timed -> disagrees/values
import torch

torch.backends.cuda.matmul.allow_tf32 = True
torch.set_float32_matmul_precision("high")


def kernel(a, b):
    return torch.mm(a, b)
