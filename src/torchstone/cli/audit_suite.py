"""``torchstone audit-suite``: do the cases of a suite tell wrong kernels from right ones?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.parameters import case_options, split_commas

if TYPE_CHECKING:
    from torchstone.judging.audit import Audit


@click.command("audit-suite", short_help="Run trivial adversaries against every case of a suite.")
@click.argument("suite")
@click.option("--ops", multiple=True, metavar="NAMES", help="Operators, comma separated: add,aten.relu.default.")
@click.option("--dtype", "dtypes", multiple=True, metavar="NAMES", help="float32,bf16 …; the suite's choice otherwise.")
@case_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def audit_suite(suite: str, ops: tuple[str, ...], dtypes: tuple[str, ...], as_json: bool, **chosen: Any) -> int:
    """Run trivial adversaries (constants, inputs, stale answers, missing parts, lower precision) against every case.

    Exit code 0: each fails on every case, or the case says why it need not. 1: some case tells nothing.
    """
    import torch

    from torchstone import registry
    from torchstone.judging.audit import audit
    from torchstone.runs import canonical_dtypes
    from torchstone.schema import encode
    from torchstone.suites import CaseQuery, select_cases

    names = split_commas(dtypes)
    query = CaseQuery(split_commas(ops), None if names is None else canonical_dtypes(names), **chosen)
    found = audit(select_cases(suite, registry.suites.factory(suite)(), query), torch.device("cpu"))
    if as_json:
        click.echo(encode(found).decode())
    else:
        _tell(found)
    return 1 if found.unexcused else 0


def _tell(found: Audit) -> None:
    for finding in found.findings:
        verdict = f"excused: {finding.excuse}" if finding.excuse else "NOT TOLD APART"
        click.echo(f"{finding.operator}({finding.case})\t{', '.join(finding.adversaries)}\t{verdict}")
    for case, reason in found.unjudged.items():
        click.echo(f"{case}\tnot judged: {reason}")
    excused = len(found.findings) - len(found.unexcused)
    click.echo(
        f"{found.cases} cases, {found.judgements} adversaries judged: {len(found.unexcused)} cases are passed by one, "
        f"{excused} more are excused, {len(found.unjudged)} cannot be judged"
    )
