"""A generated tree: pairs whose optimized side does half the work, and twelve that go wrong, each in its own way."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from benchmark_texts import benchmark_text

CHAPTERS = 20
BASELINE_STEPS = 40
OPTIMIZED_STEPS = 20
LIMIT_SECONDS = 5
"""Limits that the hanging files set for themselves, before the multiplier of the command line."""


class Bad(NamedTuple):
    """An optimized file that goes wrong, and what must be reported of it."""

    name: str
    text: str
    status: str
    stage: str | None
    message: str
    """How its error or the reason for skipping begins."""


def work(steps: int) -> str:
    """A body that multiplies so many times; every side gives the same output."""
    return f"for _ in range({steps}): self.output = self.x @ self.x"


def _configured(config: str, setup: str = "pass", body: str = work(OPTIMIZED_STEPS)) -> str:
    return benchmark_text(body=body, setup=setup, more=f"def get_config(self):\n    return {config}")


def _limited(stage: str, setup: str = "pass", body: str = work(OPTIMIZED_STEPS)) -> str:
    return _configured(f"{{'{stage}_timeout_seconds': {LIMIT_SECONDS}}}", setup, body)


HANG = "time.sleep(300)"
FIFTH = f"self.calls = getattr(self, 'calls', 0) + 1\nif self.calls == 5: {HANG}\n{work(OPTIMIZED_STEPS)}"
FLOOD = "line = b'flood ' * 17000\nfor _ in range(1000): os.write(1, line)"
BOMB = "self.held = []\nwhile True: self.held.append(torch.ones(4 << 20)); time.sleep(0.01)"

BAD = (
    Bad("hangs_in_import", benchmark_text(top=HANG), "timeout", "load", "TIMEOUT: load"),
    Bad("hangs_in_setup", _limited("setup", setup=HANG), "timeout", "setup", "TIMEOUT: setup"),
    Bad("hangs_in_warmup", _limited("warmup", body=HANG), "timeout", "warmup", "TIMEOUT: warmup"),
    Bad("hangs_in_measurement", _limited("measurement", body=FIFTH), "timeout", "measurement", "TIMEOUT: measurement"),
    Bad(
        "crashes",
        benchmark_text(setup="import ctypes; ctypes.string_at(0)"),
        "failed",
        "setup",
        "its process was killed by SIGSEGV in setup",
    ),
    Bad(
        "exits", benchmark_text(body="os._exit(7)"), "failed", "warmup", "its process ended with exit code 7 in warmup"
    ),
    Bad("floods", benchmark_text(body=work(OPTIMIZED_STEPS), setup=FLOOD), "succeeded", None, ""),
    Bad(
        "is_wrong", benchmark_text(body="self.output = self.x @ self.x * 1.01"), "failed", "validation", "wrong output"
    ),
    Bad("needs_devices", _configured("{'min_devices': 64}"), "skipped", "setup", "needs 64 CUDA devices"),
    Bad("is_a_bomb", _configured("{'memory_limit_bytes': 900 << 20}", setup=BOMB), "failed", "setup", "memory: used"),
    Bad("is_no_benchmark", "x = 1\n", "failed", "load", "optimized_is_no_benchmark.py has no get_benchmark()"),
    Bad(
        "raises_in_teardown",
        benchmark_text(body=work(OPTIMIZED_STEPS), teardown="raise OSError('it is stuck')"),
        "failed",
        "teardown",
        "OSError: it is stuck",
    ),
)


def write_generated_pairs(root: Path, count: int) -> dict[str, Bad | None]:
    """Write so many pairs in twenty chapters; name of each -> what is wrong with it, or None."""
    pairs: dict[str, Bad | None] = {}
    for number in range(count):
        every = count // len(BAD)
        bad = BAD[number // every] if number % every == every - 1 and number // every < len(BAD) else None
        chapter = root / f"ch{number * CHAPTERS // count + 1:02d}"
        chapter.mkdir(parents=True, exist_ok=True)
        name = bad.name if bad else f"example_{number:03d}"
        (chapter / f"baseline_{name}.py").write_text(benchmark_text(body=work(BASELINE_STEPS)))
        good = benchmark_text(body=work(OPTIMIZED_STEPS))
        (chapter / f"optimized_{name}.py").write_text(bad.text if bad else good)
        pairs[f"{chapter.name}/{name}"] = bad
    return pairs
