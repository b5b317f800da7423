"""``python -m torchstone.kernels.resources``: registers and spills of every built-in kernel, without a GPU.

One table for Triton and, where its compiler is installed, for CUDA C++. Exit code 1: some kernel spills.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from torchstone.errors import UsageError
from torchstone.kernels.catalogue import LANGUAGES, what_is_missing

Row = tuple[str, str, int, int]
"""Kernel, architecture, registers of a thread, spilled bytes of a thread."""
_HEADINGS = ("kernel", "architecture", "registers", "spill bytes")


def main(arguments: list[str] | None = None) -> int:
    """Print the table. A language that cannot be compiled here is a line on stderr."""
    parser = argparse.ArgumentParser(prog="python -m torchstone.kernels.resources", description=__doc__)
    parser.add_argument("--impl", choices=LANGUAGES, help="one language; both otherwise")
    parser.add_argument(
        "--architecture", type=int, action="append", metavar="NUMBER", help="of Triton's; 80, 90 and 100 otherwise"
    )
    given = parser.parse_args(arguments)
    asked, architectures = given.impl, given.architecture
    rows: list[Row] = []
    for impl in LANGUAGES if asked is None else (asked,):
        try:
            rows += _triton_rows(architectures) if impl == "triton" else _cuda_rows()
        except UsageError as error:
            print(f"notice: {error}", file=sys.stderr)
    if not rows:
        return 2
    print(table(rows))
    spilling = sorted({row[0] for row in rows if row[3]})
    print(f"{len(rows)} compilations, {len(spilling)} spilling{': ' if spilling else ''}{', '.join(spilling)}")
    return 1 if spilling else 0


def table(rows: Iterable[Row]) -> str:
    """The rows as a Markdown table with even columns."""
    texts = [_HEADINGS, *(tuple(map(str, row)) for row in rows)]
    widths = [max(len(text[place]) for text in texts) for place in range(len(_HEADINGS))]
    lines = [f"| {' | '.join(item.ljust(width) for item, width in zip(row, widths, strict=True))} |" for row in texts]
    rule = f"|{'|'.join('-' * (width + 2) for width in widths)}|"
    return "\n".join((lines[0], rule, *lines[1:]))


def _triton_rows(architectures: list[int] | None) -> list[Row]:
    missing = what_is_missing("triton")
    if missing is not None:
        raise UsageError(f"implementation 'triton': {missing}")
    from torchstone.kernels.triton_resources import ARCHITECTURES, triton_resources

    return [(f"triton {row.kernel}", *row[1:]) for row in triton_resources(architectures or ARCHITECTURES)]


def _cuda_rows() -> list[Row]:
    missing = what_is_missing("cuda")
    if missing is not None:
        raise UsageError(f"implementation 'cuda': {missing}")
    from torchstone.kernels import cuda_resources

    return [(f"cuda {row.kernel}", *row[1:]) for row in cuda_resources.resources()]


if __name__ == "__main__":
    sys.exit(main())
