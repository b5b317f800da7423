"""Selects the benchmark pairs that `--targets` means: a chapter (folder), `chapter:example`, or wildcards of these."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torchstone.errors import UsageError
from torchstone.harness.discovery import Pair

_NEAREST = 3


def select_pairs(pairs: Sequence[Pair], targets: Sequence[str] | None) -> tuple[Pair, ...]:
    """The pairs that at least one target means, in the order of `pairs`. A target that means none is an error."""
    if targets is None:
        return tuple(pairs)
    for target in targets:
        if not any(is_meant(pair, target) for pair in pairs):
            raise UsageError(_no_such_target(target, pairs))
    return tuple(pair for pair in pairs if any(is_meant(pair, target) for target in targets))


def is_meant(pair: Pair, target: str) -> bool:
    """Whether a target selects the pair.

    Targets are `ch13`, `ch13:moe`, `ch*:moe*`, `:moe`, or the name of a pair in reports: `ch13/moe_sparse`.
    """
    chapter, colon, example = target.removeprefix("./").rstrip("/").partition(":")
    if not colon and fnmatchcase(pair.name, chapter):
        return True
    return _matches_chapter(pair.chapter, chapter or "*") and _matches_example(pair, example or "*")


def _matches_chapter(chapter: str, pattern: str) -> bool:
    """Whether the path, or consecutive folders in it, match: `ch13` selects `code/ch13`, `labs` selects `labs/moe`."""
    parts = chapter.split("/")
    spans = ("/".join(parts[first:last]) for first in range(len(parts)) for last in range(first + 1, len(parts) + 1))
    return any(fnmatchcase(span, pattern) for span in spans)


def _matches_example(pair: Pair, pattern: str) -> bool:
    """Whether the pattern matches the example (all of its variants) or the full name of this variant."""
    return any(fnmatchcase(name, pattern) for name in (pair.example, pair.short_name))


def _no_such_target(target: str, pairs: Sequence[Pair]) -> str:
    known = dict.fromkeys(name for pair in pairs for name in (pair.chapter, f"{pair.chapter}:{pair.short_name}"))
    near = difflib.get_close_matches(target, known, n=_NEAREST, cutoff=0.5)
    near = near or [name for name in known if target in name][:_NEAREST]
    hint = f" Nearest: {', '.join(near)}." if near else ""
    return f"target '{target}' matches no pair.{hint} 'torchstone pairs list' shows all {len(pairs)}."
