"""Plans a run over benchmark pairs: a request for each pair that the journal has no result of.

The journal is the file of a run's results. Its record kind is defined here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from torchstone.harness.discovery import Discovery, Pair, Problem
from torchstone.harness.pair_runner import PairOrder
from torchstone.harness.request import PairsRequest
from torchstone.harness.results import PairRecord
from torchstone.runs.journal import RecordKind

PAIR_FOLDERS = "pairs"
"""The folder of a run that holds a folder for each pair."""

PAIR_RECORDS = RecordKind(
    name="pair",
    type=PairRecord,
    key=lambda record: record.key,
    tried_again=lambda record: bool(record.harness_error),
)
"""The journal of a run over pairs. A failed pair is a result and is kept; a failure of the harness is tried again."""


class PlannedPair(msgspec.Struct, frozen=True, kw_only=True):
    """A pair that is planned for the run: the fields that name it in a report."""

    key: str
    name: str
    """`ch13/moe_sparse`."""
    chapter: str
    example: str
    baseline_path: str
    """Relative to the root."""
    optimized_path: str


class PairsPlan(msgspec.Struct, frozen=True):
    """Every pair of a run, whether still to be run or in the journal already."""

    pairs: tuple[Pair, ...]
    """Still to be run."""
    orders: tuple[PairOrder, ...]
    """Orders for `pairs`, in the same sequence."""
    done: tuple[PairRecord, ...]
    """Records that the journal holds already."""
    planned: tuple[PlannedPair, ...]
    """All pairs of the run, in the order of discovery."""
    problems: tuple[Problem, ...] = ()
    """Files that are in no pair, or that have an error."""

    @property
    def total(self) -> int:
        return len(self.planned)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(pair.key for pair in self.planned)


def make_plan(
    chosen: Sequence[Pair],
    found: Discovery,
    request: PairsRequest,
    *,
    device: str,
    seed: int,
    folder: Path,
    held: Iterable[PairRecord] = (),
) -> PairsPlan:
    """Plan orders for the chosen pairs without a valid record in `held`."""
    kept = {record.key: record for record in held if not PAIR_RECORDS.tried_again(record)}
    left = tuple(pair for pair in chosen if pair.key not in kept)
    return PairsPlan(
        pairs=left,
        orders=tuple(_order(pair, request, device, seed, folder) for pair in left),
        done=tuple(kept[pair.key] for pair in chosen if pair.key in kept),
        planned=tuple(_planned(pair, found.root) for pair in chosen),
        problems=found.problems,
    )


def _order(pair: Pair, request: PairsRequest, device: str, seed: int, folder: Path) -> PairOrder:
    return PairOrder(
        name=pair.name,
        root=pair.import_root,
        baseline=pair.baseline,
        optimized=pair.optimized,
        device=device,
        seed=seed,
        config=request.config,
        overrides=request.overrides,
        regression_threshold_pct=request.regression_threshold_pct,
        artifacts=folder.absolute() / PAIR_FOLDERS / _folder_name(pair.chapter) / pair.short_name,
    )


def _folder_name(chapter: str) -> str:
    """Folder of a chapter: `labs+moe` for `labs/moe`. A subfolder could collide with a pair named `labs/moe`."""
    return chapter.replace("+", "++").replace("/", "+")


def _planned(pair: Pair, root: Path) -> PlannedPair:
    return PlannedPair(
        key=pair.key,
        name=pair.name,
        chapter=pair.chapter,
        example=pair.example,
        baseline_path=pair.baseline.relative_to(root).as_posix(),
        optimized_path=pair.optimized.relative_to(root).as_posix(),
    )
