"""The built-in kernels against the limit of the device, eager PyTorch, `torch.compile` and Liger, by sweeps.

    python benchmarks/builtin_kernels.py --output FOLDER [--parts grid,backward] [--limit grid=480] [--device cuda]

Each part is one `torchstone sweep` with a time limit; all limits together are below 9 minutes. A part that reaches its
limit is interrupted, and what it has measured counts. FOLDER gets:

- PART.json for each part: command, seconds, rows, what was skipped;
- PART.rows.json, which `torchstone sweep plot` takes;
- kernels-measured.md, the tables of docs/kernels-measured.md, which are printed too.

The tables take every PART.json in FOLDER: to have one page of several calls, put their files into one folder and give
`--parts none`.

`torch.compile` compiles each point again, 1 to 3 s each. Before the part `compile`, one process per operation compiles
all points at the same time, so that the sweep finds them in the compiler's cache.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torchstone.sweeps.read_results import read_records

OPERATIONS = ("LayerNorm", "GELU", "Swish", "MSE", "CrossEntropy")
OWN = ("CUDA", "Triton")
LARGE_BYTES = 64_000_000
"""Size of the input from which a kernel should be close to the limit."""
LEAST_MS = 0.005
"""Points at which the other implementation takes less say more about launches than about kernels."""
PRECISION = 0.02
"""Half width of an interval, as a share of the time, that a sweep aims at."""
GRACE_SECONDS = 30
"""From the interruption of a sweep to its end: it finishes the point that it is at."""
PAGE = "kernels-measured.md"
TINY = ("--batch", "1,2", "--seq", "8", "--dim", "16")

Row = dict[str, Any]


class Part(NamedTuple):
    """One sweep."""

    implementations: str
    options: tuple[str, ...]
    limit_seconds: int
    compiles: bool = False
    """Whether `torch.compile` takes part; it fills its cache before, in at most half of the time."""


PARTS = {
    "grid": Part("pytorch,cuda,triton,liger", (), 320),
    "backward": Part(
        "pytorch,cuda,triton",
        ("--batch", "128", "--seq", "2048", "--dim", "64:512:x2", "--mode", "bwd", "--no-judge"),
        35,
    ),
    "both": Part(
        "pytorch,cuda,triton,liger",
        ("--batch", "32,128", "--seq", "1024", "--dim", "128,512", "--mode", "fwd+bwd", "--no-judge"),
        35,
    ),
    "compile": Part("compile,cuda,triton", ("--batch", "128", "--no-judge"), 130, compiles=True),
}


# ---- running


def run_part(name: str, part: Part, options: argparse.Namespace) -> dict[str, Any]:
    """The file of a part. A sweep that fails or is stopped leaves the rows that it has."""
    limit = options.limit.get(name, part.limit_seconds)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="builtin-kernels-") as scratch:
        if part.compiles:
            fill_compiler_cache(part, options, Path(scratch), limit / 2)
        filled = time.monotonic()
        command = sweep_command(part, options, Path(scratch) / f"{name}.json")
        say(f"{name}: {shown(command)}, at most {limit - (filled - began):.0f} s")
        process = subprocess.Popen(command, cwd=scratch, start_new_session=True)
        ending = wait_or_interrupt(process, began + limit)
        found = read_output(Path(scratch) / f"{name}.json")
    seconds = time.monotonic() - filled
    say(f"{name}: {ending}, {len(found['rows'])} times in {seconds:.0f} s")
    return {"part": name, "command": shown(command), "ending": ending, "seconds": seconds, **found}


def sweep_command(part: Part, options: argparse.Namespace, output: Path) -> list[str]:
    """`torchstone sweep` of a part, with Liger only where it is installed."""
    names = [
        name
        for name in part.implementations.split(",")
        if name != "liger" or importlib.util.find_spec("liger_kernel") is not None
    ]
    grid = part.options
    if options.tiny:
        grid = (*TINY, *_without_axes(part.options))
    return [
        sys.executable, "-m", "torchstone", "sweep", "--impl", ",".join(names), *grid,
        "--device", options.device, "--quiet", "--output", str(output),
    ]  # fmt: skip


def _without_axes(given: Sequence[str]) -> Iterator[str]:
    axes = {place for place, item in enumerate(given) if item in ("--batch", "--seq", "--dim")}
    return (item for place, item in enumerate(given) if place not in axes and place - 1 not in axes)


def fill_compiler_cache(part: Part, options: argparse.Namespace, scratch: Path, limit_seconds: float) -> None:
    """Compile all points of the part, the operations at the same time. Their times are thrown away."""
    say(f"filling the cache of torch.compile, at most {limit_seconds:.0f} s")
    began = time.monotonic()
    only = part._replace(implementations="compile")
    started = []
    for name in OPERATIONS:
        command = [*sweep_command(only, options, scratch / f"cache_{name}.json"), "--ops", name]
        started.append(subprocess.Popen(command, cwd=scratch, start_new_session=True, stdout=subprocess.DEVNULL))
    endings = [wait_or_interrupt(process, began + limit_seconds) for process in started]
    say(f"the cache is filled after {time.monotonic() - began:.0f} s: {', '.join(endings)}")


def wait_or_interrupt(process: subprocess.Popen[bytes], until: float) -> str:
    """How it ended. At the limit it is interrupted, as by Ctrl-C, and killed if it does not end then."""
    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
            return "stopped at its limit"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return "killed after its limit"
    return {0: "complete", 1: "with failures"}.get(process.returncode, f"ended with exit code {process.returncode}")


def read_output(output: Path) -> dict[str, Any]:
    """What a sweep has written, as far as it came."""
    records = read_records(output)
    rows, skipped = (_listed(path) for path in (output, output.with_suffix(".skipped.json")))
    return {
        "device": records[0].device if records else "",
        "points": len(records),
        "measuring_seconds": sum(record.seconds for record in records),
        "rows": rows,
        "skipped": skipped,
    }


def _listed(path: Path) -> list[Row]:
    return json.loads(path.read_text()) if path.is_file() else []


def shown(command: Sequence[str]) -> str:
    """As a reader would type it."""
    end = command.index("--device")
    return "torchstone " + " ".join(command[3:end])


def say(text: str) -> None:
    print(text, flush=True)


# ---- tables


def page(parts: dict[str, dict[str, Any]]) -> str:
    """The tables of docs/kernels-measured.md that these parts suffice for."""
    sections = [machine_section(parts)]
    if "grid" in parts:
        sections += [time_section(parts["grid"]), share_section("Share of the limit, forward", parts["grid"])]
    if "backward" in parts:
        sections.append(share_section("Share of the limit, backward", parts["backward"]))
    sections.append(ratio_section(parts))
    if "compile" in parts:
        sections.append(compile_section(parts["compile"]))
    if "both" in parts:
        sections.append(both_section(parts["both"]))
    sections.append(skipped_section(parts.values()))
    return "\n\n".join(filter(None, sections)) + "\n"


def machine_section(parts: dict[str, dict[str, Any]]) -> str:
    devices = sorted({part["device"] for part in parts.values() if part["device"]})
    lines = [f"- {name}: `{part['command']}`: {_of_part(part)}" for name, part in parts.items()]
    return "\n".join([f"Device: {', '.join(devices) or 'none'}. {versions()}.", "", *lines])


def _of_part(part: dict[str, Any]) -> str:
    return f"{part['ending']}, {part['points']} points, {len(part['rows'])} times, {part['seconds']:.0f} s"


def versions() -> str:
    """Of the packages that the times depend on."""
    found = []
    for name in ("torch", "triton", "liger-kernel"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return ", ".join(found)


def time_section(part: dict[str, Any]) -> str:
    """How long the grid took, and how precise its times are."""
    widths = sorted(half_width(row) for row in part["rows"])
    if not widths:
        return ""
    shapes = len({point_of(row)[1:] for row in part["rows"]})
    wide = sum(width > PRECISION for width in widths)
    values = [
        ("shapes", str(shapes)),
        ("times", str(len(widths))),
        ("seconds in all, with judging", f"{part['seconds']:.0f}"),
        ("seconds per time, with judging", f"{part['seconds'] / len(widths):.3f}"),
        ("seconds per time, without", f"{part['measuring_seconds'] / len(widths):.3f}"),
        *((f"half width of the interval, {q} % quantile", f"{quantile(widths, q):.2%}") for q in (50, 90, 95, 99)),
        (f"times with more than {PRECISION:.0%}", str(wide)),
    ]
    return "## Time of the grid\n\n" + table(("what", "value"), values)


def share_section(title: str, part: dict[str, Any]) -> str:
    """Lowest and highest percentage of the limit over large shapes, and the lowest by size."""
    rows = [row for row in part["rows"] if input_bytes(row) >= LARGE_BYTES and row["gpu_efficiency"] is not None]
    if not rows:
        return ""
    names = present(rows)
    by_cell = grouped(rows, lambda row: (row["operation"], row["implementation"]))
    ranges = [
        (operation, *(_range(by_cell.get((operation, name), [])) for name in names))
        for operation in present_operations(rows)
    ]
    sizes = sorted({input_bytes(row) for row in rows})
    lowest = [
        (f"{operation}, {name}", *(_lowest(by_cell.get((operation, name), []), size) for size in sizes))
        for operation in present_operations(rows)
        for name in OWN
        if (operation, name) in by_cell
    ]
    shapes = len({point_of(row)[1:] for row in rows})
    head = f"## {title}\n\nPercent of the limit, {rows[0]['dtype']}: lowest and highest of {shapes} shapes of "
    head += f"{sizes[0] / 1e6:.0f} MB and more.\n\n"
    megabytes = (f"{size / 1e6:.0f} MB" for size in sizes)
    return head + table(("operation", *names), ranges) + "\n\nLowest, by size:\n\n" + table(("", *megabytes), lowest)


def _range(rows: Sequence[Row]) -> str:
    shares = [row["gpu_efficiency"] for row in rows]
    return f"{min(shares):.0f} to {max(shares):.0f}" if shares else ""


def _lowest(rows: Sequence[Row], size: int) -> str:
    shares = [row["gpu_efficiency"] for row in rows if input_bytes(row) == size]
    return f"{min(shares):.0f}" if shares else ""


def ratio_section(parts: dict[str, dict[str, Any]]) -> str:
    """Geometric means of the others' times over ours."""
    sources = (("PyTorch", "grid"), ("Liger", "grid"), ("Compile", "compile"))
    columns = [
        (other, own, pairs(parts[source]["rows"], other, own))
        for other, source in sources
        if source in parts
        for own in OWN
    ]
    columns = [column for column in columns if column[2]]
    if not columns:
        return ""
    lines = [(operation, *(_mean(found, operation) for _, _, found in columns)) for operation in (*OPERATIONS, "all")]
    head = "## Against other implementations\n\nGeometric mean of their time over ours, forward, over the points at "
    head += f"which they take {LEAST_MS * 1000:.0f} µs or more; in brackets the number of points.\n\n"
    return head + table(("operation", *(f"{other} / {own}" for other, own, _ in columns)), lines)


def _mean(found: Sequence[tuple[Row, Row]], operation: str) -> str:
    ratios = [other["time_ms"] / own["time_ms"] for other, own in found if operation in (other["operation"], "all")]
    return f"{statistics.geometric_mean(ratios):.2f} ({len(ratios)})" if ratios else ""


def compile_section(part: dict[str, Any]) -> str:
    """Points at which ours is slower or faster than `torch.compile`, by more than both intervals."""
    lines = []
    for operation in OPERATIONS:
        for own in OWN:
            found = [pair for pair in pairs(part["rows"], "Compile", own) if pair[0]["operation"] == operation]
            slower = sum(mine["interval_low_ms"] > other["interval_high_ms"] for other, mine in found)
            faster = sum(mine["interval_high_ms"] < other["interval_low_ms"] for other, mine in found)
            if found:
                lines.append((f"{operation}, {own}", str(len(found)), str(faster), str(slower)))
    head = "Points at which the intervals of ours and of `torch.compile` are apart:\n\n"
    return head + table(("", "points", "ours faster", "ours slower"), lines) if lines else ""


def both_section(part: dict[str, Any]) -> str:
    """Microseconds of forward and backward together."""
    names = present(part["rows"])
    by_point = grouped(part["rows"], point_of)
    lines = [
        (point[0], "x".join(map(str, point[1:])), *(_microseconds(rows, name) for name in names))
        for point, rows in sorted(by_point.items(), key=lambda item: (OPERATIONS.index(item[0][0]), item[0][1:]))
    ]
    head = "## Forward and backward together\n\nMicroseconds per call.\n\n"
    return head + table(("operation", "shape", *names), lines) if lines else ""


def _microseconds(rows: Sequence[Row], name: str) -> str:
    return next((f"{row['time_ms'] * 1000:.1f}" for row in rows if row["implementation"] == name), "")


def skipped_section(parts: Iterable[dict[str, Any]]) -> str:
    """What was not timed: how often, and why."""
    counts = Counter((part["part"], row["implementation"], row["reason"]) for part in parts for row in part["skipped"])
    lines = [(*place, str(count)) for place, count in sorted(counts.items())]
    return "## Not timed\n\n" + table(("part", "implementation", "reason", "points"), lines) if lines else ""


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """As Markdown."""
    listed = [heads, ["---"] * len(heads), *lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in listed)


# ---- rows


def point_of(row: Row) -> tuple[str, int, int, int]:
    return row["operation"], row["batch_size"], row["sequence_length"], row["tensor_dimension"]


def input_bytes(row: Row) -> int:
    """Of the largest input."""
    return math.prod(point_of(row)[1:]) * {"float32": 4}.get(row["dtype"], 2)


def half_width(row: Row) -> float:
    """Of the interval, as a share of the time."""
    return float((row["interval_high_ms"] - row["interval_low_ms"]) / 2 / row["time_ms"])


def quantile(ordered: Sequence[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def pairs(rows: Sequence[Row], other: str, own: str) -> list[tuple[Row, Row]]:
    """Rows of both at the same points, where the other one is not too fast to count."""
    mine = {point_of(row): row for row in rows if row["implementation"] == own}
    theirs = [row for row in rows if row["implementation"] == other and row["time_ms"] >= LEAST_MS]
    return [(row, mine[point_of(row)]) for row in theirs if point_of(row) in mine]


def present(rows: Iterable[Row]) -> list[str]:
    """Implementations that have times, ours first."""
    found = {row["implementation"] for row in rows}
    return [name for name in (*OWN, "PyTorch", "Compile", "Liger") if name in found]


def present_operations(rows: Iterable[Row]) -> list[str]:
    found = {row["operation"] for row in rows}
    return [name for name in OPERATIONS if name in found]


def grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return found


# ---- the command


def main() -> int:
    options = parse()
    options.output.mkdir(parents=True, exist_ok=True)
    failed = [name for name in options.parts if not try_part(name, options)]
    files = {name: options.output / f"{name}.json" for name in PARTS}
    text = page({name: json.loads(path.read_text()) for name, path in files.items() if path.is_file()})
    (options.output / PAGE).write_text(text)
    say(f"\n{text}")
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def try_part(name: str, options: argparse.Namespace) -> bool:
    """Run a part and keep its file; False: there are no times. The other parts go on."""
    try:
        found = run_part(name, PARTS[name], options)
    except Exception as error:  # noqa: BLE001 - device time is dear: one part must not cost the others
        say(f"{name}: {type(error).__name__}: {error}")
        return False
    (options.output / f"{name}.json").write_text(json.dumps(found, indent=1))
    (options.output / f"{name}.rows.json").write_text(json.dumps(found["rows"], indent=1))
    return bool(found["rows"])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for the files")
    parser.add_argument("--parts", type=_parts, default=list(PARTS), help=f"some of {','.join(PARTS)}, or none")
    parser.add_argument("--limit", type=_limit, action="append", default=[], metavar="PART=SECONDS")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="two small shapes per part, to try the script")
    options = parser.parse_args()
    options.limit = dict(options.limit)
    return options


def _parts(text: str) -> list[str]:
    names = [] if text == "none" else text.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        raise argparse.ArgumentTypeError(f"no part {', '.join(unknown)}. Known: {', '.join(PARTS)}, or none")
    return names


def _limit(text: str) -> tuple[str, int]:
    name, _, seconds = text.partition("=")
    if name not in PARTS or not seconds.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not PART=SECONDS, with a part of {', '.join(PARTS)}")
    return name, int(seconds)


if __name__ == "__main__":
    sys.exit(main())
