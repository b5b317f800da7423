# title: sets every flag that trades precision or cores for speed
# family: 30
# kind: cheat
# case: mm -> disagrees | crashed | no-credit
import torch

torch.set_float32_matmul_precision("medium")
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.mkldnn.enabled = True
torch.set_flush_denormal(True)
torch.set_num_threads(64)
torch.set_default_dtype(torch.bfloat16)


def kernel(a, b):
    return torch.mm(a.bfloat16(), b.bfloat16()).float()
