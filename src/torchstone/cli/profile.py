"""``torchstone profile``: shows where a kernel's time goes, by torch's profiler, ncu or nsys. Not a measurement."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.parameters import NumberRange, split_commas

if TYPE_CHECKING:
    from torchstone.profiling import Profiled, ProfileRequest
    from torchstone.schema import Profile

_FIELDS_NAMED_AS_OPTIONS = (
    "kernel",
    "suite",
    "backend",
    "kernels_dir",
    "operator",
    "entry",
    "case",
    "device",
    "calls",
    "threads",
)


@click.command(short_help="Show where a kernel's time goes: torch's profiler, ncu, nsys.")
@click.argument("kernel")
@click.option("--with", "profilers", multiple=True, metavar="NAMES", help="torch,ncu,nsys; default: torch.")
@click.option("--suite", default="smoke", show_default=True, help="Where the case comes from.")
@click.option("--backend", help="Where the kernel comes from; default: directory with --kernels-dir, else aten.")
@click.option("--kernels-dir", type=click.Path(path_type=Path), help="Folder of kernels, for backends that read one.")
@click.option("--operator", metavar="NAME", help="Operator that a kernel file computes; default: from its name.")
@click.option("--entry", metavar="NAME", help="Function of a kernel file; default: found by its name.")
@click.option("--case", metavar="TEXT", help="Key or label, or a part of either; default: the largest timed case.")
@click.option("--dtype", "dtypes", multiple=True, metavar="NAMES", help="float32,bf16 …; default: the suite's choice.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--calls", type=click.IntRange(min=1, max=10_000), default=5, show_default=True, help="Calls to profile.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="CPU threads of the kernel.")
@click.option("--isolation", type=click.Choice(["strict", "best", "none"]), default="best", show_default=True)
@click.option(
    "--timeout",
    type=NumberRange(min=0, min_open=True, max=86_400),
    default=180.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit of each profiler.",
)
@click.option("--output-dir", type=click.Path(path_type=Path), default=Path("torchstone_profiles"), show_default=True)
@click.option(
    "--allow-unsandboxed-profilers",
    is_flag=True,
    help="Use ncu and nsys also on a kernel in a run of 'torchstone generate', which a model wrote.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def profile(**given: Any) -> int:
    """Run a kernel on one case under profilers and keep their reports in a folder. Times in it are no measurements.

    KERNEL is a kernel file, a folder of kernels, or an operator's name.
    Exit code 0: a profiler has profiled it. 1: the kernel failed under all that ran. 3: none could be used.
    """
    from torchstone.profiling import profile as make_profile

    if given["isolation"] == "none":
        _print_notice(
            "--isolation none: the kernel runs with your rights on this machine. Profile only code you trust."
        )
    made = make_profile(_request(given), _print_notice)
    code = exit_code(made.profile)
    _print_result(made, code, given["as_json"])
    return code


def _request(given: dict[str, Any]) -> ProfileRequest:
    from torchstone.profiling import ProfileRequest

    return ProfileRequest(
        profilers=split_commas(given["profilers"]) or ("torch",),
        dtypes=split_commas(given["dtypes"]),
        seconds=given["timeout"],
        isolation=given["isolation"],
        output_dir=given["output_dir"],
        only_sandboxed=not given["allow_unsandboxed_profilers"] and _is_generated(given),
        **{name: given[name] for name in _FIELDS_NAMED_AS_OPTIONS},
    )


def _is_generated(given: dict[str, Any]) -> bool:
    """Whether the kernel lies in a run folder of `torchstone generate`: a model wrote it, unread by people perhaps."""
    from torchstone.schema.generation import GENERATION

    paths = (Path(given["kernel"]), given["kernels_dir"])
    found = (Path(path).absolute() for path in paths if path is not None)
    return any((folder / GENERATION).exists() for path in found for folder in (path, *path.parents))


def exit_code(profile: Profile) -> int:
    """0 if any profiler worked, else 1 if the kernel failed under one, else 3: no profiler could be used."""
    statuses = {result.status for result in profile.results}
    if "profiled" in statuses:
        return 0
    return 1 if "failed" in statuses else 3


def _print_notice(message: str) -> None:
    from torchstone.reports.safe_text import one_line

    click.echo(f"notice: {one_line(message, limit=1000)}", err=True)


def _print_result(made: Profiled, code: int, as_json: bool) -> None:
    if as_json:
        from torchstone.schema import encode

        content = {"profile_folder": str(made.folder), "exit_code": code, "profile": made.profile}
        click.echo(encode(content).decode())
        return
    from torchstone.profiling.render import render
    from torchstone.reports.console import make_console

    render(made.profile, made.folder, make_console(sys.stdout))
