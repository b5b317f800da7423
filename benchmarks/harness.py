"""A against A in the harness: the same file as baseline and optimized, again and again.

    python benchmarks/harness.py [--repeats 50] [--device cpu|cuda:0] [--threshold 5] [--json FILE]

Every difference that is reported is an error of the harness. Printed: how many ratios lie within 0.95 to 1.05, how many
regressions are reported, how many intervals hold 1, and how far the ratios are apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from torchstone.harness.local_runner import LocalPairRunner
from torchstone.harness.order import PairOrder

LEAST, MOST = 0.95, 1.05
SUBJECTS = {
    "relu": ("self.x = torch.randn(1024, 512, device=self.device)", "self.output = torch.relu(self.x)"),
    "product": ("self.x = torch.randn(256, 256, device=self.device)", "self.output = self.x @ self.x"),
    "many small": ("self.x = torch.randn(64, 64, device=self.device)", "for _ in range(40): torch.relu(self.x)"),
    "tiny": ("self.x = torch.randn(8, device=self.device)", "self.x.add_(1.0)"),
    "interpreter": ("self.n = 20000", "sum(range(self.n))"),
}
TEXT = """
import torch
from torchstone.harness import BaseBenchmark

class Subject(BaseBenchmark):
    def setup(self):
        {setup}
    def benchmark_fn(self):
        {body}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threshold", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder, LocalPairRunner(options.device.partition(":")[0]) as runner:
        for number in range(options.repeats):
            name = list(SUBJECTS)[number % len(SUBJECTS)]
            rows.append(once(runner, Path(folder), name, options.device, options.threshold))
            print("{subject:12s} {ratio:.4f} [{low:.4f}, {high:.4f}] {seconds:.1f} s".format(**rows[-1]), flush=True)
    report(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def once(runner: LocalPairRunner, folder: Path, name: str, device: str, threshold: float) -> dict[str, object]:
    setup, body = SUBJECTS[name]
    file = folder / f"baseline_{name.replace(' ', '_')}.py"
    file.write_text(TEXT.format(setup=setup, body=body))
    began = time.monotonic()
    order = PairOrder(
        name=name,
        root=folder,
        baseline=file,
        optimized=file,
        device=device,
        seed=0,
        regression_threshold_pct=threshold,
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


def report(rows: list[dict[str, object]]) -> None:
    ratios = [float(str(row["ratio"])) for row in rows]
    near = sum(LEAST <= ratio <= MOST for ratio in ratios)
    held = sum(float(str(row["low"])) <= 1.0 <= float(str(row["high"])) for row in rows)
    print(f"{near} of {len(rows)} ratios within {LEAST} to {MOST}")
    print(f"{sum(bool(row['regression']) for row in rows)} regressions reported")
    print(f"{held} of {len(rows)} intervals hold 1")
    print(f"ratios from {min(ratios):.4f} to {max(ratios):.4f}, standard deviation {statistics.pstdev(ratios):.4f}")


if __name__ == "__main__":
    main()
