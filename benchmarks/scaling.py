"""Wall time per case as runs grow, of one operator and of many, and what it is spent on.

    python benchmarks/scaling.py [--device cpu|cuda] [--most 1000] [--judges N] [--timed-every 10] [--json FILE]

torch's own operators are judged at effort quick on 10, 100, 300 and 1000 cases, no two of the same shape; one in
``--timed-every`` is timed. Wall time is from the first record to the last, per case after the first: what starting the
judges takes is paid once per run and stands in a column of its own. Shares are of the time that all judges together
had. Growth is also told without measuring, since small runs may have another share of timed cases than large ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchstone.executors import ExecutorOptions
from torchstone.executors.devices import find_devices
from torchstone.executors.local import LocalExecutor
from torchstone.schema import (
    Agrees,
    Argument,
    Booleans,
    Case,
    Implementation,
    ImportPath,
    Job,
    Normal,
    Record,
    Scalar,
    Sequence,
    Tensor,
    explain,
)

COUNTS = (10, 100, 300, 1000)
SHARES = {
    "measuring": ("measure",),
    "checking": ("compile", "check", "attribute"),
    "starting": ("start", "load"),
    "waiting": ("wait",),
}
WANTED_GROWTH = 1.1
"""Linear, and some noise."""


def tensor(*shape: int) -> Tensor:
    return Tensor(shape, "float32", Normal())


def sizes(*values: int) -> Sequence:
    return Sequence(tuple(Scalar(value) for value in values))


Arguments = Callable[[int, int], tuple[Argument, ...]]
MANY: dict[str, Arguments] = {
    "aten.relu.default": lambda m, n: (tensor(m, n),),
    "aten.neg.default": lambda m, n: (tensor(m, n),),
    "aten.tanh.default": lambda m, n: (tensor(m, n),),
    "aten.gelu.default": lambda m, n: (tensor(m, n),),
    "aten.add.Tensor": lambda m, n: (tensor(m, n), tensor(n)),
    "aten.mul.Tensor": lambda m, n: (tensor(m, n), tensor(m, n)),
    "aten.maximum.default": lambda m, n: (tensor(m, n), tensor(m, n)),
    "aten.where.self": lambda m, n: (Tensor((m, n), "bool", Booleans()), tensor(m, n), tensor(m, n)),
    "aten.sum.dim_IntList": lambda m, n: (tensor(m, n), sizes(1)),
    "aten.amax.default": lambda m, n: (tensor(m, n), sizes(0)),
    "aten.mean.dim": lambda m, n: (tensor(m, n), sizes(0)),
    "aten._softmax.default": lambda m, n: (tensor(m, n), Scalar(-1), Scalar(False)),
    "aten.mm.default": lambda m, n: (tensor(m, n), tensor(n, m)),
    "aten.cat.default": lambda m, n: (Sequence((tensor(m, n), tensor(m, n))),),
    "aten.clone.default": lambda m, n: (tensor(m, n),),
    "aten.transpose.int": lambda m, n: (tensor(m, n), Scalar(0), Scalar(1)),
}
ONE = {"aten.relu.default": MANY["aten.relu.default"]}


def jobs(operators: dict[str, Arguments], count: int, timed_every: int) -> list[Job]:
    """Operator by operator, as suites have them."""
    found = []
    names = list(operators)
    for index in range(count):
        name = names[index * len(names) // count]
        shape = 8 + index % 61, 16 + index // 61
        case = Case("scaling", name, operators[name](*shape), timed=index % timed_every == timed_every // 2)
        found.append(Job(case, Implementation("aten", name, ImportPath("torch", f"ops.{name}"), "aten"), "quick"))
    return found


def measured(operators: dict[str, Arguments], count: int, options: argparse.Namespace) -> dict[str, Any]:
    todo = jobs(operators, count, options.timed_every)
    settings = ExecutorOptions(device=options.device, judges_per_device=options.judges)
    records: list[Record] = []
    arrivals: list[float] = []
    began = time.perf_counter()
    for record in LocalExecutor(settings).run(todo):
        records.append(record)
        arrivals.append(time.perf_counter())
        if not isinstance(record.verdict, Agrees):
            print(f"  {record.case.operator} {record.case.label}: {explain(record.verdict)[:200]}", file=sys.stderr)
        if len(records) % 100 == 0:
            print(f"  {len(records)} of {count} after {arrivals[-1] - began:.1f} s", file=sys.stderr, flush=True)
    judges = settings.judges_per_device * len(find_devices(options.device))
    wall = arrivals[-1] - arrivals[0]
    spent = judges * wall
    row: dict[str, Any] = {
        "operators": len(operators),
        "cases": count,
        "judges": judges,
        "agreeing": sum(isinstance(record.verdict, Agrees) for record in records),
        "first_record_seconds": arrivals[0] - began,
        "wall_seconds": arrivals[-1] - began,
        "seconds_per_case": wall / (count - 1),
    }
    for name, stages in SHARES.items():
        row[name] = sum(record.stage_seconds.get(stage, 0.0) for record in records[1:] for stage in stages) / spent
    row["other"] = 1.0 - sum(row[name] for name in SHARES)
    return row


def growth(rows: list[dict[str, Any]], without_measuring: bool) -> float:
    """Time per case of the last run over the best of those before it."""
    each = [row["seconds_per_case"] * (1 - without_measuring * row["measuring"]) for row in rows]
    return float(each[-1] / min(each[:-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--most", type=int, default=COUNTS[-1], help="leave larger runs out")
    parser.add_argument("--judges", type=int, default=1)
    parser.add_argument("--timed-every", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    columns = (*SHARES, "other")
    heads = f"{'operators':>9s} {'cases':>6s} {'judges':>6s} {'agree':>6s} {'first':>7s} {'wall':>8s} {'per case':>9s}"
    print(heads + "".join(f"{name:>11s}" for name in columns))
    for operators in (ONE, MANY):
        found = []
        for count in (count for count in COUNTS if count <= options.most):
            row = measured(operators, count, options)
            found.append(row)
            print(
                f"{row['operators']:9d} {row['cases']:6d} {row['judges']:6d} {row['agreeing']:6d} "
                f"{row['first_record_seconds']:5.1f} s {row['wall_seconds']:6.1f} s "
                f"{row['seconds_per_case'] * 1e3:6.1f} ms" + "".join(f"{row[name]:11.0%}" for name in columns),
                flush=True,
            )
        rows += found
        if len(found) > 1:
            print(f"  per case, the largest over the best of the others: {growth(found, False):.2f}", end="")
            print(f", without measuring {growth(found, True):.2f} (wanted: at most {WANTED_GROWTH})")
    if options.json:
        options.json.write_text(json.dumps({"device": options.device, "runs": rows}, indent=1))


if __name__ == "__main__":
    main()
