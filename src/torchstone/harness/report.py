"""Makes the two report files of a run over benchmark pairs: `benchmark_test_results.json` and `.md`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from torchstone.harness.discovery import Problem
from torchstone.harness.markdown import report_page
from torchstone.harness.plan import PlannedPair
from torchstone.harness.results import PairRecord
from torchstone.harness.summary import PairsSummary, summarize, unreached
from torchstone.reports.safe_text import natural
from torchstone.schema import FORMAT_VERSION, Manifest, encode

JSON_FILE = "benchmark_test_results.json"
MARKDOWN_FILE = "benchmark_test_results.md"


class PairsReport(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """Content of `benchmark_test_results.json`."""

    run_id: str
    summary: PairsSummary
    pairs: tuple[PairRecord, ...]
    """Every record in full, in the order of chapters and names."""
    not_run: tuple[PlannedPair, ...]
    problems: tuple[Problem, ...]
    """Files that are in no pair, or that have an error."""
    manifest: Manifest
    format_version: int = FORMAT_VERSION

    @cached_property
    def files(self) -> dict[str, bytes]:
        """File name -> content."""
        page = report_page(self.run_id, self.summary, self.pairs, self.not_run, self.problems)
        return {JSON_FILE: msgspec.json.format(encode(self)) + b"\n", MARKDOWN_FILE: page.encode()}


def make_report(
    run_id: str,
    manifest: Manifest,
    records: Sequence[PairRecord],
    planned: Sequence[PlannedPair],
    problems: Sequence[Problem] = (),
) -> PairsReport:
    """Make the report of a run from its records."""
    ordered = sorted(records, key=lambda record: (natural(record.chapter), natural(record.name)))
    return PairsReport(
        run_id=run_id,
        summary=summarize(ordered, planned),
        pairs=tuple(ordered),
        not_run=unreached(ordered, planned),
        problems=tuple(problems),
        manifest=manifest,
    )
