"""``torchstone replay``: repeats the calls of recorded failures, with the same values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from torchstone.runs.replay import Replayed

_FAILS_AGAIN, _AGREES, _NO_ANSWER = 1, 0, 3


@click.command(short_help="Repeat the calls of recorded failures, with the same values.")
@click.argument("path", type=click.Path(path_type=Path), metavar="RUN_FOLDER")
@click.option("--job", "job_key", metavar="KEY", help="Only this job: its key, or the beginning of it.")
@click.option("--operator", metavar="NAME", help="Only this operator; a base name means every overload.")
@click.option("--device", metavar="TEXT", help="cpu, cuda or cuda:N; default: where it happened.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.pt",
    help="Write arguments, result and expected result for torch.load; several failures: FILE-1.pt, FILE-2.pt.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def replay(
    path: Path, job_key: str | None, operator: str | None, device: str | None, save: Path | None, as_json: bool
) -> int:
    """Make the calls of recorded failures again, with the same values, and say whether they fail again."""
    from torchstone.cli.output import terminal_width
    from torchstone.runs import replay as replaying
    from torchstone.runs.earlier import named_run

    if job_key is not None and operator is not None:
        raise click.UsageError("give --job or --operator, not both.")
    path = named_run(path)
    found = replaying.find(path, job_key, operator)
    if isinstance(found, replaying.NothingFailed):
        _print_json([], _AGREES) if as_json else click.echo(str(found))
        return _AGREES
    order = {item.record.job_key: place for place, item in enumerate(found)}
    results = list(replaying.replay(found, device, replaying.threads_of(path), save))
    results.sort(key=lambda result: order[result.source.record.job_key])
    code = max((_code(result) for result in results), default=_AGREES)
    if as_json:
        _print_json(results, code)
    else:
        for result in results:
            click.echo(told(result, terminal_width()))
    return code


def _code(result: Replayed) -> int:
    from torchstone.schema import Agrees, Unjudged, Unsupported

    match result.verdict:
        case Agrees():
            return _AGREES
        case Unjudged() | Unsupported(by="reference" | "device"):
            return _NO_ANSWER
        case _:
            return _FAILS_AGAIN


def _print_json(results: list[Replayed], code: int) -> None:
    from torchstone.schema import encode

    click.echo(encode({"exit_code": code, "replays": [_as_data(result) for result in results]}).decode())


def _as_data(result: Replayed) -> dict[str, Any]:
    return {
        "job_key": result.source.record.job_key,
        "operator": result.source.record.case.operator,
        "reproduces": _code(result) == _FAILS_AGAIN,
        "recorded": result.source.record.verdict,
        "now": result.verdict,
        "saved": None if result.saved is None else str(result.saved),
    }


def told(result: Replayed, width: int | None = None) -> str:
    """A replay as text: the call, its verdict, the kernel's traceback and output, and where the values were saved."""
    from torchstone.reports.failure_text import hanging, kernels_own_lines
    from torchstone.reports.safe_text import one_line
    from torchstone.schema import Disagrees, explain, verdict_name

    source, verdict = result.source, result.verdict
    answer = {_FAILS_AGAIN: "fails again", _AGREES: "agrees now"}.get(_code(result), "no answer")
    call = f"{source.record.case.operator}({one_line(source.replay.case.label)})"
    job = f"  job {source.record.job_key}"
    fits = width is None or len(call + job) <= width
    lines = [call + job] if fits else [*hanging(call, "  ", width), job]
    lines += hanging(f"  {answer}: {verdict_name(verdict)}: {one_line(explain(verdict), limit=2000)}", "    ", width)
    if isinstance(verdict, Disagrees) and verdict.errors.smallest_wrong_error is not None:
        lines.append(
            f"  wrong elements differ by {verdict.errors.smallest_wrong_error:.6g} at least, "
            f"{verdict.errors.largest_wrong_error:.6g} at most"
        )
    lines += kernels_own_lines(verdict, result.log_tail)
    if result.saved is not None:
        lines.append(f"  saved: {result.saved}")
    return "\n".join(lines)
