"""How long one kernel takes in a process that has judged before: ``python benchmarks/latency.py --device cpu``.

Prints the first call, the later ones with and without timing, and ten candidates together in several ways. Every call
has a kernel of its own text, so that nothing of an earlier one can be used.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torchstone

OPERATOR = "aten.relu.default"


def seconds_of(call: object, number: int, device: str) -> float:
    """One call on the six smoke cases of relu, with effort quick."""
    began = time.monotonic()
    source = f"# {number}\ndef relu(x):\n    return x.clamp(min=0)\n"
    result = call(source, OPERATOR, device=device, effort="quick")  # type: ignore[operator]
    assert result.agrees, result.failures()
    return time.monotonic() - began


def together(device: str, count: int, judges: int, purpose: str) -> dict[str, float]:
    """Seconds for as many candidates one after another, as a list, in two threads, and as a stream."""
    seconds: dict[str, float] = {}
    with torchstone.Judge(device=device, effort="quick", judges=judges) as judge:
        call = getattr(judge, purpose)
        call([f"# warm {number}\ndef relu(x): return x.clamp(min=0)\n" for number in range(2 * judges)], OPERATOR)
        for name, way in {
            "one after another": lambda sources: [call(source, OPERATOR) for source in sources],
            "as a list": lambda sources: call(sources, OPERATOR),
            "in two threads": lambda sources: list(
                ThreadPoolExecutor(2).map(lambda each: call(each, OPERATOR), sources)
            ),
            "as a stream": lambda sources: list(judge.stream(sources, OPERATOR, purpose=purpose)),
        }.items():
            sources = [f"# {name} {number}\ndef relu(x): return x.clamp(min=0)\n" for number in range(count)]
            began = time.monotonic()
            assert len(way(sources)) == count
            seconds[name] = time.monotonic() - began
    return seconds


def _write(path: Path | None, found: dict[str, object]) -> None:
    """As soon as a figure is known: the rest may be cut."""
    if path is not None:
        path.write_text(json.dumps(found, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--judges", type=int, default=2)
    parser.add_argument("--candidates", type=int, default=10, help="that are judged together")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: dict[str, object] = {"device": given.device, "first": seconds_of(torchstone.evaluate, 0, given.device)}
    print(f"first evaluate: {found['first']:.2f} s")
    for name, call in (("evaluate", torchstone.evaluate), ("check", torchstone.check)):
        later = [seconds_of(call, 1 + n + 1000 * (name == "check"), given.device) for n in range(given.repeats)]
        found[name] = later
        _write(given.json, found)
        print(f"later {name}: median {statistics.median(later):.2f} s, worst {max(later):.2f} s")
    torchstone.close()
    for purpose in ("check", "evaluate"):
        ways = together(given.device, given.candidates, given.judges, purpose)
        found[f"{purpose} of {given.candidates}"] = ways
        serial = ways["one after another"]
        told = ", ".join(f"{name} {seconds:.2f} s ({seconds / serial:.2f})" for name, seconds in ways.items())
        print(f"{purpose} of {given.candidates} candidates, judges={given.judges}: {told}", flush=True)
        _write(given.json, found)


if __name__ == "__main__":
    main()
