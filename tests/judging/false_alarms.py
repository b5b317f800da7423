"""How often honest kernels are refused, and which adversaries pass.

``PYTHONPATH=src:tests python -m judging.false_alarms 20 cpu 0``: seeds per kind, dtype and size; device; first seed.
"""

from __future__ import annotations

import sys
from collections import Counter

import torch

from judging.cases import ADVERSARIES, KINDS, Kernel, Kind, lower_precision, storages_of
from torchstone.judging import Mismatch, Reference, compare, compare_many, draw_call, planted_calls

DTYPES = ("float32", "bfloat16", "float16", "float64")


def main(seeds: int, device: torch.device, first_seed: int) -> None:
    judged, refused, passed = 0, Counter[str](), Counter[str]()
    worst = 0.0
    for kind in KINDS:
        for dtype in DTYPES:
            for size in kind.sizes:
                reference = Reference(kind.case(size, dtype), device)
                for seed in range(first_seed, first_seed + seeds):
                    call = draw_call(reference.case, seed, device)
                    expected = reference.expect(call)
                    for name, kernel in honest_kernels(kind).items():
                        found = compare(expected, [kernel(*call.args)], storages_of(call))
                        judged += 1
                        worst = max(worst, float(found.errors.worst_over_bound or 0.0))
                        refused[f"{kind.name}, {dtype}, {size}: {name}"] += isinstance(found, Mismatch)
                    for planted in planted_calls(expected, seed):
                        for name, kernel in honest_kernels(kind).items():
                            outputs = [kernel(*planted.call.args)]
                            found = compare_many([planted], [outputs], [storages_of(planted.call)])
                            judged += 1
                            what = f"{kind.name}, {dtype}, {size}: {name}, planted {planted.call.planted}"
                            refused[what] += isinstance(found, Mismatch)
                    right = expected.outputs[0].native
                    cheats = {name: cheat(right, call) for name, cheat in ADVERSARIES.items()}
                    cheats["another seed's answer"] = kind.native(*draw_call(reference.case, ~seed, device).args)
                    if dtype == "float32" and kind.adds:
                        cheats |= {name: kernel(*call.args) for name, kernel in lower_precision(kind).items()}
                    for name, cheat in cheats.items():
                        found = compare(expected, [cheat], storages_of(call))
                        passed[f"{kind.name}, {dtype}, {size}: {name}"] += not isinstance(found, Mismatch)
    print(f"{judged} honest judgements, {refused.total()} refused, worst error {worst:.2f} of its bound")
    for name, count in (+refused).items():
        print(f"  refused {count} of {seeds}: {name}")
    print(f"{passed.total()} passes of adversaries")
    for name, count in (+passed).items():
        print(f"  passed {count} of {seeds}: {name}")


def honest_kernels(kind: Kind) -> dict[str, Kernel]:
    return kind.honest | {"float64 inside": kind.in_float64}


if __name__ == "__main__":
    count, device_name, first = [*sys.argv[1:], *("10", "cpu", "0")[len(sys.argv) - 1 :]]
    main(int(count), torch.device(device_name), int(first))
