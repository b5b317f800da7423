"""The smoke suite: every kind of operator once or twice, small enough to be judged in a minute on two cores.

Each operator is called empty, with one element, on strided or shifted memory and in several dtypes. Most are also
called on sizes where speed means something. The table below holds recipes, never values, and does not import torch. A
dtype written ``FLOAT`` stands for the floating-point dtypes of the row or of the request.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from torchstone.errors import UsageError, unknown_name
from torchstone.schema import (
    Argument,
    Booleans,
    Case,
    Fill,
    Integers,
    Normal,
    Scalar,
    Sequence,
    Tensor,
    Uniform,
    tensors_of,
)
from torchstone.suites.base import CaseQuery, SuiteSize, names_operator, selects, size_of

FLOATS = ("float64", "float32", "float16", "bfloat16")
EXACT = ("int64", "int32", "int16", "int8", "uint8", "bool")

FLOAT = "float"
"""Stands in a row for a floating-point dtype that is filled in later."""
F32, F16, BF16 = ("float32",), ("float16",), ("bfloat16",)
HALVES = F16 + BF16

SIGNED = Normal()
SPECIAL = Normal(specials=True)
"""With infinities, NaN, both zeros and subnormals: for operators whose answer to them is beyond doubt."""
POSITIVE = Uniform(0.125, 8.0)
"""For logarithms and divisors: well away from zero in every dtype."""
NEGATIVE = Uniform(-8.0, -0.125)


EXCUSES = {
    "empty": "there is no element to be wrong: structure, dtype and shape are what is judged",
    "one-element": "one element is its own mean, may be its input, and a flag or a zero is met by chance",
    "of-nothing": "a sum over nothing is zero, whatever the inputs are",
    "empty-part": "the other part is empty, so that a copy is the right answer",
}
"""Tags of cases that trivial adversaries may pass, and why: they are there for kernels that crash on them."""


class SmokeSuite:
    """Every kind of operator once or twice, small enough for a minute on two cores."""

    def cases(self, query: CaseQuery) -> tuple[Case, ...]:
        """The cases that fit the query, grouped by operator.

        Requested floating-point dtypes replace those of the table; cases without floating-point tensors stay as
        they are. A request for integer or bool dtypes alone keeps the cases that use one of them and no float.
        """
        _require_known_operators(query)
        dtypes = _require_known_dtypes(query)
        found = tuple(case for line in TABLE if selects(query, line.case.operator) for case in line.cases(dtypes))
        if dtypes is not None and not found:
            wanted = ", ".join(query.operators) if query.operators else "any operator"
            raise UsageError(
                f"suite 'smoke' has no {', '.join(dtypes)} case of {wanted}. "
                f"Ask for a floating-point dtype ({', '.join(FLOATS)}) or leave the dtype out."
            )
        return found

    def known_size(self, query: CaseQuery) -> SuiteSize:
        """How many operators and cases the query has: the table says it."""
        return size_of(case.operator for case in self.cases(query))

    def operators(self, query: CaseQuery) -> tuple[str, ...]:
        """Every operator of the table, whatever the query."""
        del query
        return tuple(dict.fromkeys(line.case.operator for line in TABLE))


class Row(msgspec.Struct, frozen=True):
    """One line of the table: a case whose ``FLOAT`` tensors take each of the dtypes in turn."""

    case: Case
    floats: tuple[str, ...]

    def cases(self, requested: tuple[str, ...] | None) -> Iterator[Case]:
        used = {tensor.dtype for tensor in tensors_of(self.case)}
        if FLOAT in used:
            floats = self.floats if requested is None else tuple(name for name in requested if name in FLOATS)
            yield from (_with_float(self.case, dtype) for dtype in floats)
        elif requested is None or not used.isdisjoint(requested) or not set(FLOATS).isdisjoint(requested):
            yield self.case


def _table() -> Iterator[Row]:
    yield from _unary("relu")
    yield from _unary("log", POSITIVE)
    yield from _gelu()
    yield from _add()
    yield from _binary("mul.Tensor", timed=False)
    yield from _binary("div.Tensor", right=POSITIVE, left_of_zero=NEGATIVE)
    yield from _reduction("sum.dim_IntList")
    yield from _only_sum()
    yield from _reduction("mean.dim", timed=False)
    yield from _reduction("amax")
    yield from _max_dim()
    yield from _matmul()
    yield from _softmax()
    yield from _layer_norm()
    yield from _in_place()
    yield from _integer()
    yield from _boolean()
    yield from _indexing()
    yield from _concatenation()
    yield from _view()


# ---- the words of the table


Plain = Tensor | list[Tensor] | list[int] | bool | int | float | str | None
"""An argument as the table writes it."""


class Operator:
    """Makes the rows of one operator; ``relu`` is short for ``aten.relu.default``, tags are words in one string."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = f"aten.{name}" if "." in name else f"aten.{name}.default"
        self.kind = kind

    def __call__(
        self, *args: Plain, tags: str = "", floats: tuple[str, ...] = F32, timed: bool = False, **kwargs: Plain
    ) -> Row:
        positional = tuple(_argument(item) for item in args)
        named = {name: _argument(item) for name, item in kwargs.items()}
        words = f"{self.kind} {tags} speed" if timed else f"{self.kind} {tags}"
        excuse = next((EXCUSES[word] for word in words.split() if word in EXCUSES), "")
        return Row(Case("smoke", self.name, positional, named, tuple(words.split()), timed, indistinct=excuse), floats)


def _argument(item: Plain) -> Argument:
    if isinstance(item, Tensor):
        return item
    if isinstance(item, list):
        return Sequence(tuple(_argument(part) for part in item))
    return Scalar(item)


def real(*shape: int, fill: Fill = SIGNED) -> Tensor:
    """A floating-point tensor."""
    return Tensor(shape, FLOAT, fill)


def whole(*shape: int, dtype: str = "int32", low: int = -100, high: int = 100) -> Tensor:
    """An integer tensor."""
    return Tensor(shape, dtype, Integers(low, high))


def index(*shape: int, below: int, dtype: str = "int64") -> Tensor:
    """Valid indices into a dimension of the given size."""
    return whole(*shape, dtype=dtype, low=0, high=below)


def mask(*shape: int) -> Tensor:
    """A bool tensor."""
    return Tensor(shape, "bool", Booleans())


def strided(tensor: Tensor, strides: tuple[int, ...], offset: int = 0) -> Tensor:
    """The same tensor on other memory."""
    return msgspec.structs.replace(tensor, strides=strides, offset=offset)


# ---- the kinds of operators


def _unary(name: str, fill: Fill = SIGNED) -> Iterator[Row]:
    unary = Operator(name, "elementwise")
    yield unary(real(0, 3, fill=fill), tags="empty")
    yield unary(real(1, fill=fill), tags="one-element")
    yield unary(real(7, 129, fill=fill), tags="odd", floats=HALVES)
    yield unary(strided(real(17, 31, fill=fill), (1, 17), offset=3), tags="noncontiguous offset")
    yield unary(real(1024, 512, fill=fill), timed=True)


def _gelu() -> Iterator[Row]:
    gelu = Operator("gelu", "elementwise")
    yield gelu(real(0), tags="empty")
    yield gelu(real(), tags="one-element scalar", approximate="tanh")
    yield gelu(real(5, 67), tags="odd", floats=HALVES, approximate="tanh")
    yield gelu(strided(real(9, 14), (28, 2), offset=1), tags="noncontiguous offset")
    yield gelu(real(512, 512), timed=True)


def _add() -> Iterator[Row]:
    add = Operator("add.Tensor", "binary")
    yield add(real(0, 4), real(4), tags="empty broadcast", alpha=2)
    yield add(real(1), real(), tags="one-element scalar", alpha=2)
    yield add(real(5, 1, 33), real(7, 1), tags="broadcast odd", floats=HALVES, alpha=0.5)
    yield add(strided(real(13, 19), (1, 13)), strided(real(13, 19), (0, 1)), tags="noncontiguous expanded")
    yield add(real(6, 11), whole(11, dtype="int64"), tags="promotion broadcast")
    wide = 1 << 28
    yield add(whole(6, 11, low=-wide, high=wide), whole(6, 1, low=-wide, high=wide), tags="integer broadcast", alpha=-3)
    yield add(real(768, 512), real(768, 512), timed=True)
    yield add(real(1024, 512), real(512), tags="broadcast", alpha=2, timed=True)


def _binary(name: str, right: Fill = SIGNED, left_of_zero: Fill = SIGNED, timed: bool = True) -> Iterator[Row]:
    """``left_of_zero``: what stands on the right in one row, where ``right`` is positive only."""
    binary = Operator(name, "binary")
    yield binary(real(3, 0), real(3, 1, fill=right), tags="empty broadcast")
    yield binary(real(1), real(fill=right), tags="one-element scalar")
    yield binary(real(3, 1, 21), real(5, 1, fill=right), tags="broadcast odd", floats=BF16)
    yield binary(
        strided(real(11, 10), (20, 2), offset=1), real(10, fill=left_of_zero), tags="noncontiguous offset broadcast"
    )
    if timed:
        yield binary(real(768, 512), real(768, 512, fill=right), timed=True)


def _reduction(name: str, timed: bool = True) -> Iterator[Row]:
    reduction = Operator(name, "reduction")
    yield reduction(real(0, 5), [1], tags="empty")
    yield reduction(real(1, 1), [0, 1], tags="one-element")
    yield reduction(real(9, 131), [-1], tags="odd", floats=BF16)
    yield reduction(strided(real(6, 10, 7), (1, 42, 6), offset=2), [0, 2], True, tags="noncontiguous offset keepdim")
    if timed:
        yield reduction(real(1024, 1024), [1], timed=True)


def _only_sum() -> Iterator[Row]:
    total = Operator("sum.dim_IntList", "reduction")
    yield total(real(0, 5), [0], tags="of-nothing")
    yield total(mask(4, 37), [1], tags="boolean")
    yield total(real(2048, 512), [0], tags="columns", timed=True)


def _max_dim() -> Iterator[Row]:
    """Short rows in single precision, so that ties are next to impossible; torch documents that the first one wins."""
    max_dim = Operator("max.dim", "reduction multiple-outputs")
    yield max_dim(real(0, 5), 1, tags="empty")
    yield max_dim(real(1), 0, tags="one-element")
    yield max_dim(real(5, 13), -1, tags="odd")
    yield max_dim(strided(real(11, 6), (1, 11), offset=1), 0, True, tags="noncontiguous offset keepdim")


def _matmul() -> Iterator[Row]:
    mm = Operator("mm", "matmul")
    yield mm(real(0, 5), real(5, 3), tags="empty")
    yield mm(real(3, 0), real(0, 4), tags="of-nothing")
    yield mm(real(1, 1), real(1, 1), tags="one-element")
    yield mm(real(17, 65), real(65, 33), tags="odd", floats=HALVES)
    yield mm(real(24, 40), strided(real(40, 12), (1, 40), offset=5), tags="noncontiguous offset")
    yield mm(real(256, 256), real(256, 256), timed=True)
    addmm = Operator("addmm", "matmul")
    yield addmm(real(4), real(0, 3), real(3, 4), tags="empty broadcast")
    yield addmm(real(1), real(1, 1), real(1, 1), tags="one-element")
    yield addmm(real(29), real(13, 41), real(41, 29), tags="odd broadcast", floats=BF16)
    yield addmm(real(6, 10), strided(real(6, 8), (1, 6)), real(8, 10), tags="noncontiguous", beta=0.5, alpha=2)
    yield addmm(real(384), real(128, 256), real(256, 384), tags="broadcast", timed=True)


def _softmax() -> Iterator[Row]:
    softmax = Operator("_softmax", "softmax")
    yield softmax(real(0, 7), -1, False, tags="empty")
    yield softmax(real(1, 1), 1, False, tags="one-element")
    yield softmax(real(5, 129), -1, False, tags="odd", floats=HALVES)
    yield softmax(real(3, 4, 7, fill=Normal(0.0, 30.0)), 0, False, tags="large-values")
    yield softmax(strided(real(12, 23), (1, 12), offset=4), 1, False, tags="noncontiguous offset")
    yield softmax(real(512, 512), -1, False, timed=True)


def _layer_norm() -> Iterator[Row]:
    eps = 1e-5
    layer_norm = Operator("native_layer_norm", "layer-norm multiple-outputs")
    yield layer_norm(real(0, 8), [8], real(8), real(8), eps, tags="empty")
    yield layer_norm(real(1, 1), [1], real(1), real(1), eps, tags="one-element")
    yield layer_norm(real(6, 65), [65], real(65), real(65), eps, tags="odd", floats=HALVES)
    yield layer_norm(real(2, 5, 12), [5, 12], None, None, eps, tags="without-weight")
    yield layer_norm(
        strided(real(10, 24), (1, 10), offset=2), [24], real(24), real(24), eps, tags="noncontiguous offset"
    )
    yield layer_norm(real(512, 768), [768], real(768), real(768), eps, timed=True)


def _in_place() -> Iterator[Row]:
    add_ = Operator("add_.Tensor", "inplace")
    yield add_(real(0, 3), real(3), tags="empty broadcast")
    yield add_(real(1), real(1), tags="one-element")
    yield add_(real(7, 15), real(15), tags="odd broadcast", floats=BF16, alpha=0.5)
    yield add_(strided(real(11, 18), (1, 11), offset=6), real(11, 18), tags="noncontiguous offset")
    yield add_(real(1024, 512), real(1024, 512), timed=True)
    relu_ = Operator("relu_", "inplace")
    yield relu_(real(0), tags="empty")
    yield relu_(real(), tags="one-element scalar")
    yield relu_(real(3, 43), tags="odd", floats=F16)
    yield relu_(strided(real(9, 8), (16, 2), offset=1), tags="noncontiguous offset")


def _integer() -> Iterator[Row]:
    """With numbers that no floating-point dtype holds exactly: whole numbers are more than that."""
    wide, wide32 = 1 << 60, 1 << 31
    bitwise_and = Operator("bitwise_and.Tensor", "integer binary")
    yield bitwise_and(whole(0, 4), whole(4), tags="empty broadcast")
    yield bitwise_and(whole(1), whole(1), tags="one-element")
    yield bitwise_and(
        whole(5, 21, dtype="int64", low=-wide, high=wide),
        whole(21, dtype="int64", low=-wide, high=wide),
        tags="odd broadcast",
    )
    yield bitwise_and(
        strided(whole(9, 33, dtype="uint8", low=0), (1, 9)), whole(9, 33, dtype="uint8", low=0), tags="noncontiguous"
    )
    any32 = whole(1024, 512, low=-wide32, high=wide32)
    yield bitwise_and(any32, any32, timed=True)
    floor_divide = Operator("floor_divide", "integer binary")
    yield floor_divide(whole(0, 4), whole(4, low=1), tags="empty broadcast")
    yield floor_divide(whole(1), whole(1, low=1), tags="one-element")
    yield floor_divide(
        whole(5, 21, dtype="int64", low=-wide, high=wide),
        whole(21, dtype="int64", low=-9, high=0),
        tags="odd broadcast negative",
    )
    yield floor_divide(
        strided(whole(8, 15, dtype="int16"), (1, 8), offset=3),
        whole(8, 15, dtype="int16", low=1),
        tags="noncontiguous offset",
    )
    yield floor_divide(whole(256, 512, low=-wide32, high=wide32), whole(256, 512, low=1), timed=True)


def _boolean() -> Iterator[Row]:
    logical_and = Operator("logical_and", "boolean")
    yield logical_and(mask(0, 3), mask(3), tags="empty broadcast")
    yield logical_and(mask(1), mask(), tags="one-element scalar")
    yield logical_and(mask(7, 45), mask(7, 1), tags="odd broadcast")
    yield logical_and(strided(mask(6, 20), (1, 6), offset=2), mask(6, 20), tags="noncontiguous offset")
    yield logical_and(whole(5, 9, low=-1, high=2), mask(5, 9), tags="integer")
    gt = Operator("gt.Tensor", "boolean")
    yield gt(real(0), real(0), tags="empty")
    yield gt(real(1), real(), tags="one-element scalar")
    yield gt(real(5, 1, 19), real(3, 1), tags="odd broadcast", floats=F16)
    yield gt(strided(real(14, 9), (18, 2), offset=1), real(9), tags="noncontiguous offset")
    neighbours = whole(4, 31, low=(1 << 30) - 3, high=(1 << 30) + 3)  # one and the same number in float32
    yield gt(neighbours, neighbours, tags="integer ties")
    yield gt(real(1024, 512), real(1024, 512), timed=True)
    yield gt(real(13, 17, fill=SPECIAL), real(13, 17, fill=SPECIAL), tags="specials")
    where = Operator("where.self", "boolean")
    yield where(mask(0, 2), real(2), real(0, 2), tags="empty broadcast")
    yield where(mask(1), real(1), real(1), tags="one-element")
    yield where(mask(7, 1), real(13), real(), tags="odd broadcast", floats=BF16)
    yield where(
        strided(mask(8, 17), (1, 8)), real(8, 17), strided(real(8, 17), (34, 2), offset=1), tags="noncontiguous offset"
    )
    yield where(mask(19, 7), real(19, 7, fill=SPECIAL), real(19, 7, fill=SPECIAL), tags="specials", floats=BF16)
    yield where(mask(512, 512), real(512, 512), real(512, 512), timed=True)


def _indexing() -> Iterator[Row]:
    index_select = Operator("index_select", "indexing")
    yield index_select(real(5, 4), 0, index(0, below=5), tags="empty")
    yield index_select(real(1), 0, index(1, below=1), tags="one-element")
    yield index_select(real(9, 21), 1, index(35, below=21), tags="odd", floats=F16)
    yield index_select(
        strided(real(12, 7), (1, 12), offset=2), 0, index(6, below=12, dtype="int32"), tags="noncontiguous offset"
    )
    yield index_select(real(2048, 256), 0, index(1024, below=2048), timed=True)
    gather = Operator("gather", "indexing")
    yield gather(real(4, 6), 1, index(4, 0, below=6), tags="empty")
    yield gather(real(1, 1), 0, index(1, 1, below=1), tags="one-element")
    yield gather(real(7, 33), 1, index(5, 11, below=33), tags="odd", floats=BF16)
    yield gather(strided(real(16, 9), (1, 16)), 0, index(3, 9, below=16), tags="noncontiguous")
    yield gather(real(256, 1024), 1, index(256, 512, below=1024), timed=True)
    embedding = Operator("embedding", "indexing")
    yield embedding(real(10, 4), index(0, 3, below=10), tags="empty")
    yield embedding(real(1, 1), index(1, below=1), tags="one-element")
    yield embedding(real(37, 19), index(3, 7, below=37), tags="odd", floats=BF16)
    yield embedding(strided(real(20, 6), (1, 20)), index(8, below=20, dtype="int32"), tags="noncontiguous")
    yield embedding(real(4096, 128), index(16, 128, below=4096), timed=True)


def _concatenation() -> Iterator[Row]:
    cat = Operator("cat", "concatenation")
    yield cat([real(0, 4), real(0, 4)], 0, tags="empty")
    yield cat([real(0, 4), real(3, 4)], 0, tags="empty-part")
    yield cat([real(1)], 0, tags="one-element")
    yield cat([real(3, 5), real(3, 17), real(3, 1)], -1, tags="odd", floats=F16)
    yield cat([strided(real(6, 8), (1, 6)), strided(real(6, 8), (16, 2), offset=1)], 0, tags="noncontiguous offset")
    yield cat([real(512, 256), real(512, 512)], 1, timed=True)


def _view() -> Iterator[Row]:
    transpose = Operator("transpose.int", "view")
    yield transpose(real(0, 3), 0, 1, tags="empty")
    yield transpose(real(1, 1), 0, 1, tags="one-element")
    yield transpose(real(3, 5, 7), 0, -1, tags="odd", floats=BF16)
    yield transpose(strided(real(4, 9), (1, 4), offset=3), 0, 1, tags="noncontiguous offset")
    expand = Operator("expand", "view")
    yield expand(real(0, 1), [0, 4], tags="empty")
    yield expand(real(1), [1], tags="one-element")
    yield expand(real(5, 1), [3, -1, 7], tags="odd", floats=F16)
    yield expand(strided(real(6, 1), (2, 1), offset=1), [6, 5], tags="noncontiguous offset")
    select = Operator("select.int", "view")
    yield select(real(0, 3), 1, 2, tags="empty")
    yield select(real(1), 0, 0, tags="one-element")
    yield select(real(5, 13), 1, -1, tags="odd", floats=BF16)
    any32 = whole(7, 6, low=-(1 << 31), high=1 << 31)
    yield select(strided(any32, (1, 7)), 0, 3, tags="integer noncontiguous")


TABLE = tuple(_table())


# ---- the request


def _with_float(case: Case, dtype: str) -> Case:
    return msgspec.structs.replace(case, args=tuple(_fill_in(argument, dtype) for argument in case.args))


def _fill_in(argument: Argument, dtype: str) -> Argument:
    match argument:
        case Tensor() if argument.dtype == FLOAT:
            return msgspec.structs.replace(argument, dtype=dtype)
        case Sequence(items=items):
            return Sequence(tuple(_fill_in(item, dtype) for item in items))
        case _:
            return argument


def _require_known_operators(query: CaseQuery) -> None:
    known = dict.fromkeys(line.case.operator for line in TABLE)
    unknown = [name for name in query.operators or () if not any(names_operator(name, operator) for operator in known)]
    if unknown:
        kind = "operator" if len(unknown) == 1 else "operators"
        names = (operator.removeprefix("aten.").removesuffix(".default") for operator in known)
        raise unknown_name(f"smoke {kind}", "', '".join(unknown), names)


def _require_known_dtypes(query: CaseQuery) -> tuple[str, ...] | None:
    if query.dtypes is None:
        return None
    for name in query.dtypes:
        if name not in (*FLOATS, *EXACT):
            raise unknown_name("dtype", name, (*FLOATS, *EXACT))
    return tuple(dict.fromkeys(query.dtypes))
