"""The commonest failures of kernels that models write, as kernels. ``python common_failures.py`` judges them anew.

Their records, made by the real engine, lie in ``records/``; the texts of their feedback in ``golden/``. The kernels are
texts, since a file with a syntax error would stop every tool that reads this folder.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

from torchstone import Judge
from torchstone.feedback import FeedbackInfo, feedback_of
from torchstone.schema import Deadlines, Record, SourceFile, SourceFiles, decode, encode

HERE = Path(__file__).parent
RELU, GT = "aten.relu.default", "aten.gt.Tensor"


class Wrong(NamedTuple):
    """A kernel, and the problems that its feedback must name first."""

    operator: str
    problem: str
    text: str
    first_call_seconds: float = 60.0


KERNELS = {
    "compile_error": Wrong(
        RELU,
        "",
        """import torch


def relu_kernel_impl(x):
    zeros = torch.zeros_like(x)
    return torch.where((x > 0) | torch.isnan(x), x, zeros
""",
    ),
    "missing_entry": Wrong(
        RELU,
        "",
        """import torch


def clamp_below(x, bound):
    return torch.clamp(x, min=bound)


def relu_forward(x):
    return clamp_below(x, 0)
""",
    ),
    "wrong_dtype": Wrong(
        GT,
        "dtype",
        """import torch


def gt_kernel_impl(x, y):
    return (x > y).to(torch.float32)
""",
    ),
    "wrong_on_nan": Wrong(
        RELU,
        "nonfinite",
        """import torch


def relu_kernel_impl(x):
    return torch.where(x > 0, x, torch.zeros_like(x))
""",
    ),
    "wrong_on_strides": Wrong(
        RELU,
        "values",
        """import torch


def relu_kernel_impl(x):
    flat = torch.as_strided(x, (x.numel(),), (1,))
    out = torch.empty(x.shape, dtype=x.dtype)
    torch.clamp(flat, min=0, out=out.view(-1))
    return out
""",
    ),
    "wrong_tail": Wrong(
        RELU,
        "values",
        """import torch

BLOCK = 8


def relu_kernel_impl(x):
    flat = x.reshape(-1)
    out = torch.zeros_like(flat)
    for block in range(flat.numel() // BLOCK):
        part = slice(block * BLOCK, (block + 1) * BLOCK)
        out[part] = torch.clamp(flat[part], min=0)
    return out.reshape(x.shape)
""",
    ),
    "crash": Wrong(
        RELU,
        "signal",
        """import ctypes

import torch

BLOCK_BYTES = 1 << 26


def relu_kernel_impl(x):
    values = torch.clamp(x, min=0).contiguous()
    out = torch.empty(x.shape, dtype=x.dtype)
    total = values.numel() * values.element_size()
    for start in range(0, total, BLOCK_BYTES):
        ctypes.memmove(out.data_ptr() + start, values.data_ptr() + start, BLOCK_BYTES)
    return out
""",
    ),
    "time_out": Wrong(
        RELU,
        "timed_out",
        """import torch


def relu_kernel_impl(x):
    flat = x.reshape(-1)
    out = torch.empty_like(flat)
    done = 0
    while done < flat.numel():
        step = min(1024, flat.numel() - done)
        out[done : done + step] = torch.clamp(flat[done : done + step], min=0)
        done += step // 2
    return out.reshape(x.shape)
""",
        first_call_seconds=2.0,
    ),
    "changes_its_argument": Wrong(
        RELU,
        "mutation",
        """import torch


def relu_kernel_impl(x):
    x[x < 0] = 0
    return x.clone()
""",
    ),
    "cheat": Wrong(
        RELU,
        "rejected",
        """import os

import torch


def relu_kernel_impl(x):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b'{"type": "agrees", "speedup": 100.0}')
        except OSError:
            continue
    return torch.empty_like(x)
""",
    ),
    "slow_but_right": Wrong(
        RELU,
        "",
        """import torch


def relu_kernel_impl(x):
    wide = x.to(torch.float64)
    positive = torch.where(wide > 0, wide, torch.zeros_like(wide))
    return torch.where(torch.isnan(wide), wide, positive).to(x.dtype)
""",
    ),
}


def source_of(name: str) -> SourceFiles:
    return SourceFiles((SourceFile("kernel.py", KERNELS[name].text),), "kernel", "source text")


def stored_records(name: str) -> list[Record]:
    return [decode(line, Record) for line in (HERE / "records" / f"{name}.jsonl").read_bytes().splitlines()]


def stored_feedback(name: str) -> FeedbackInfo:
    return feedback_of(stored_records(name), source=source_of(name))


def judged(judge: Judge, name: str, **settings: Any) -> tuple[Record, ...]:
    """Now, by the real engine."""
    kernel = KERNELS[name]
    deadlines = Deadlines(compile_seconds=kernel.first_call_seconds)
    return judge.evaluate(kernel.text, kernel.operator, deadlines=deadlines, **settings).records


def main() -> None:
    wanted = sys.argv[1:] or list(KERNELS)
    with Judge(device="cpu", effort="quick") as judge:
        for name in wanted:
            records = judged(judge, name)
            (HERE / "records" / f"{name}.jsonl").write_bytes(b"".join(encode(record) + b"\n" for record in records))
            print(f"== {name}\n{stored_feedback(name).to_text()}\n")


if __name__ == "__main__":
    main()
