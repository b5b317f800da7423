"""``torchstone audit-suite``: find the cases of a suite that cannot tell a wrong kernel from a right one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.parameters import case_options, split_commas

if TYPE_CHECKING:
    from torchstone.judging.audit.adversaries import Audit


@click.command("audit-suite", short_help="Run trivial adversaries against every case of a suite.")
@click.argument("suite")
@click.option("--ops", multiple=True, metavar="NAMES", help="Operators, comma separated: add,aten.relu.default.")
@click.option("--dtype", "dtypes", multiple=True, metavar="NAMES", help="float32,bf16 …; default: the suite's choice.")
@case_options()
@click.option("--device", default="cpu", show_default=True, metavar="cpu|cuda", help="Where adversaries and torch run.")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of processes.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def audit_suite(
    suite: str,
    ops: tuple[str, ...],
    dtypes: tuple[str, ...],
    device: str,
    processes: int,
    as_json: bool,
    **chosen: Any,
) -> int:
    """Run trivial adversaries (constants, inputs, stale answers, missing parts, lower precision) against every case.

    Exit code 0: each fails on every case, or the case states why one may agree. 1: one agrees on a
    case without a reason.
    """
    import torch

    from torchstone import registry
    from torchstone.cli.progress import counting
    from torchstone.executors.devices import find_devices
    from torchstone.judging.audit.parallel_audit import audit_in_processes
    from torchstone.runs import canonical_dtypes
    from torchstone.schema import encode
    from torchstone.suites import CaseQuery, select_cases

    names = split_commas(dtypes)
    place = find_devices(device)[0]
    wanted = None if names is None else canonical_dtypes(names)
    query = CaseQuery(split_commas(ops), wanted, device_type=place.kind, **chosen)
    cases = list(select_cases(suite, registry.suites.factory(suite)(), query))
    with counting(sys.stderr, quiet=as_json, what="cases audited") as watch:
        found = audit_in_processes(cases, torch.device(place.label), processes, watch)
    if as_json:
        click.echo(encode(found).decode())
    else:
        _print_result(found)
    return 1 if found.unexcused else 0


def _print_result(found: Audit) -> None:
    for finding in found.findings:
        verdict = f"excused: {finding.excuse}" if finding.excuse else "INDISTINCT"
        click.echo(f"{finding.operator}({finding.case})\t{', '.join(finding.adversaries)}\t{verdict}")
    for case, reason in found.unjudged.items():
        click.echo(f"{case}\tnot judged: {reason}")
    excused = len(found.findings) - len(found.unexcused)
    click.echo(
        f"{found.cases} cases, {found.judgements} adversaries judged: one agrees on "
        f"{len(found.unexcused)} cases without a stated reason and on {excused} with one; "
        f"{len(found.unjudged)} cases could not be judged"
    )
