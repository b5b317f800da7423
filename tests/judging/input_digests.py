"""Digests of what the judge draws, plants, varies and bounds for 400 recorded cases with fixed seeds, a line for each.

A change of the code that should not change any input or bound leaves ``golden/input_digests.txt`` as it is
(``test_input_digests.py``). Torch must not choose its kernels by the CPU, so the digests are computed in a process with
the environment that :func:`environment` gives:

    python -m judging.input_digests          # in tests/: print the lines

The cases are recorded as well (``golden/input_cases.jsonl.gz``, by ``tools/record_input_cases.py``): suites change, and
to enumerate opinfo takes minutes.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import platform
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import torch

from torchstone import model_operators, schema
from torchstone.judging import (
    DrawnCall,
    Expected,
    Planting,
    Reference,
    draw_call,
    draw_calls,
    hidden_cases,
    plant,
    stated_size_cases,
    with_other_numbers,
)
from torchstone.judging.compare.reference_trust import plan_accepts_any_result, with_reference_where_excused
from torchstone.judging.plans import PLANS, CaseFacts
from torchstone.judging.planting.planted_calls import facts_of

GOLDEN = Path(__file__).parent / "golden"
CASES = GOLDEN / "input_cases.jsonl.gz"
DIGESTS = GOLDEN / "input_digests.txt"
_FIRST_SEED = 20_000
_VARIANTS = 1
_MOST_EXCUSED = 2
"""Planted calls of a case of which the excuses are recorded: each is evaluated by torch."""
_SCHEDULED_EVERY = 8
"""The plans of a variant are recorded for one case in so many: they cost most."""
_CPU = torch.device("cpu")


def environment() -> dict[str, str]:
    """In which every CPU gives the same digests: torch's plain kernels, one thread."""
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "ATEN_CPU_CAPABILITY": "default",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def made_with() -> str:
    """What else the digests depend on: torch's generators, and the logarithms of the C library in them."""
    return f"# torch {torch.__version__.partition('+')[0]}, {' '.join(platform.libc_ver())}"


def recorded_cases() -> list[schema.Case]:
    """The cases, with the operators of their models registered."""
    lines = gzip.decompress(CASES.read_bytes()).splitlines()
    cases = [msgspec.json.decode(line, type=schema.Case) for line in lines]
    for case in cases:
        if case.model is not None:
            model_operators.register(case)
    return cases


def lines() -> Iterator[str]:
    """For each case: its key, its operator, then the digests of draws, plans, schedule, excuses, variants, bounds."""
    yield made_with()
    for place, case in enumerate(recorded_cases()):
        found = digests(case, _FIRST_SEED + place)
        yield " ".join([case.key, case.operator, *(f"{name}={digest}" for name, digest in found.items())])


def digests(case: schema.Case, seed: int) -> Mapping[str, str]:
    """What is drawn for one case. Two random operators must not share torch's own generator, so it is seeded, too."""
    torch.manual_seed(seed)
    reference = Reference(case, _CPU)
    usual = reference.expect(draw_call(case, seed, _CPU))
    planting = Planting(reference, usual, seed, non_finite=True)
    variants = hidden_cases(case, _VARIANTS, random.Random(seed))
    scheduled = [] if seed % _SCHEDULED_EVERY else [_scheduled(variant, usual, seed) for variant in variants]
    unanswered = CaseFacts(case, tells_positions=facts_of(case, usual).tells_positions)
    names = [plan.recorded_name for plan in PLANS.applying(unanswered) if not plan.makes_own_call]
    return {
        "drawn": _digest(map(_bits, draw_calls(case, seed, 2, _CPU))),
        "planted": _digest(_planted(case, seed, names)),
        "scheduled": _digest([*map(_bits, planting.calls), *scheduled]),
        "excused": _digest(map(_excuses, planting.expected_results()[:_MOST_EXCUSED])),
        "variants": _digest(map(msgspec.json.encode, [*variants, *_of_stated_size(case, random.Random(seed))])),
        "bounds": _digest(_bounds(usual)),
    }


def _planted(case: schema.Case, seed: int, names: Iterable[str]) -> Iterator[bytes]:
    """Every plan that applies, also those that are not this job's turn."""
    for name in names:
        yield name.encode() + _bits(plant(draw_call(case, seed, _CPU), name))


def _scheduled(variant: schema.Case, usual: Expected, seed: int) -> bytes:
    reference = Reference(variant, _CPU, stated=usual.batch.reference)
    like = reference.expect(draw_call(variant, seed, _CPU)) if reference.random_results is not None else usual
    return b"".join(_bits(call) for call in Planting(reference, like, seed).calls)


def _of_stated_size(case: schema.Case, random_: random.Random) -> list[schema.Case]:
    found = with_other_numbers(case, random_)
    return found + [way for ways in stated_size_cases(case, random_) for way in ways]


def _bounds(usual: Expected) -> Iterator[bytes]:
    """Means to two digits: vector instructions of the machine change the last ones."""
    if usual.batch.reference.screens:
        for place, values in usual.values().items():
            mean = None if values.bound is None else float(values.bound.nan_to_num(posinf=0.0).mean())
            place_text = f"Place(kind={place.kind!r}, position={place.position})"
            yield f"{place_text} {mean if mean is None else f'{mean:.1e}'}".encode()


def _excuses(expected: Expected) -> bytes:
    """Which elements of a wrong answer are excused: of one with NaN, infinities and zeros in it."""
    outputs = [_spoilt(output.native) for output in expected.outputs]
    after = [_spoilt(storage) for storage in expected.inputs_after]
    excused, excused_after = with_reference_where_excused(expected, outputs, after)
    pairs = zip([*outputs, *after], [*excused, *excused_after], strict=True)
    changed = [_changed(one, other) for one, other in pairs]
    return f"{expected.call.planted} {plan_accepts_any_result(expected)} {changed}".encode()


def _spoilt(native: object) -> object:
    if not isinstance(native, torch.Tensor) or not native.is_floating_point():
        return native
    kinds = torch.arange(native.numel()).remainder(4).view(native.shape)
    found = torch.where(kinds == 0, torch.nan, native)
    found = torch.where(kinds == 1, torch.inf, found)
    return torch.where(kinds == 2, 0.0, found).to(native.dtype)


def _changed(one: object, other: object) -> int:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return 0
    return int(((one != other) & ~((one != one) & (other != other))).sum())


def _bits(call: DrawnCall) -> bytes:
    parts = [call.planted.encode(), msgspec.json.encode(call.case)]
    storages = (tensor.storage.contiguous() for tensor in call.tensors)
    parts += [storage.view(torch.uint8).numpy().tobytes() if storage.numel() else b"" for storage in storages]
    return b"|".join(parts)


def _digest(parts: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()[:8]


if __name__ == "__main__":
    print(*lines(), sep="\n")
