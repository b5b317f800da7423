"""``torchstone pairs run``: runs every pair of benchmark files under a folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.parameters import NumberRange, split_commas

if TYPE_CHECKING:
    from torchstone.benchmarks import BenchmarkConfig
    from torchstone.harness.request import PairsRequest
    from torchstone.harness.results import PairRecord
    from torchstone.harness.run import PairsResult

_POSITIVE = NumberRange(min=0, min_open=True)


def _duration(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Callback of an option: ``4h`` -> seconds."""
    from torchstone.harness.request import duration_seconds

    try:
        return duration_seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


@click.command(short_help="Run every pair, and keep every result in a run folder.")
@click.argument("root", type=click.Path(path_type=Path), default=".")
@click.option("--targets", multiple=True, metavar="NAMES", help="Only these: ch13, ch13:moe, 'ch*:moe*'.")
@click.option("--reproducible", is_flag=True, help="Seed 42 and deterministic algorithms.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Seed of both sides; default: random.")
@click.option("--deterministic", is_flag=True, help="Deterministic algorithms; operators without one raise.")
@click.option("--timeout-multiplier", type=_POSITIVE, metavar="X", help="Multiplies the limit of every stage.")
@click.option("--cold-start", is_flag=True, help="Free caches and reset the device's state before each side.")
@click.option("--no-profile", is_flag=True, help="Time only: no torch profiler, no nsys, no ncu.")
@click.option("--iterations", type=click.IntRange(min=1), metavar="N", help="Timed calls of each side.")
@click.option("--warmup", type=click.IntRange(min=0), metavar="N", help="Calls before the timed ones.")
@click.option(
    "--timer",
    "--mode",
    "timer",
    type=click.Choice(["custom", "triton", "pytorch"]),
    help="CUDA events or perf_counter; triton.testing.do_bench; torch.utils.benchmark.Timer.",
)
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Pairs that run at once.")
@click.option(
    "--suite-timeout", default="4h", show_default=True, callback=_duration, help="No pair begins after this time."
)
@click.option(
    "--regression-threshold",
    type=NumberRange(min=0),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="Slower by more than this is a regression.",
)
@click.option("--run-id", help="Name of the run's folder; default: from the time.")
@click.option("--resume", is_flag=True, help="Continue the run of that id, with its options; its results are kept.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--output-dir", type=click.Path(path_type=Path), default=Path("artifacts"), show_default=True)
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="CPU threads of each side, on a CPU.")
@click.option("--quiet", is_flag=True, help="No progress and no tables, only the closing line.")
def run(**given: Any) -> int:
    """Run every baseline_NAME.py under ROOT against its optimized_NAME*.py files, one after the other or with --jobs.

    Options that set how benchmarks run win over a benchmark's own configuration; those left out leave it as it is.
    """
    from torchstone.cli.progress import Counting, watching_any
    from torchstone.harness.run import run_pairs

    counting: Counting[PairRecord] = Counting(
        "pair", "run", "running", lambda record: record.status, _counts_text, lambda record: record.name
    )
    with watching_any(sys.stderr, given["quiet"], counting) as observer:
        result = run_pairs(_request(given), observer)
    code = _exit_code(result)
    _print_result(result, code, as_json=given["as_json"], quiet=given["quiet"])
    return code


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {status}" for status, count in counts.items()) or "none yet"


def _request(given: Mapping[str, Any]) -> PairsRequest:
    from torchstone.harness.request import PairsRequest

    fields = dict(
        targets=split_commas(given["targets"]),
        overrides=_overrides(given),
        regression_threshold_pct=given["regression_threshold"],
        suite_timeout_seconds=given["suite_timeout"],
        latest=Path(),
        **{name: given[name] for name in ("root", "device", "jobs", "run_id", "resume", "output_dir")},
    )
    return PairsRequest(**(_with_remembered(fields) if given["resume"] else fields))


def _with_remembered(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields with options that are given now take precedence over those of the resumed run, and these over defaults."""
    from torchstone.cli.earlier_runs import merged
    from torchstone.harness.request import overlaid, remembered
    from torchstone.runs.folder import MANIFEST, read_manifest

    folder = fields["output_dir"] / str(fields["run_id"])
    if not (folder / MANIFEST).exists():
        return fields
    earlier = remembered(read_manifest(folder).configuration)
    return {**merged(fields, earlier), "overrides": overlaid(earlier["overrides"], fields["overrides"])}


def _overrides(given: Mapping[str, Any]) -> BenchmarkConfig:
    """The settings with a given option. They take precedence over a benchmark's own; None leaves the benchmark's."""
    from torchstone.benchmarks import BenchmarkConfig, BenchmarkMode
    from torchstone.harness.request import REPRODUCIBLE_SEED

    reproducible = given["reproducible"]
    seed = given["seed"] if given["seed"] is not None or not reproducible else REPRODUCIBLE_SEED
    return BenchmarkConfig(
        seed=seed,
        deterministic=True if reproducible or given["deterministic"] else None,
        enable_cleanup=True if given["cold_start"] else None,
        enable_profiling=False if given["no_profile"] else None,
        mode=None if given["timer"] is None else BenchmarkMode(given["timer"]),
        **{name: given[name] for name in ("timeout_multiplier", "iterations", "warmup", "threads")},
    )


def _exit_code(result: PairsResult) -> int:
    from torchstone.cli import INTERRUPTED
    from torchstone.errors import InfrastructureError

    if result.interrupted:
        return INTERRUPTED
    if result.report.summary.harness_errors:
        return InfrastructureError.exit_code
    return 0 if result.report.summary.is_fine else 1


def _print_result(result: PairsResult, code: int, *, as_json: bool, quiet: bool) -> None:
    from torchstone.cli.pairs_show import print_json, print_report
    from torchstone.harness.run import how_to_go_on

    if as_json:
        print_json(result.report, result.folder, interrupted=result.interrupted, exit_code=code)
    else:
        print_report(result.report, result.folder, quiet=quiet)
    if result.interrupted:
        click.echo(f"interrupted. {how_to_go_on(result.folder)}", err=True)
