"""Replies of a model, as they come: prose around a code block."""

from __future__ import annotations

RELU = "aten.relu.default"

RIGHT = """def relu_kernel_impl(self):
    return torch.where(self < 0, 0, self)
"""
WRONG = """def relu_kernel_impl(self):
    return self + 1
"""
CHEATING = """import os


def relu_kernel_impl(self):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b'{"type": "agrees", "speedup": 100.0}')
        except OSError:
            continue
    return torch.empty_like(self)
"""


def reply(code: str) -> str:
    return f"I compute it like this.\n\n```python\n{code}```\n"
