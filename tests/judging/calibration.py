"""How often honest kernels are refused on the smoke suite, and whether lower precision is told apart.

``PYTHONPATH=src:tests python -m judging.calibration --seeds 10 [--compile]``. Every smoke operator, three ways that are
honest: another order of adding up (for operators that add nothing, another formula or float32 inside), torch.compile
(only with ``--compile``: it takes minutes), float64 inside; in float32, bfloat16 and float16.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from judging.cases import blocked, left_to_right, pairwise, wide
from torchstone import operators
from torchstone.judging import (
    Agreement,
    DrawnCall,
    Expected,
    Mismatch,
    Reference,
    compare,
    compare_many,
    draw_call,
    planted_calls,
)
from torchstone.judging.audit.adversaries import to_tf32
from torchstone.schema import Case, tensors_of
from torchstone.suites import CaseQuery
from torchstone.suites.smoke import SmokeSuite

CPU = torch.device("cpu")
DTYPES = ("float32", "bfloat16", "float16")
Kernel = Callable[..., Any]
Reduce = Callable[[torch.Tensor], torch.Tensor]
EXCEPTIONS = {
    "amax": "moves values: rounded inputs give other values, which equality tells apart, but no sum is involved",
    "max": "as amax; the indices may be right in any precision",
}
"""Reductions that are no sums, by base name."""


def base_name(case: Case) -> str:
    return case.operator.split(".")[1]


def cases(dtype: str, large: bool) -> Iterator[Case]:
    """Smoke cases with floating-point tensors and at least one element."""
    for case in SmokeSuite().cases(CaseQuery(None, (dtype,))):
        if (
            dtype in {recipe.dtype for recipe in tensors_of(case)}
            and "empty" not in case.tags
            and (large or not case.timed)
        ):
            yield case


# Other orders and formulas, by base name. Each takes the operator's arguments.


def _rows(x: torch.Tensor, dims: list[int], keepdim: bool, add: Reduce) -> tuple[torch.Tensor, int]:
    """Added up over these dimensions, and how many terms there were."""
    dims = sorted(d % x.dim() for d in dims)
    kept = [d for d in range(x.dim()) if d not in dims]
    flat = wide(x).permute(*kept, *dims).flatten(len(kept))
    if flat.shape[-1] == 0:
        return flat.sum(-1), 1
    total = add(flat)
    for d in dims if keepdim else ():
        total = total.unsqueeze(d)
    return total, flat.shape[-1]


def _sum(add: Reduce) -> Kernel:
    return lambda x, dims, keepdim=False: _rows(x, dims, keepdim, add)[0]


def _mean(add: Reduce) -> Kernel:
    def kernel(x: torch.Tensor, dims: list[int], keepdim: bool = False) -> torch.Tensor:
        total, count = _rows(x, dims, keepdim, add)
        return total / count

    return kernel


def _product(a: torch.Tensor, b: torch.Tensor, add: Reduce) -> torch.Tensor:
    if a.shape[1] == 0:
        return wide(a) @ wide(b)
    if a.shape[0] * a.shape[1] * b.shape[1] <= 1 << 20:
        return add(wide(a)[:, None, :] * wide(b).T[None])
    return sum(wide(a)[:, k : k + 32] @ wide(b)[k : k + 32] for k in reversed(range(0, a.shape[1], 32)))  # type: ignore[return-value]


def _mm(add: Reduce) -> Kernel:
    return lambda a, b: _product(a, b, add)


def _addmm(add: Reduce) -> Kernel:
    return lambda c, a, b, beta=1, alpha=1: alpha * _product(a, b, add) + beta * wide(c)


def _softmax(add: Reduce) -> Kernel:
    def kernel(x: torch.Tensor, dim: int, _: bool) -> torch.Tensor:
        moved = wide(x).movedim(dim, -1)
        shifted = (moved - moved.amax(-1, keepdim=True)).exp()
        return (shifted / add(shifted).unsqueeze(-1)).movedim(-1, dim)

    return kernel


def _layer_norm(add: Reduce) -> Kernel:
    def kernel(x: torch.Tensor, shape: list[int], weight: Any, bias: Any, eps: float) -> tuple[torch.Tensor, ...]:
        values = wide(x).flatten(-len(shape))
        count, kept = values.shape[-1], x.shape[: x.dim() - len(shape)] + (1,) * len(shape)
        mean = add(values).unsqueeze(-1) / count
        centred = values - mean
        scale = (add(centred * centred).unsqueeze(-1) / count + eps).rsqrt()
        result = (centred * scale).reshape(x.shape)
        result = result if weight is None else result * wide(weight) + wide(bias)
        return result, mean.reshape(kept), scale.reshape(kept)

    return kernel


ADDING: dict[str, Callable[[Reduce], Kernel]] = {
    "sum": _sum, "mean": _mean, "mm": _mm, "addmm": _addmm, "_softmax": _softmax, "native_layer_norm": _layer_norm,
}  # fmt: skip
FORMULAS: dict[str, Kernel] = {
    "log": lambda x: torch.log2(wide(x)) * math.log(2.0),
    "gelu": lambda x, approximate="none": (
        wide(x) * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (wide(x) + 0.044715 * wide(x) ** 3))
        if approximate == "tanh"
        else wide(x) * 0.5 * torch.erfc(-wide(x) / math.sqrt(2.0))
    ),
    "div": lambda x, y: wide(x) * (1.0 / wide(y)),
}


def honest(case: Case) -> Iterator[tuple[str, Kernel]]:
    """Ways to compute a case's operator; each kernel takes the arguments and returns leaves of any float dtype."""
    name, native = base_name(case), operators.resolve(case.operator)
    yield "float64 inside", _in(native, torch.float64)
    if name in ADDING:
        orders = {"left to right": left_to_right, "pairwise": pairwise, "blocked": blocked}
        for order, add in orders.items():
            if order == "pairwise" or not case.timed:  # Python loops over long rows take seconds.
                yield order, ADDING[name](add)
        yield "flipped", ADDING[name](lambda values: values.flip(-1).sum(-1))
    else:
        yield "another formula", FORMULAS.get(name, _in(native, torch.float32))


def _in(native: Kernel, dtype: torch.dtype) -> Kernel:
    def widened(value: Any) -> Any:
        if isinstance(value, list):
            return [widened(item) for item in value]
        return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    return lambda *args, **kwargs: native(*map(widened, args), **{k: widened(v) for k, v in kwargs.items()})


# Judging them.


def outcome(expected: Expected, kernel: Kernel) -> Agreement | Mismatch:
    """The judgement of a kernel that returns its leaves; what the operator writes to is written for it."""
    call = fresh(expected.call)
    leaves = operators.flatten_outputs(kernel(*call[0], **call[1]))
    after, outputs = list(expected.inputs_after), []
    for wanted, leaf in zip(expected.outputs, leaves, strict=True):
        leaf = leaf.to(wanted.dtype)
        if wanted.is_argument is not None:
            storage = after[wanted.is_argument].clone()
            view = operators.view_of(storage, tensors_of(expected.call.case)[wanted.is_argument])
            view.copy_(leaf)
            after[wanted.is_argument], leaf = storage, view
        outputs.append(leaf)
    return compare_many([expected], [outputs], [after]) if expected.call.planted else compare(expected, outputs, after)


def fresh(call: DrawnCall) -> tuple[list[Any], dict[str, Any]]:
    """The call's arguments, copied: kernels in place may write to them."""
    return operators.build_arguments(call.case, [tensor.view.clone() for tensor in call.tensors], call.device)


class Tally:
    def __init__(self) -> None:
        self.judged, self.refused, self.lower, self.missed = 0, Counter[str](), 0, Counter[str]()
        self.worst, self.ways = Counter[str](), Counter[str]()
        self.messages: list[str] = []

    def honest(self, label: str, way: str, found: Agreement | Mismatch) -> None:
        name = f"{label}: {way}"
        self.judged += 1
        self.ways[way] += 1
        for part in ("worst_over_bound", "rms_over_bound", "bias_over_bound"):
            self.worst[part] = max(self.worst[part], float(getattr(found.errors, part) or 0.0))  # type: ignore[assignment]
        if isinstance(found, Mismatch):
            self.refused[name] += 1
            self.messages.append(f"{name}: {found.message}")

    def print(self) -> None:
        print(f"{self.judged} honest judgements, {self.refused.total()} false disagreements")
        print("  of these:", dict(self.ways))
        print("  largest shares of the bounds:", {name: round(value, 3) for name, value in self.worst.items()})
        for message in self.messages[:20]:
            print("  refused", message)
        print(f"{self.lower} judgements of lower precision in float32, {self.missed.total()} not told apart")
        for name, count in self.missed.items():
            print(f"  missed {count}: {name}")
        for name, reason in EXCEPTIONS.items():
            print(f"  exception: {name}: {reason}")


def calibrate(seeds: range, large: bool = True, compiled: bool = False) -> Tally:
    tally = Tally()
    for dtype in DTYPES:
        for case in cases(dtype, large):
            label = f"{case.operator}({case.label})"
            reference = Reference(case, CPU)
            kernels = dict(honest(case)) | (_compiled(case) if compiled else {})
            for seed in seeds if not case.timed else seeds[:2]:
                expected = reference.expect(draw_call(case, seed, CPU))
                for name, kernel in kernels.items():
                    tally.honest(label, name, outcome(expected, kernel))
                for planted in planted_calls(expected, seed):
                    for name, kernel in kernels.items():
                        tally.honest(label, f"{name}, planted {planted.call.planted}", outcome(planted, kernel))
                if dtype == "float32" and tells_precision(case):
                    tally.lower += 1
                    lower = outcome(expected, _lower(case))
                    tally.missed[label] += isinstance(lower, Agreement)
    tally.missed = +tally.missed
    return tally


def tells_precision(case: Case) -> bool:
    """Sums and products of several terms with several results."""
    small = {"one-element", "of-nothing"} & set(case.tags)
    traits = operators.traits(case.operator)
    return (traits.reduces or traits.contracts) and traits.base not in EXCEPTIONS and not small


def _lower(case: Case) -> Kernel:
    native = operators.resolve(case.operator)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        rounded = [to_tf32(a) if isinstance(a, torch.Tensor) and a.dtype == torch.float32 else a for a in args]
        return native(*rounded, **kwargs)

    return kernel


def _compiled(case: Case) -> dict[str, Kernel]:
    """Compiled once per case, only where rows are odd: others compile to the same code."""
    if "odd" not in case.tags:
        return {}
    native = operators.resolve(case.operator)
    torch._dynamo.reset()  # Otherwise it gives up after eight cases and runs them uncompiled.
    return {"compiled": torch.compile(lambda *args, **kwargs: native(*args, **kwargs), dynamic=False)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0, help="others than those that the constants were tried on")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--small", action="store_true", help="without the timed cases")
    given = parser.parse_args()
    calibrate(range(given.first_seed, given.first_seed + given.seeds), not given.small, given.compile).print()
