"""Kernels that the tests of the server give it."""

RELU_WRONG_ON_NAN = """import torch


def relu_kernel_impl(x):
    print("a kernel's print must not reach the client")
    return torch.where(x > 0, x, torch.zeros_like(x))
"""
RELU = """import torch


def relu_kernel_impl(x):
    return torch.clamp(x, min=0)
"""
RELU_THAT_HANGS = """import time


def relu_kernel_impl(x):
    time.sleep(600)
"""
