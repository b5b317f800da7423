# squares.py
from collections.abc import Iterator

from torchstone.backends import BackendOptions
from torchstone.schema import Case, Implementation, Normal, SourceFile, SourceFiles, Tensor
from torchstone.suites import CaseQuery, selects

SQUARE = "aten.square.default"
SOURCE = """
def square(x):
    return x * x
"""


class SquaresSuite:
    """A small case to check and a larger one to time."""

    def cases(self, query: CaseQuery) -> Iterator[Case]:
        if not selects(query, SQUARE):
            return
        for dtype in query.dtypes or ("float32", "bfloat16"):
            yield Case("squares", SQUARE, (Tensor((7, 13), dtype, Normal()),), tags=("odd",))
            yield Case("squares", SQUARE, (Tensor((512, 512), dtype, Normal()),), timed=True)


class ProductBackend:
    """Squares by multiplication."""

    def __init__(self, options: BackendOptions) -> None:
        del options  # a backend takes what it needs: kernels_dir, device_type

    def implementation(self, operator: str) -> Implementation | None:
        if operator != SQUARE:
            return None
        source = SourceFiles((SourceFile("square.py", SOURCE),), entry="square", label="squares.py")
        return Implementation("product", operator, source)
