"""How long one kernel takes in a process that has judged before: ``python benchmarks/latency.py --device cpu``.

Prints the first call, and the later ones with and without timing. Every call has a kernel of its own text, so that
nothing of an earlier one can be used.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torchstone

OPERATOR = "aten.relu.default"


def seconds_of(call: object, number: int, device: str) -> float:
    """One call on the six smoke cases of relu, with effort quick."""
    began = time.monotonic()
    source = f"# {number}\ndef relu(x):\n    return x.clamp(min=0)\n"
    result = call(source, OPERATOR, device=device, effort="quick")  # type: ignore[operator]
    assert result.agrees, result.failures()
    return time.monotonic() - began


def together(device: str, count: int, judges: int) -> tuple[float, float]:
    """Ten candidates one after another, and as one list."""
    sources = [f"# together {number}\ndef relu(x):\n    return x.clamp(min=0)\n" for number in range(2 * count)]
    with torchstone.Judge(device=device, effort="quick", judges=judges) as judge:
        judge.check([f"# warm {number}\n{sources[0]}" for number in range(2 * judges)], OPERATOR)
        began = time.monotonic()
        for source in sources[:count]:
            judge.check(source, OPERATOR)
        between = time.monotonic()
        judge.check(sources[count:], OPERATOR)
        return between - began, time.monotonic() - between


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--judges", type=int, default=2)
    given = parser.parse_args()
    print(f"first evaluate: {seconds_of(torchstone.evaluate, 0, given.device):.2f} s")
    for name, call in (("evaluate", torchstone.evaluate), ("check", torchstone.check)):
        later = [seconds_of(call, 1 + n + 1000 * (name == "check"), given.device) for n in range(given.repeats)]
        print(f"later {name}: median {statistics.median(later):.2f} s, worst {max(later):.2f} s")
    torchstone.close()
    alone, joined = together(given.device, 10, given.judges)
    print(f"check of 10 candidates, {given.judges} judges: one after another {alone:.2f} s, as a list {joined:.2f} s")


if __name__ == "__main__":
    main()
