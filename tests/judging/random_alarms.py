"""How often honest draws are refused: whole trials of operators that draw random numbers, torch against itself.

``PYTHONPATH=src:tests python -m judging.random_alarms 20 105 0 cpu rand``: trials per kind and dtype, calls per trial,
first seed, device, and how the names of the kinds begin. Every 25th call is compared in full, the others as timed calls
are; some have the arguments of others.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from judging.cases import case, storages_of, tensor
from torchstone import operators
from torchstone.judging import Mismatch, Reference, compare_many, draw_calls
from torchstone.schema import Booleans, Case, Fill, Integers, Uniform

FLOATS = ("float32", "float64", "bfloat16", "float16")
SIZES = (16, 40, 257, 3000)
BLOCK = 5
"""Calls that are drawn together, some of them in the place of others."""
_UNIT = Uniform(0.0, 1.0)
_FEW = Uniform(0.0, 0.01)


def _fill(dtype: str) -> Fill | None:
    return Integers(0, 2) if "int" in dtype else None


Make = Callable[[int, str], Case]
KINDS: dict[str, tuple[Make, tuple[str, ...]]] = {
    "rand": (lambda n, t: case("aten.rand_like.default", tensor(n, dtype=t)), FLOATS),
    "randn": (lambda n, t: case("aten.randn_like.default", tensor(n, dtype=t)), FLOATS),
    "normal_": (lambda n, t: case("aten.normal_.default", tensor(n, dtype=t), 1.0, 2.0), FLOATS),
    "uniform_": (lambda n, t: case("aten.uniform_.default", tensor(n, dtype=t), -3.0, 2.0), FLOATS),
    "exponential": (lambda n, t: case("aten.exponential.default", tensor(n, dtype=t)), FLOATS),
    "cauchy": (lambda n, t: case("aten.cauchy.default", tensor(n, dtype=t)), FLOATS),
    "geometric": (lambda n, t: case("aten.geometric.default", tensor(n, dtype=t), 0.3), FLOATS),
    "log normal": (lambda n, t: case("aten.log_normal.default", tensor(n, dtype=t)), FLOATS),
    "poisson": (lambda n, t: case("aten.poisson.default", tensor(n, dtype=t, fill=Uniform(0.0, 5.0))), FLOATS),
    "bernoulli 0.3": (lambda n, t: case("aten.bernoulli.p", tensor(n, dtype=t), 0.3), FLOATS),
    "bernoulli 0.01": (lambda n, t: case("aten.bernoulli.p", tensor(n, dtype=t), 0.01), FLOATS),
    "bernoulli": (lambda n, t: case("aten.bernoulli.default", tensor(n, dtype=t, fill=_UNIT)), FLOATS),
    "rare bernoulli": (lambda n, t: case("aten.bernoulli.default", tensor(n, dtype=t, fill=_FEW)), FLOATS),
    "flags": (lambda n, _: case("aten.bernoulli_.float", tensor(n, dtype="bool", fill=Booleans()), 0.1), ("bool",)),
    "dropout 0.5": (lambda n, t: case("aten.native_dropout.default", tensor(n, dtype=t), 0.5, True), FLOATS),
    "dropout 0.1": (lambda n, t: case("aten.native_dropout.default", tensor(n, dtype=t), 0.1, True), FLOATS),
    "dropout 0.01": (lambda n, t: case("aten.native_dropout.default", tensor(n, dtype=t), 0.01, True), FLOATS),
    "randint of 2": (
        lambda n, t: case("aten.randint_like.default", tensor(n, dtype=t, fill=_fill(t)), 2),
        (*FLOATS, "int64", "uint8"),
    ),
    "randint of 9": (
        lambda n, t: case("aten.randint_like.default", tensor(n, dtype=t, fill=_fill(t)), 9),
        (*FLOATS, "int64", "int8"),
    ),
    "randint of many": (
        lambda n, t: case("aten.randint_like.default", tensor(n, dtype=t, fill=_fill(t)), 1 << 30),
        ("int64", "int32"),
    ),
    "randint of 1000": (
        lambda n, t: case("aten.randint_like.default", tensor(n, dtype=t, fill=_fill(t)), 1000),
        ("int64", "float32"),
    ),
    "permutation": (lambda n, _: case("aten.randperm.default", n), ("int64",)),
    "multinomial": (
        lambda n, t: case("aten.multinomial.default", tensor(4, 6, dtype=t, fill=_UNIT), max(1, n // 4), True),
        FLOATS,
    ),
    "multinomial, each once": (
        lambda n, t: case("aten.multinomial.default", tensor(4, n // 4 + 3, dtype=t, fill=_UNIT), n // 4, False),
        ("float32", "float64"),
    ),
    "attention": (
        lambda n, t: case(
            "aten.scaled_dot_product_attention.default",
            *(tensor(1, 2, n // 32 + 1, 16, dtype=t) for _ in range(3)),
            None,
            0.2,
        ),
        ("float32", "float64"),
    ),
    "noisy relu": (
        lambda n, t: case("aten.rrelu_with_noise.default", tensor(n, dtype=t), tensor(n, dtype=t), 0.1, 0.3, True),
        ("float32", "float64"),
    ),
    "gamma": (
        lambda n, t: case("aten._standard_gamma.default", tensor(n, dtype=t, fill=Uniform(0.5, 4.0))),
        FLOATS[:2],
    ),
    "dirichlet": (
        lambda n, t: case("aten._sample_dirichlet.default", tensor(n // 4, 4, dtype=t, fill=Uniform(0.5, 4.0))),
        FLOATS[:2],
    ),
}


def trial(wanted: Case, calls: int, seed: int, device: torch.device) -> tuple[int, str | None]:
    """Judge torch's own draws until one is refused: how many were judged, and what was said."""
    reference = Reference(wanted, device)
    assert reference.random_results is not None
    for begin in range(0, calls, BLOCK):
        drawn = draw_calls(wanted, seed * calls + begin, min(BLOCK, calls - begin), device)
        for index, call in enumerate(reference.random_results.with_inserted_repeats(drawn), begin):
            (expected,) = reference.expect_many([call], with_bounds=index % 25 == 0)
            outputs, after = called(reference, call)
            found = compare_many([expected], [outputs], [after])
            if isinstance(found, Mismatch):
                return index + 1, found.message
    return calls, None


def called(reference: Reference, call: Any) -> tuple[list[Any], list[torch.Tensor]]:
    """torch as the candidate, on copies."""
    after = [storage.clone() for storage in storages_of(call)]
    views = [operators.view_of(s, drawn.recipe) for s, drawn in zip(after, call.tensors, strict=True)]
    return reference.evaluator.call_on_arithmetic_device(views, reference.case), after


def main(trials: int, calls: int, first: int, device: torch.device, begins: str) -> None:
    judged, refused = Counter[str](), Counter[str]()
    chosen = {name: kind for name, kind in KINDS.items() if name.startswith(tuple(begins.split("|")))}
    for name, (make, dtypes) in chosen.items():
        for dtype in dtypes:
            for seed in range(first, first + trials):
                wanted = make(SIZES[seed % len(SIZES)], dtype)
                key = f"{name}, {dtype}"
                count, message = trial(wanted, calls, seed, device)
                judged[key] += count
                if message is not None:
                    refused[key] += 1
                    print(f"  refused {key}, {SIZES[seed % len(SIZES)]} elements, call {count}: {message}", flush=True)
        done = {key: number for key, number in judged.items() if key.startswith(f"{name}, ")}
        print(f"{name}: {done}", flush=True)
    print(f"{judged.total()} honest judgements of {len(judged)} kinds and dtypes, {refused.total()} refused")


if __name__ == "__main__":
    given = [*sys.argv[1:], *("4", "25", "0", "cpu", "")[len(sys.argv) - 1 :]]
    main(int(given[0]), int(given[1]), int(given[2]), torch.device(given[3]), given[4])
