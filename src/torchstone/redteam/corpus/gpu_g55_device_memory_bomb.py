# title: takes all device memory
# family: 55
# kind: cheat
# device: cuda
# case: relu -> crashed
# deadline: 30
import torch


def kernel(x):
    hoard = []
    while True:
        hoard.append(torch.empty(1 << 30, dtype=torch.uint8, device=x.device))
