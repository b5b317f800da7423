"""``torchstone fuzz``: search for the smallest case on which a kernel fails."""

from __future__ import annotations

import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.parameters import split_commas

if TYPE_CHECKING:
    from torchstone.runs.failure_search import SearchRequest, SmallestFailure
    from torchstone.schema import Case

_NONE_FOUND, _FOUND, _NOT_SEARCHED = 0, 1, 3
_SECONDS_BETWEEN_LINES = 5.0


@click.command(short_help="Search for the smallest case on which a kernel fails.")
@click.option("--backend", default="aten", show_default=True, help="Where the kernels come from.")
@click.option("--kernels-dir", type=click.Path(path_type=Path), help="Folder of kernels, for backends that read one.")
@click.option("--ops", multiple=True, metavar="NAMES", help="Operators, comma separated: add,aten.relu.default.")
@click.option("--examples", type=click.IntRange(min=1), default=200, show_default=True, help="Draws for each operator.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed draws other cases.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--dtype", "dtypes", multiple=True, metavar="NAMES", help="float32,bf16 …; default: several.")
@click.option("--effort", type=click.Choice(["quick", "normal", "thorough"]), default="quick", show_default=True)
@click.option("--isolation", type=click.Choice(["strict", "best", "none"]), default="best", show_default=True)
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="CPU threads of each side.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def fuzz(ops: tuple[str, ...], dtypes: tuple[str, ...], as_json: bool, **given: Any) -> int:
    """Search for a case on which a kernel fails, and shrink it to the smallest that does.

    Exit code 0: none was found. 1: some was, or a kernel refused cases that torch takes. 2: wrong usage. 3: an operator
    could not be searched.
    """
    from torchstone.runs.failure_search import SearchRequest, search
    from torchstone.schema import encode

    request = SearchRequest(operators=split_commas(ops), dtypes=split_commas(dtypes), **given)
    found: list[SmallestFailure] = []
    with _hypothesis_in_temporary_folder():
        for finding in search(request, Progress()):
            found.append(finding)
            if not as_json:
                _print_finding(finding, request)
    code = _exit_code(found)
    if as_json:
        findings = [_as_data(finding, request) for finding in found]
        click.echo(encode({"exit_code": code, "findings": findings}).decode())
    return code


def _exit_code(found: list[SmallestFailure]) -> int:
    """The exit code. An operator that could not be searched is not known to be right, so the code is not 0."""
    if any(finding.failure or finding.verdicts.get("unsupported") for finding in found):
        return _FOUND
    return _NOT_SEARCHED if any(finding.reason for finding in found) else _NONE_FOUND


@contextmanager
def _hypothesis_in_temporary_folder() -> Iterator[None]:
    """Give Hypothesis a temporary home folder. Otherwise it writes files into the current folder."""
    from torchstone.errors import MissingExtraError

    try:
        from hypothesis.configuration import set_hypothesis_home_dir
    except ImportError as error:
        raise MissingExtraError("the search needs hypothesis: pip install 'torchstone[fuzz]'.") from error
    with tempfile.TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            set_hypothesis_home_dir(None)


class Progress:
    """Prints the progress to stderr every few seconds, and when a kernel begins to fail."""

    def __init__(self) -> None:
        self._last_printed = time.monotonic()
        self._failing = ""

    def tried(self, operator: str, examples: int, of: int, failing: Case | None) -> None:
        if failing is not None and self._failing != operator:
            self._failing = operator
            self._print_line(f"{operator}: fails on {failing.label}; looking for a smaller case")
        elif time.monotonic() - self._last_printed >= _SECONDS_BETWEEN_LINES:
            doing = f"{examples} cases judged, shrinking" if failing is not None else f"{examples}/{of} cases judged"
            self._print_line(f"{operator}: {doing}")

    def _print_line(self, line: str) -> None:
        self._last_printed = time.monotonic()
        print(line, file=sys.stderr, flush=True)


def reproducing_line(case: Case, request: SearchRequest) -> str:
    """The command that judges the kernel on this case alone."""
    from torchstone.schema import encode

    words = ["torchstone", "run", "--case", encode(case).decode(), "--backend", request.backend]
    if request.kernels_dir is not None:
        words += ["--kernels-dir", str(request.kernels_dir)]
    for option, usual in {"effort": "normal", "device": "auto", "isolation": "best", "threads": 1}.items():
        if getattr(request, option) != usual:
            words += [f"--{option}", str(getattr(request, option))]
    return shlex.join(words)


def _print_finding(finding: SmallestFailure, request: SearchRequest) -> None:
    from torchstone.reports.safe_text import one_line
    from torchstone.schema import explain, verdict_name

    if finding.reason:
        click.echo(f"{finding.operator}: not searched: {finding.reason}")
        return
    judged = f"{finding.examples} cases judged, {finding.refused} draws refused by torch, {finding.seconds:.1f} s"
    if finding.failure is None:
        verdicts = ", ".join(f"{count} {name}" for name, count in sorted(finding.verdicts.items()))
        refused = finding.verdicts.get("unsupported", 0)
        found = f"REFUSES {refused} of {finding.examples} cases that torch takes" if refused else "no failure found"
        click.echo(f"{finding.operator}: {found} ({judged}; {verdicts or 'no verdict'})")
        return
    record = finding.failure.record
    click.echo(f"{finding.operator}: FAILS ({judged})")
    click.echo(f"  smallest case: {one_line(record.case.label, limit=500)}")
    click.echo(f"  {verdict_name(record.verdict)}: {one_line(explain(record.verdict), limit=500)}")
    click.echo(f"  failed in {finding.failure.failures} of {finding.failure.tries} tries; see it again:")
    click.echo(f"  {reproducing_line(record.case, request)}")


def _as_data(finding: SmallestFailure, request: SearchRequest) -> dict[str, Any]:
    import msgspec

    data = {name: getattr(finding, name) for name in finding.__struct_fields__ if name != "failure"}
    if finding.failure is None:
        return {**data, "failure": None}
    record = finding.failure.record
    told = {"case": record.case, "label": record.case.label, "verdict": record.verdict}
    counts = {"tries": finding.failure.tries, "failures": finding.failure.failures}
    return {**data, "failure": {**msgspec.to_builtins(told), **counts, "line": reproducing_line(record.case, request)}}
