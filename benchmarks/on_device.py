"""What a machine with a GPU must show, in four calls of at most ten minutes: tests, benchmarks and the command line.

    python benchmarks/on_device.py --part 1 --output FOLDER [--traces FILE] [--problems FOLDER] [--seconds 560]
    python benchmarks/on_device.py --lines latency,throughput --output FOLDER
    python benchmarks/on_device.py --part 1 --device cpu --brief --output FOLDER      # a few lines, to try the program
    python benchmarks/on_device.py --list

Each line is one process with a time limit and with its output in a file. A line that reaches its limit is interrupted;
what it has said by then counts. After every line FOLDER has, for part N:

- results-N.json: command, seconds, exit code and figures of each line;
- table-N.md: line, issue, today's figure, wanted, measured, met. It is printed, too;
- logs-N.txt: the end of each line's output.

--traces names the file of recorded calls of the suite torchbench, --problems a folder of KernelBench problems. Lines
that need them are left out without.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from device_lines import LINES, Line, Reading, Setting
from torchstone.atomic_files import write_atomically
from torchstone.executors.machine import hardware

ROOT = Path(__file__).resolve().parents[1]
ENDING_SECONDS = 12.0
"""For a line that was interrupted to write down what it knows."""
LEAST_SECONDS = 5.0
"""A line with less time than this is not begun."""
LOG_CHARACTERS = 30_000
"""Of each line's output, from its end."""


def main() -> int:
    options = _options()
    if options.list:
        for line in LINES:
            print(f"{line.part}  {line.name:20s} {line.seconds:4.0f} s  issue {line.issue}: {line.what}")
        return 0
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="on-device-") as work:
        setting = Setting(options.device, options.brief, Path(work), options.traces, options.problems, {})
        return _run(_chosen(options), setting, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, choices=(1, 2, 3, 4), default=1)
    parser.add_argument("--lines", help="names, comma separated, instead of a part")
    parser.add_argument("--output", type=Path, default=Path("torchstone_runs"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--brief", action="store_true", help="small sizes, and only lines that have them")
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--problems", type=Path)
    parser.add_argument("--seconds", type=float, default=560.0, help="for all lines together")
    parser.add_argument("--list", action="store_true", help="the lines and their limits; run none")
    options = parser.parse_args()
    for name in ("output", "traces", "problems"):
        given = getattr(options, name)
        setattr(options, name, None if given is None else given.resolve())
    return options


def _chosen(options: argparse.Namespace) -> list[Line]:
    by_name = {line.name: line for line in LINES}
    names = options.lines.split(",") if options.lines else [line.name for line in LINES if line.part == options.part]
    unknown = [name for name in names if name not in by_name]
    if unknown:
        sys.exit(f"there is no line {', '.join(unknown)}; expected some of {', '.join(by_name)}.")
    return [by_name[name] for name in names if options.lines or not options.brief or by_name[name].is_brief]


def _run(lines: Sequence[Line], setting: Setting, options: argparse.Namespace) -> int:
    """Line after line. Exit code 1 if one of them does not show what it must."""
    until = time.monotonic() + options.seconds
    part = "lines" if options.lines else str(options.part)
    rows: list[dict[str, Any]] = []
    logs = ""
    for line in lines:
        print(f"{line.name} …", file=sys.stderr, flush=True)
        row, log = _row(line, setting, until)
        rows.append(row)
        logs += f"==== {line.name}: {row.get('command', row['measured'])}\n{log[-LOG_CHARACTERS:]}\n"
        told = {"device": setting.device, "brief": setting.is_brief, **_circumstances(setting.device), "lines": rows}
        write_atomically(options.output / f"results-{part}.json", json.dumps(told, indent=1).encode())
        write_atomically(options.output / f"table-{part}.md", _table(rows).encode())
        write_atomically(options.output / f"logs-{part}.txt", logs.encode(errors="replace"))
    print(_table(rows), end="")
    return 1 if any(row["met"] is False for row in rows) else 0


def _circumstances(device: str) -> dict[str, str]:
    """The machine, as pages name it, and today's date."""
    found = hardware()
    names = Counter(gpu.name for gpu in found.gpus) if device == "cuda" else Counter([found.cpu])
    machine = ", ".join(f"{count} {name}" if count > 1 else name for name, count in names.items())
    versions = f"{found.cpu_cores} cores, torch {version('torch')}"
    return {"machine": f"{machine or device}, {versions}", "date": time.strftime("%Y-%m-%d", time.gmtime())}


def _row(line: Line, setting: Setting, until: float) -> tuple[dict[str, Any], str]:
    """Run one line; its row, and what it printed. A line that fails or overruns takes no other line along."""
    row: dict[str, Any] = {name: getattr(line, name) for name in ("name", "issue", "what", "today", "wanted")}
    row |= {"measured": "", "met": None, "seconds": 0.0}
    folder = setting.work / line.name.replace(" ", "-")
    folder.mkdir(exist_ok=True)
    command = line.command(setting, folder)
    if isinstance(command, str):
        return row | {"measured": command}, ""
    limit = min(line.seconds, until - time.monotonic())
    if limit < LEAST_SECONDS:
        return row | {"measured": "not run: no time was left"}, ""
    code, took, began = _call(command, folder / "output.txt", limit, line.environment(setting))
    log = (folder / "output.txt").read_text(errors="replace")
    try:
        found = line.read(Reading(setting, folder, log, code, took, began))
    except Exception as error:  # noqa: BLE001 - a line that ended early has no figures, or half a file
        found = {"measured": f"no figures ({type(error).__name__}: {error})"[:200], "met": False}
    if code is None:
        found["measured"] = f"cut after {took:.0f} s; {found['measured']}"
        found["met"] = False if found["met"] is False else None
    setting.seen[line.name] = found
    named = " ".join(Path(part).name if part == sys.executable else part for part in command)
    return row | {"command": named, "exit_code": code, "seconds": round(took, 1), **found}, log


def _call(
    command: Sequence[str], output: Path, seconds: float, environment: dict[str, str]
) -> tuple[int | None, float, float]:
    """Exit code (None: it was cut), seconds, and when it began. It has a session of its own, and no end of ours."""
    began, since = time.monotonic(), time.time()
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code: int | None = None
        for ending, patience in ((None, seconds), (signal.SIGINT, ENDING_SECONDS), (signal.SIGKILL, ENDING_SECONDS)):
            if ending is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, ending)
            with contextlib.suppress(subprocess.TimeoutExpired):
                ended = process.wait(patience)
                code = ended if ending is None else None
                break
        with contextlib.suppress(ProcessLookupError):  # what it has left behind
            os.killpg(process.pid, signal.SIGKILL)
    return code, time.monotonic() - began, since


def _table(rows: Sequence[dict[str, Any]]) -> str:
    words = {True: "yes", False: "**no**", None: "–"}
    heads = "| line | issue | what | today | wanted | measured | met | seconds |\n" + "| --- " * 8 + "|\n"
    cells = (
        (row["name"], row["issue"], row["what"], row["today"], row["wanted"], row["measured"], words[row["met"]],
         f"{row['seconds']:.0f}")
        for row in rows
    )  # fmt: skip
    return heads + "".join(
        "| " + " | ".join(str(c).replace("|", "/").replace("\n", " ") for c in r) + " |\n" for r in cells
    )


if __name__ == "__main__":
    sys.exit(main())
