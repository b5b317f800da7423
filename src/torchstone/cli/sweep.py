"""``torchstone sweep``: times operations in several implementations over a grid of sizes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.lazy import LazyGroup
from torchstone.cli.option_groups import GroupedCommand, option
from torchstone.cli.parameters import split_commas

if TYPE_CHECKING:
    from torchstone.schema.sweep import SweepRecord
    from torchstone.sweeps.request import SweepRequest
    from torchstone.sweeps.run import SweepResult

SWEEP_COMMANDS = {
    "plot": ("torchstone.cli.sweep_plot:plot", "Draw the results of a sweep: trends, speedups, heat map, roofline."),
}
"""Name -> import path of the command, and its line in the help."""

_WHAT, _GRID, _WHERE, _PROFILES, _OUTPUT = GROUPS = ("What to measure", "Grid", "Where", "Profiles", "Output")


class _SweepGroup(GroupedCommand, LazyGroup):
    """A command group that shows its own options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def _axis(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Callback of an option: ``256:2048:x2`` -> sizes."""
    from torchstone.sweeps.axes import parse_axis

    return None if value is None else parse_axis(parameter.opts[0], value)


@click.group(
    cls=_SweepGroup,
    groups=GROUPS,
    commands_at=SWEEP_COMMANDS,
    invoke_without_command=True,
    short_help="Time operations in several implementations over a grid of sizes.",
)
@option(
    "--operations",
    "--ops",
    "operations",
    group=_WHAT,
    multiple=True,
    metavar="NAMES",
    show_default="layer_norm,gelu,swish,loss",
    help="layer_norm, gelu, swish, mse, cross_entropy, loss (the last two), or a file that defines one: my_op.py.",
)
@option(
    "--impl",
    "implementations",
    group=_WHAT,
    multiple=True,
    metavar="NAMES",
    show_default="pytorch,cuda,triton",
    help="pytorch, compile, cuda, triton, liger; one that is missing here is left out with a notice.",
)
@option("--dtype", group=_WHAT, default="float32", show_default=True, help="float32, float16 or bfloat16 (bf16).")
@option(
    "--mode",
    group=_WHAT,
    type=click.Choice(["fwd", "bwd", "fwd+bwd"]),
    default="fwd",
    show_default=True,
    help="Time the forward pass, the backward pass, or both together.",
)
@option(
    "--no-judge",
    group=_WHAT,
    is_flag=True,
    help="Do not judge at the corners of the grid; results are still compared at every point.",
)
@option("--seed", group=_WHAT, type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the inputs.")
@option(
    "--batch",
    "batch_sizes",
    group=_GRID,
    callback=_axis,
    metavar="AXIS",
    show_default="16:128:x2",
    help="Batch sizes: 16,32 or a range, 16:128:x2 or 16:128:16.",
)
@option(
    "--seq",
    "sequence_lengths",
    group=_GRID,
    callback=_axis,
    metavar="AXIS",
    show_default="256:2048:x2",
    help="Sequence lengths.",
)
@option(
    "--dim",
    "tensor_dimensions",
    group=_GRID,
    callback=_axis,
    metavar="AXIS",
    show_default="8:512:x2",
    help="Sizes of the last dimension; of cross-entropy, classes.",
)
@option(
    "--profile",
    "profilers",
    group=_PROFILES,
    multiple=True,
    metavar="NAMES",
    help="torch, ncu, nsys: profile after timing, into NAME.profiles/.",
)
@option(
    "--profile-all",
    group=_PROFILES,
    is_flag=True,
    help="ncu and nsys see every point; otherwise the largest of each operation and implementation.",
)
@option("--device", group=_WHERE, default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@option(
    "--threads",
    group=_WHERE,
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="CPU threads.",
)
@option(
    "--output",
    group=_OUTPUT,
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("benchmark_results.json"),
    show_default=True,
    metavar="FILE",
    help="The list of rows; points that were not timed are listed in NAME.skipped.json.",
)
@option(
    "--resume", group=_OUTPUT, is_flag=True, help="Go on with the sweep of FILE, with its options; its points are kept."
)
@option("--overwrite", group=_OUTPUT, is_flag=True, help="Replace the results that FILE has; without it they are kept.")
@option("--wide", group=_OUTPUT, is_flag=True, help="Tables of every point, not of means.")
@option("--json", "as_json", group=_OUTPUT, is_flag=True, help="One JSON object on stdout, nothing else.")
@option("--quiet", group=_OUTPUT, is_flag=True, help="No progress and no tables, only the closing line.")
@click.pass_context
def sweep(context: click.Context, /, **given: Any) -> int:
    """Time LayerNorm, GELU, Swish and losses in PyTorch, CUDA and Triton over a grid of sizes.

    Every implementation is checked before it is timed; a wrong one gets no time. The plain command runs a sweep.
    """
    if context.invoked_subcommand is not None:
        return 0
    from torchstone.cli.progress import Counting, watching_any
    from torchstone.sweeps.run import run_sweep

    counting: Counting[SweepRecord] = Counting("point", "measured", "measuring", _status, _counts_text, _point_line)
    request = _request(given)
    with watching_any(sys.stderr, given["quiet"], counting) as observer:
        result = run_sweep(request, observer)
    code = _exit_code(result)
    _print_result(result, code, as_json=given["as_json"], quiet=given["quiet"], wide=given["wide"])
    return code


def _request(given: Mapping[str, Any]) -> SweepRequest:
    from torchstone.sweeps.request import make_request

    same = (
        "batch_sizes",
        "sequence_lengths",
        "tensor_dimensions",
        "dtype",
        "mode",
        "output",
        "resume",
        "overwrite",
        "device",
    )
    fields = dict(
        operations=split_commas(given["operations"]),
        implementations=split_commas(given["implementations"]),
        judged=not given["no_judge"],
        profilers=split_commas(given["profilers"]),
        **{name: given[name] for name in (*same, "threads", "seed", "profile_all")},
    )
    return make_request(**(_with_remembered(fields) if given["resume"] else fields))


def _with_remembered(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields with options that are given now take precedence over the resumed sweep's, and these over defaults."""
    from torchstone.cli.earlier_runs import merged
    from torchstone.runs.folder import MANIFEST, read_manifest
    from torchstone.sweeps.output import journal_path
    from torchstone.sweeps.request import remembered

    folder = journal_path(fields["output"])
    if not (folder / MANIFEST).exists():
        return fields
    return merged(fields, remembered(read_manifest(folder).configuration))


def _status(record: SweepRecord) -> str:
    from torchstone.sweeps.rows import is_failure

    if any(is_failure(skip.reason) for skip in record.skips):
        return "with failures"
    return "timed" if record.timings else "skipped"


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {status}" for status, count in counts.items()) or "none yet"


def _point_line(record: SweepRecord) -> str:
    point = record.point
    return f"{point.operation} {point.batch_size}x{point.sequence_length}x{point.tensor_dimension}"


def _print_profiles(result: SweepResult) -> None:
    """Print torch's table of operators, the kernels that other profilers saw, and the paths of the files."""
    from torchstone.profiling.render import kernel_table
    from torchstone.reports.console import make_console, print_table
    from torchstone.sweeps.profile_request import TABLE
    from torchstone.sweeps.profile_sweep import profiles_path

    folder = profiles_path(result.output)
    for profile in result.profiles:
        if TABLE in profile.files:
            click.echo((folder / TABLE).read_text())
        if profile.kernels:
            console = make_console(sys.stdout)
            print_table(console, kernel_table(profile, 1, console))
        for file in profile.files:
            click.echo(f"{profile.profiler}: {folder / file}")


def _exit_code(result: SweepResult) -> int:
    """The exit code: 1 if an implementation failed or nothing was timed. Points that were skipped do not count."""
    from torchstone.cli import INTERRUPTED

    if result.interrupted:
        return INTERRUPTED
    return 1 if result.has_failures or not result.rows else 0


def _print_result(result: SweepResult, code: int, *, as_json: bool, quiet: bool, wide: bool) -> None:
    from torchstone.reports.console import make_console
    from torchstone.schema import encode
    from torchstone.sweeps.tables import print_sweep

    rows, skipped = result.rows, result.skipped
    if as_json:
        told = {"output": str(result.output), "interrupted": result.interrupted, "exit_code": code}
        click.echo(encode({**told, "rows": rows, "skipped": skipped, "profiles": result.profiles}).decode())
    else:
        if not quiet:
            print_sweep(make_console(sys.stdout), result.rows, result.skipped, every_point=wide)
            _print_profiles(result)
        beside = f", {len(skipped)} not timed (reasons in {result.skipped_output})" if skipped else ""
        click.echo(f"{len(rows)} rows in {result.output}{beside}")
    if result.interrupted:
        click.echo(f"interrupted; go on with: {_resuming_command()}", err=True)


def _resuming_command() -> str:
    """The command line of this sweep with --resume, because a sweep is resumed with the same options."""
    words = click.get_current_context().obj or ("torchstone", "sweep")
    return shlex.join([*(word for word in words if word not in ("--overwrite", "--resume")), "--resume"])
