"""A against A in the harness, again and again: the same work as baseline and optimized, or half of it with `--half`.

    python benchmarks/harness.py [--repeats 50] [--device cpu|cuda:0] [--half] [--threshold 5] [--json FILE]

The true ratio is 1, or 2 with `--half`. Every other difference is an error of the harness. Printed: how many ratios lie
within 5 % of the truth, how many regressions are reported, how many intervals hold it, and how far ratios are apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from torchstone.harness.local_runner import LocalPairRunner
from torchstone.harness.pair_runner import PairOrder

NEAR = 0.05
SUBJECTS = {
    "relu": ("self.x = torch.randn(1024, 512, device=self.device)", "torch.relu(self.x)"),
    "product": ("self.x = torch.randn(256, 256, device=self.device)", "self.x @ self.x"),
    "many small": (
        "self.x = torch.randn(64, 64, device=self.device)",
        "[torch.relu(self.x) for _ in range(20)]",
    ),
    "large": (
        "self.x = torch.randn(1 << (25 if self.device.type == 'cuda' else 20), device=self.device)",
        "self.x * 2",
    ),
    "interpreter": ("self.n = 10000", "sum(range(self.n))"),
}
TEXT = """
import torch
from torchstone.harness import BaseBenchmark

class Subject(BaseBenchmark):
    def setup(self):
        {setup}
    def benchmark_fn(self):
        for _ in range({times}):
            {body}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--threshold", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder, LocalPairRunner(options.device.partition(":")[0]) as runner:
        for number in range(options.repeats):
            name = list(SUBJECTS)[number % len(SUBJECTS)]
            rows.append(once(runner, Path(folder), name, options))
            print("{subject:12s} {ratio:.4f} [{low:.4f}, {high:.4f}] {seconds:.1f} s".format(**rows[-1]), flush=True)
    report(rows, 2.0 if options.half else 1.0)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def once(runner: LocalPairRunner, folder: Path, name: str, options: argparse.Namespace) -> dict[str, object]:
    setup, body = SUBJECTS[name]
    files = {}
    for side, times in (("baseline", 8 if options.half else 4), ("optimized", 4)):
        files[side] = folder / f"{side}_{name.replace(' ', '_')}.py"
        files[side].write_text(TEXT.format(setup=setup, body=body, times=times))
    began = time.monotonic()
    order = PairOrder(
        name=name,
        root=folder,
        baseline=files["baseline"],
        optimized=files["optimized"],
        device=options.device,
        seed=0,
        regression_threshold_pct=options.threshold,
        artifacts=folder / "artifacts",
    )
    found = runner.run(order)
    if found.speedup is None:
        raise SystemExit(f"{name}: {found.baseline.errors + found.optimized.errors}")
    return {
        "subject": name,
        "ratio": found.speedup,
        "low": found.speedup_low,
        "high": found.speedup_high,
        "regression": found.regression,
        "seconds": time.monotonic() - began,
    }


def report(rows: list[dict[str, object]], truth: float) -> None:
    ratios = [float(str(row["ratio"])) for row in rows]
    near = sum(abs(ratio / truth - 1) <= NEAR for ratio in ratios)
    held = sum(float(str(row["low"])) <= truth <= float(str(row["high"])) for row in rows)
    print(f"{near} of {len(rows)} ratios within 5 % of {truth:g}")
    print(f"{sum(bool(row['regression']) for row in rows)} regressions reported")
    print(f"{held} of {len(rows)} intervals hold {truth:g}")
    print(f"ratios from {min(ratios):.4f} to {max(ratios):.4f}, standard deviation {statistics.pstdev(ratios):.4f}")


if __name__ == "__main__":
    main()
