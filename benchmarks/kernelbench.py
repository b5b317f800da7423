"""KernelBench problems judged against themselves: how many agree, what is left out and why, seconds per problem.

    python benchmarks/kernelbench.py FOLDER [--no-measure] [--device cuda] [--seconds 540] [--resume] [--run-id ID]
                                            [--json FILE]

FOLDER holds problem files (``19_ReLU.py``), which are not part of this repository. Each problem's own ``Model`` is
judged as its solution, at effort quick. After ``--seconds`` the run is interrupted, and a second call with ``--resume``
goes on with it; both print what is known so far. Problems that are too large for the machine are left out or
unsupported, and the reason names the bytes. Exit code 0: every problem agrees, is unsupported, or is left out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from torchstone.runs.folder import read_plan
from torchstone.suites.kernelbench import problems_in

_LEFT_OUT = re.compile(r"suite 'kernelbench' leaves out 1: (.*)")
_ENDING_SECONDS = 30.0
"""For the run to close its journal after it was interrupted."""


def main() -> int:
    options = _options()
    this_call, left_out = _run(options)
    records = _records(options.output_dir / options.run_id / "records.jsonl")
    seconds = this_call + _earlier_seconds(options.output_dir / options.run_id, records)
    total = len(problems_in(str(options.folder)))
    verdicts = Counter(record["verdict"]["type"] for record in records)
    took = f"this call took {this_call:.0f} s, all {seconds:.0f} s"
    print(f"{len(records)} of {total} problem files have a record; {took}")
    print(f"  {'left out':12} {len(left_out)}")
    for verdict, count in verdicts.most_common():
        print(f"  {verdict:12} {count}")
    for record in records:
        if record["verdict"]["type"] != "agrees":
            said = record["verdict"].get("reason") or record["verdict"].get("message") or ""
            print(f"  {_name(record)}: {record['verdict']['type']}: {str(said)[:200]}")
    for line in left_out:
        print(f"  left out: {line}")
    _print_seconds(records)
    wrong = len(records) - verdicts["agrees"] - verdicts["unsupported"]
    if options.json:
        told = {"seconds": seconds, "problems": total, "verdicts": verdicts, "left_out": left_out}
        options.json.write_text(json.dumps(told, indent=1))
    return 0 if len(records) + len(left_out) == total and not wrong else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-measure", action="store_true")
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--judges", type=int, default=1)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--run-id", default="kernelbench")
    parser.add_argument("--output-dir", type=Path, default=Path("torchstone_runs"))
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _run(options: argparse.Namespace) -> tuple[float, list[str]]:
    """Seconds, and the problems that were left out. The backend aten offers, for a problem, the problem's own model."""
    command = [sys.executable, "-m", "torchstone", "run", "--suite", "kernelbench", "--source", str(options.folder)]
    command += ["--backend", "aten", "--effort", "quick", "--device", options.device, "--judges", str(options.judges)]
    command += ["--run-id", options.run_id, "--output-dir", str(options.output_dir), "--quiet"]
    command += ["--no-measure"] * options.no_measure + ["--resume"] * options.resume
    began = time.monotonic()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    told = options.output_dir / f"{options.run_id}.stderr"
    with told.open("wb") as stderr, subprocess.Popen(command, stderr=stderr) as process:
        try:
            process.wait(options.seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
    return time.monotonic() - began, _LEFT_OUT.findall(told.read_text(errors="replace"))


def _earlier_seconds(run: Path, records: list[dict[str, Any]]) -> float:
    """What earlier calls took that worked on the run. One that was killed ended with its last record."""
    planned = read_plan(run)
    parts = planned.parts if planned is not None else ()
    found = 0
    for part, following in itertools.pairwise(parts):
        judged = [record["finished_unix_ns"] for record in records]
        last = max((ns for ns in judged if ns < following.began_unix_ns), default=part.began_unix_ns)
        found += max(0, (part.ended_unix_ns or last) - part.began_unix_ns)
    return found / 1e9


def _records(path: Path) -> list[dict[str, Any]]:
    """The last record of each job; none if the run did not get that far."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines if line.strip()]
    return list({record["job_key"]: record for record in found if "job_key" in record}.values())


def _name(record: dict[str, Any]) -> str:
    return str(record["case"]["operator"]).split(".")[1]


def _print_seconds(records: list[dict[str, Any]]) -> None:
    taken = sorted(((sum(r["stage_seconds"].values()), _name(r)) for r in records), reverse=True)
    if taken:
        print(f"seconds in stages: {sum(s for s, _ in taken):.0f} in all, median {taken[len(taken) // 2][0]:.1f}")
        print("slowest: " + ", ".join(f"{name} {seconds:.1f}" for seconds, name in taken[:8]))


if __name__ == "__main__":
    sys.exit(main())
