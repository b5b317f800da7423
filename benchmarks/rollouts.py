"""Many rollouts at once, as a trainer makes them: rewards per minute, and what must hold meanwhile.

    python benchmarks/rollouts.py [--device cuda|cpu] [--rollouts 1000] [--turns 1] [--judges N] [--seconds S]
                                  [--check-only] [--largest 1] [--require-authored] [--results copied] [--json FILE]
    python benchmarks/rollouts.py --repeat 50 [--device cuda|cpu]      # how much does the reward of one kernel vary?

On a GPU, one line for each claim:

    python benchmarks/rollouts.py --rollouts 2000 --seconds 300        # 12 000 rewards an hour, with the GPU's use
    python benchmarks/rollouts.py --repeat 50                          # standard deviation of one kernel's reward
    python benchmarks/rollouts.py --rollouts 60 --results copied       # without CUDA IPC: the same verdicts

All kernels are different: a third does not work at all, a third is wrong, a third is right. On CUDA they are Triton
kernels, on the CPU plain torch. Each prints a number of its own and what it sees of other kernels. The program
ends with exit code 1 unless every rollout got the verdict of its own kernel, the queue kept its bound, and memory did
not grow. A table says what is wanted and what was measured. A speed that is missed stands there; the exit code stays 0.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from throughput import Kernel, generate
from torchstone.api import Evaluation
from torchstone.gym import Evaluator, Rollout, TurnResult
from torchstone.schema import Agrees, Disagrees

QUEUE = 64
"""Kernels that may wait or be under way: far fewer than there are rollouts."""
GROWTH_ALLOWED = 1.25
"""Memory of all processes in the last quarter of the time over that in the first. Workers come and go, so that single
samples differ by more."""
WARM_KERNELS = 50
"""Judged before memory is looked at: until then processes start."""
SAMPLE_SECONDS = 0.5
LEAST_SAMPLES = 60
"""For a statement about memory."""
WANTED_PER_HOUR = {"cuda": 12_000, "cpu": 7_500}
"""Rewards. On the CPU: checked only, a thousand rollouts in eight minutes on two idle cores."""
LEAST_MIXED, MIXTURE_ALLOWED = 200, 0.1
"""Kernels of which a share is stated, and how far it may be from a third: six standard deviations of a thousand."""
WANTED_DEVIATION = 0.015
"""Standard deviation of one kernel's reward over its mean."""

PROLOGUE = """import glob, os, sys
_others = [name for name in sys.modules if name.startswith("torchstone_candidate") and name != __name__]
_here = os.path.dirname(os.path.abspath(__file__))
_files = [path for path in glob.glob(os.path.join(_here, "**", "*.py"), recursive=True) if path != __file__]
print("rollout {number} sees", len(_others) + len(_files), flush=True)
"""


def kernels_for(count: int, device: str) -> list[Kernel]:
    """As many kernels of relu, a third of each kind, in random order; each prints its number while it loads."""
    wanted = {kind: count // 3 + (place < count % 3) for place, kind in enumerate(("right", "wrong", "broken"))}
    chosen: list[Kernel] = []
    for kernel in generate(6 * count + 60, device):
        if kernel.name == "relu" and wanted[kernel.kind]:
            wanted[kernel.kind] -= 1
            chosen.append(_named(kernel, len(chosen)))
    assert len(chosen) == count
    random.Random(3).shuffle(chosen)
    return chosen


def _named(kernel: Kernel, number: int) -> Kernel:
    text = kernel.source.replace("def kernel(x)", "def relu_kernel_impl(x)")
    head = PROLOGUE.format(number=number)
    if kernel.detail == "import":  # before it fails
        return kernel._replace(number=number, source=f"{head}{text}")
    lines = text.split("\n", 1)  # imports of Triton's template stay at the top of the rest
    return kernel._replace(number=number, source=f"{lines[0]}\n{head}{lines[1]}")


class Seen(NamedTuple):
    """One judged kernel of a rollout."""

    kernel: Kernel
    result: TurnResult
    evaluation: Evaluation | None


class Watched(Evaluator):
    """An evaluator that keeps what the records say about each kernel."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.evaluations: dict[str, Evaluation] = {}

    async def evaluate(self, code: str, operator: str) -> Evaluation:
        found = await super().evaluate(code, operator)
        self.evaluations[code] = found
        return found


class Sampler:
    """Memory of this process and everything below it, the queue, and the GPU, looked at twice a second."""

    def __init__(self, evaluator: Evaluator, device: str, expected: int) -> None:
        """``expected``: rewards of the whole run."""
        self._evaluator, self._device, self._expected = evaluator, device, expected
        self._ends = threading.Event()
        self.memory_bytes: list[int] = []
        self.in_flight: list[int] = []
        self.utilisation: list[float] = []
        self.judged = 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()

    def _watch(self) -> None:
        began = time.monotonic()
        gpu = _gpu() if self._device == "cuda" else None
        while not self._ends.wait(SAMPLE_SECONDS):
            if self.judged >= WARM_KERNELS:
                self.memory_bytes.append(tree_bytes(os.getpid()))
            self.in_flight.append(self._evaluator.judge.in_flight)
            if gpu is not None:
                self.utilisation.append(gpu())
            if len(self.in_flight) % 20 == 0:
                seconds = time.monotonic() - began
                left = f"{seconds * (self._expected / self.judged - 1):.0f} s" if self.judged else "time not known"
                done = f"{self.judged} of {self._expected} judged after {seconds:.0f} s"
                print(f"  {done}, {left} left", file=sys.stderr, flush=True)

    @property
    def growth(self) -> float | None:
        """Median memory of the last quarter of the time over that of the first; None for a short run."""
        quarter = len(self.memory_bytes) // 4
        if len(self.memory_bytes) < LEAST_SAMPLES:
            return None
        return statistics.median(self.memory_bytes[-quarter:]) / statistics.median(self.memory_bytes[:quarter])


def tree_bytes(root: int) -> int:
    """Resident memory of a process and everything below it. Pages that several share count once for each."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)], pages[int(entry.name)] = int(fields[1]), int(fields[21])
    found, waiting = 0, [root]
    while waiting:
        process = waiting.pop()
        found += pages.get(process, 0)
        waiting += [child for child, parent in parents.items() if parent == process]
    return found * os.sysconf("SC_PAGE_SIZE")


def _gpu() -> Any:
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    return lambda: float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)


class Spent(NamedTuple):
    """Where the time of the judged kernels went, by what their records tell."""

    cases: int
    stages: dict[str, float]
    """Seconds of a case in each stage, on average."""
    lane_seconds: float
    """Seconds of a case in which the judge waited while another one measured on this device, on average."""
    read: int
    """Cases whose results were compared, and were not copied into the judge's memory."""

    @classmethod
    def of(cls, seen: list[Seen]) -> Spent:
        records = [record for each in seen if each.evaluation for record in each.evaluation.records]
        sums: Counter[str] = Counter()
        for record in records:
            sums.update(record.stage_seconds)
        means = {stage: round(seconds / len(records), 4) for stage, seconds in sorted(sums.items())}
        compared = [record for record in records if isinstance(record.verdict, Agrees | Disagrees)]
        read = sum(record.isolation.results != "copied" for record in compared)
        return cls(len(records), {name: n for name, n in means.items() if name != "wait"}, means.get("wait", 0), read)


def processor_seconds() -> float:
    """Of this process and of every one below it that has ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


async def run_all(
    evaluator: Watched, kernels: list[Kernel], turns: int, sampler: Sampler, seconds: float
) -> list[Seen]:
    """Every rollout at once. Each submits its kernel in as many turns, so that every turn's text is new.

    What is not judged after so many seconds is withdrawn.
    """
    found: list[Seen] = []

    async def one(kernel: Kernel) -> None:
        rollout = Rollout(evaluator, "relu")
        for turn in range(turns):
            if rollout.is_done:  # the machine could not judge the turn before
                return
            reply = f"```python\n{kernel.source}\n# turn {turn}\n```"
            result = await rollout.answer(reply)
            sampler.judged += 1
            found.append(Seen(kernel, result, evaluator.evaluations.get(result.code or "")))

    tasks = [asyncio.create_task(one(kernel)) for kernel in kernels]
    done, late = await asyncio.wait(tasks, timeout=None if seconds == float("inf") else seconds)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    for task in done:
        task.result()
    return found


def faults_of(seen: list[Seen]) -> list[str]:
    """Rollouts that got another verdict than their own kernel's, or saw anything of another."""
    faults: list[str] = []
    for kernel, result, evaluation in seen:
        right = result.reward is not None and result.right
        if right != (kernel.kind == "right") or result.reward is None:
            faults.append(f"kernel {kernel.number} ({kernel.kind} {kernel.detail}): {result.verdict}")
        printed = "\n".join(record.log_tail for record in evaluation.records) if evaluation else ""
        numbers = set(re.findall(r"rollout (\d+) sees (\d+)", printed))
        if numbers - {(str(kernel.number), "0")}:
            faults.append(f"kernel {kernel.number} printed {sorted(numbers)}")
        if not numbers and kernel.detail != "syntax":
            faults.append(
                f"kernel {kernel.number} ({kernel.kind} {kernel.detail}) did not run: {result.feedback[:200]}"
            )
    return faults


def evaluator_for(options: argparse.Namespace) -> Watched:
    return Watched(
        device=options.device,
        ops=("relu",),
        language="triton" if options.device == "cuda" else "pytorch",
        num_turns=options.turns,
        judges=options.judges,
        measured=not options.check_only,
        queue_size=QUEUE,
        largest=options.largest,
        require_authored=options.require_authored,
        results=options.results,
        split="all",
    )


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The figures of one run, with everything that did not hold under `faults`."""
    kernels = kernels_for(options.rollouts, options.device)
    processor_before = processor_seconds()
    with evaluator_for(options) as evaluator:
        cases = len(evaluator.task("relu").cases)
        sampler = Sampler(evaluator, options.device, options.rollouts * options.turns)
        began = time.monotonic()
        with sampler.watching():
            seen = asyncio.run(run_all(evaluator, kernels, options.turns, sampler, options.seconds))
        took = time.monotonic() - began
    mixed_up = faults_of(seen)
    faults = [*mixed_up]
    spent = Spent.of(seen)
    if options.results == "copied" and spent.read:
        faults.append(f"results of {spent.read} cases were read, not copied")
    if max(sampler.in_flight, default=0) > QUEUE:
        faults.append(f"{max(sampler.in_flight)} kernels were in flight; the queue has {QUEUE} places")
    growth = sampler.growth
    if growth is not None and growth > GROWTH_ALLOWED:
        faults.append(f"memory grew by the factor {growth:.2f}; at most {GROWTH_ALLOWED} is expected")
    return {
        "device": options.device,
        "rollouts": options.rollouts,
        "judges": options.judges,
        "measured": not options.check_only,
        "require_authored": options.require_authored,
        "cases_per_kernel": cases,
        "rewards": len(seen),
        "seconds": round(took, 1),
        "rewards_per_minute": round(60 * len(seen) / took, 1),
        "rewards_per_hour_projected": round(3600 * len(seen) / took),
        "processor_seconds_per_reward": round((processor_seconds() - processor_before) / max(1, len(seen)), 3),
        "stage_seconds_per_case": spent.stages,
        "lane_wait_seconds_per_case": spent.lane_seconds,
        "results": options.results,
        "most_in_flight": max(sampler.in_flight, default=0),
        "queue": QUEUE,
        "memory_growth": None if growth is None else round(growth, 3),
        "most_memory_gib": round(max(sampler.memory_bytes, default=0) / 2**30, 2),
        "gpu_utilisation_percent": round(statistics.mean(sampler.utilisation), 1) if sampler.utilisation else None,
        "load_average": os.getloadavg()[0],
        "verdicts": dict(Counter(f"{each.kernel.kind}: {each.result.verdict}" for each in seen)),
        "mixed_up": len(mixed_up),
        "faults": faults[:20],
    }


def repeat(options: argparse.Namespace) -> dict[str, Any]:
    """The same right kernel judged so many times, one after the other; nothing is kept in between."""
    kernel = next(each for each in kernels_for(6, options.device) if each.kind == "right")
    with evaluator_for(options) as evaluator:
        results = [evaluator.turn_now(f"```python\n{kernel.source}\n```", "relu") for _ in range(options.repeat)]
    rewards = [result.reward for result in results if result.reward is not None]
    if len(rewards) < 2:
        return {"device": options.device, "repeats": len(results), "faults": [each.verdict for each in results]}
    lows = [result.speedup_low for result in results if result.speedup_low is not None]
    wrong = [result.verdict for result in results if not result.right]
    return {
        "device": options.device,
        "repeats": len(results),
        "reward_mean": statistics.mean(rewards),
        "reward_deviation": statistics.stdev(rewards),
        "reward_deviation_share": statistics.stdev(rewards) / statistics.mean(rewards),
        "speedup_low_deviation_share": statistics.stdev(lows) / statistics.mean(lows) if len(lows) > 1 else None,
        "load_average": os.getloadavg()[0],
        "faults": wrong,
    }


class Claim(NamedTuple):
    """One line of the table."""

    what: str
    wanted: str
    measured: str
    holds: bool | None
    """None: nothing is wanted, or this run cannot tell."""


def claims_of(found: dict[str, Any]) -> list[Claim]:
    """What is wanted of a run, beside what it measured."""
    if "repeats" in found:
        return _claims_of_repeats(found)
    wanted, hourly = WANTED_PER_HOUR[found["device"]], found["rewards_per_hour_projected"]
    comparable = found["device"] == "cuda" or not found["measured"]
    growth, use = found["memory_growth"], found["gpu_utilisation_percent"]
    kinds = Counter[str]()
    for name, count in found["verdicts"].items():
        kinds[name.partition(":")[0]] += count
    shares = ", ".join(f"{kinds[kind]} {kind}" for kind in ("broken", "wrong", "right"))
    return [
        Claim("rewards", "", f"{found['rewards']} of {found['rollouts']} rollouts in {found['seconds']} s", None),
        Claim("kernels", "a third broken, a third wrong", shares, _thirds(kinds)),
        Claim("rewards a minute", "", f"{found['rewards_per_minute']}", None),
        Claim(
            "rewards an hour",
            f">= {wanted}" if comparable else "",
            f"{hourly}",
            hourly >= wanted if comparable else None,
        ),
        Claim("GPU in use", "", "no GPU" if use is None else f"{use} % of the time", None),
        Claim("rollouts with another verdict, or that see another", "0", f"{found['mixed_up']}", not found["mixed_up"]),
        Claim(
            "kernels in flight",
            f"<= {found['queue']}",
            f"{found['most_in_flight']}",
            found["most_in_flight"] <= found["queue"],
        ),
        Claim(
            "memory, last quarter over first",
            f"<= {GROWTH_ALLOWED}",
            "too few samples" if growth is None else f"{growth}",
            None if growth is None else growth <= GROWTH_ALLOWED,
        ),
        Claim("processor seconds a reward", "", f"{found['processor_seconds_per_reward']}", None),
        Claim("seconds a case waits while another judge measures", "", f"{found['lane_wait_seconds_per_case']}", None),
    ]


def _thirds(kinds: Counter[str]) -> bool | None:
    """Whether the judged kernels are the mixture that is wanted; None for few: a run that was cut short."""
    if kinds.total() < LEAST_MIXED:
        return None
    return all(abs(kinds[kind] / kinds.total() - 1 / 3) < MIXTURE_ALLOWED for kind in ("broken", "wrong", "right"))


def _claims_of_repeats(found: dict[str, Any]) -> list[Claim]:
    share = found.get("reward_deviation_share")
    return [
        Claim("judgements of one kernel", "", f"{found['repeats']}", None),
        Claim("judgements that failed", "0", f"{len(found['faults'])}", not found["faults"]),
        Claim(
            "standard deviation of the reward over its mean",
            f"<= {WANTED_DEVIATION:.1%}" if found["device"] == "cuda" else "",
            "too few rewards" if share is None else f"{share:.2%}",
            None if share is None or found["device"] != "cuda" else share <= WANTED_DEVIATION,
        ),
    ]


def print_claims(claims: list[Claim]) -> None:
    """The table: wanted beside measured."""
    words = {None: "", True: "yes", False: "NO"}
    rows = [("", "wanted", "measured", "holds")]
    rows += [(each.what, each.wanted, each.measured, words[each.holds]) for each in claims]
    widths = [max(len(row[place]) for row in rows) for place in range(4)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--rollouts", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--judges", type=int, default=4)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="end after this time; what is not judged is withdrawn"
    )
    parser.add_argument("--check-only", action="store_true", help="time nothing")
    parser.add_argument("--require-authored", action="store_true", help="kernels may not call torch's operators")
    parser.add_argument("--largest", type=int, help="only so many cases for each kernel")
    parser.add_argument(
        "--results", choices=["read", "copied"], default="read", help="copied: do without CUDA IPC and reading memory"
    )
    parser.add_argument("--repeat", type=int, help="judge one right kernel so often instead")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = repeat(options) if options.repeat else measure(options)
    print(json.dumps(found, indent=1))
    print_claims(claims_of(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 1 if found["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
