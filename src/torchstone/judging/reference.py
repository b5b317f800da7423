"""What torch itself answers: in the case's dtype, in float64, and in float64 on slightly moved inputs.

Trusted side only: none of this exists in a worker. Everything runs on private copies, so that an operator that
writes to its arguments leaves the drawn values as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import torch

from torchstone import operators, schema
from torchstone.errors import TorchstoneError
from torchstone.judging import bounds
from torchstone.judging.expected import Expected, ExpectedBatch, Leaf, PlainLeaf, TensorLeaf, Values, inside_view
from torchstone.judging.inputs import DrawnCall, batched_view

PROBE_STEP = 2.0**-24
"""Relative step of the central differences: far above float64's noise, far below where curvature shows."""
_PROBE_SALT = 0x5EED
_CHUNK_ELEMENTS = 1 << 22
"""Elements evaluated together; keeps the memory of a batch bounded. Larger calls are evaluated one by one."""
_OPERATOR_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError)
_UNDEFINED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}

_Storages = list[torch.Tensor]
"""Per tensor argument, the storages of all calls of a batch: ``(calls, extent)``."""
_Views = list[tuple[torch.Tensor, ...]]
"""Per tensor argument, its view for every call."""


class ReferenceFailure(TorchstoneError):  # noqa: N818 - no error of ours: torch cannot do this case here.
    """torch has no answer for this case on this device, so no candidate can be judged on it."""


class Reference:
    """The reference for one case on one device. Make one per case and keep it: it learns the case's scale."""

    def __init__(self, case: schema.Case, device: torch.device) -> None:
        self.case = case
        self.device = device
        self.contract = operators.contract_of(case)
        self.float64_failure: str | None = None
        """Why there is no float64 result; None as long as there is one."""
        self._operator = operators.resolve(case.operator)
        self._recipes = schema.tensors_of(case)
        self._wide_case = _widened(case)
        self._inside: dict[int, torch.Tensor] = {}
        self._calibrations: dict[str, bounds.Calibration] = {}
        self._elements = sum(operators.storage_extent(recipe) for recipe in self._recipes)
        self._refuse_what_has_no_values()

    def expect(self, call: DrawnCall, *, with_bounds: bool = True) -> Expected:
        """What this call must give. See :meth:`expect_many` for ``with_bounds``."""
        return self.expect_many([call], with_bounds=with_bounds)[0]

    def expect_many(self, calls: Sequence[DrawnCall], *, with_bounds: bool = False) -> list[Expected]:
        """What these calls must give, evaluated in batches.

        ``with_bounds`` probes every call fully (six more float64 evaluations for small calls). Without, each is
        probed once (two evaluations) and the case's calibration, taken from the latest fully probed call, guards
        against chance underestimates; if there is none yet, the first call is fully probed for it. The bounds then
        have the same size, with more scatter.
        """
        if calls and not with_bounds and not self._calibrations:
            self._expect_chunk(calls[:1], with_bounds=True)
        size = max(1, _CHUNK_ELEMENTS // max(1, self._elements))
        batches = [
            batch
            for start in range(0, len(calls), size)
            for batch in self._expect_chunk(calls[start : start + size], with_bounds=with_bounds)
        ]
        return [Expected(batch, index) for batch in batches for index in range(len(batch.calls))]

    def _refuse_what_has_no_values(self) -> None:
        if torch.Tag.nondeterministic_seeded in self._operator.tags:
            raise ReferenceFailure(f"{self.case.operator} draws random numbers; random operators are not judged yet.")
        if self._operator._schema.name.split("::")[1] in _UNDEFINED:
            raise ReferenceFailure(f"{self.case.operator} returns undefined values, which are not judged yet.")

    def _expect_chunk(self, calls: Sequence[DrawnCall], *, with_bounds: bool) -> list[ExpectedBatch]:
        """One batch, or one per call where the shapes of the results depend on the values."""
        storages = self._stacked_storages(calls)
        try:
            results = self._evaluate(self.case, self._views(storages), len(calls))
        except _OPERATOR_ERRORS as error:
            raise ReferenceFailure(f"{self.case.operator} in torch: {_first_line(error)}") from error
        if len(calls) > 1 and not _uniform(results):
            return [batch for call in calls for batch in self._expect_chunk([call], with_bounds=with_bounds)]
        native = self._collect(results, storages)
        continuous = {key: value for key, value in native.items() if _is_continuous(value.dtype)}
        judged = self._with_bounds(calls, continuous, with_bounds) if continuous else {}
        values = {key: judged.get(key) or Values(value, None, None) for key, value in native.items()}
        leaves = tuple(self._leaf(position, results, values) for position in range(len(results[0])))
        mutated = {position: values[_argument(position)] for position in sorted(self.contract.mutated)}
        self._elements = max(self._elements, sum(value[0].numel() for value in native.values()))
        return [ExpectedBatch(tuple(calls), leaves, mutated)]

    def _with_bounds(
        self, calls: Sequence[DrawnCall], native: Mapping[str, torch.Tensor], full: bool
    ) -> dict[str, Values]:
        """Bounds for the results that are continuous."""
        wide = [_to_wide(storage) for storage in self._stacked_storages(calls)]
        exact = self._exact(wide, native, len(calls))
        slopes = self._sensitivity(wide, exact, self._pairs(full), calls[0].seed) if exact else {}
        return {
            key: self._bounded(key, value, exact[key], slopes[key], full)
            if key in exact
            else Values(value, None, self._masked(key, bounds.bound_without_exact(value, self._terms(value))))
            for key, value in native.items()
        }

    def _bounded(self, key: str, native: torch.Tensor, exact: torch.Tensor, slope: torch.Tensor, full: bool) -> Values:
        known = self._calibrations.get(key)
        if full:
            seen = bounds.calibrate(self._masked(key, native), self._masked(key, exact), slope)
            known = self._calibrations[key] = seen.merged(known)
        smoothed = bounds.smooth(slope, None if full else known)
        bound = bounds.bound(native, exact, smoothed, self._terms(native), known)
        return Values(native, exact, self._masked(key, bound))

    def _exact(self, wide: _Storages, native: Mapping[str, torch.Tensor], count: int) -> dict[str, torch.Tensor]:
        """The float64 results that correspond to native ones; none where the operator does not run in float64."""
        if self.float64_failure is not None:
            return {}
        private = [s.clone() if i in self.contract.mutated else s for i, s in enumerate(wide)]
        try:
            with _float64_as_default():
                results = self._evaluate(self._wide_case, self._views(private), count)
        except _OPERATOR_ERRORS as error:
            self.float64_failure = _first_line(error)
            return {}
        if not _uniform(results):
            self.float64_failure = "the shapes of its results differ in float64"
            return {}
        found = self._collect(results, private)
        return {key: found[key] for key, value in native.items() if _corresponds(found.get(key), value)}

    def _sensitivity(
        self, wide: _Storages, exact: Mapping[str, torch.Tensor], pairs: int, seed: int
    ) -> dict[str, torch.Tensor]:
        """How far each exact result moves per relative move of the inputs: root mean square over sign draws."""
        generator = torch.Generator(self.device).manual_seed((seed ^ _PROBE_SALT) & ((1 << 63) - 1))
        total = {
            key: torch.zeros(value.shape, dtype=torch.float64, device=value.device) for key, value in exact.items()
        }
        for _ in range(pairs):
            signs = [self._signs(position, storage, generator) for position, storage in enumerate(wide)]
            if all(sign is None for sign in signs):
                return total
            ahead = self._probe(wide, signs, PROBE_STEP)
            behind = self._probe(wide, signs, -PROBE_STEP)
            for key, value in exact.items():
                total[key].add_(_slope(ahead.get(key), value, behind.get(key)).square_(), alpha=1.0 / pairs)
        return {key: value.sqrt_() for key, value in total.items()}

    def _probe(self, wide: _Storages, signs: Sequence[torch.Tensor | None], step: float) -> dict[str, torch.Tensor]:
        """The float64 results with every float element moved by ``step`` of itself, up or down by its sign.

        Arguments that are only read are moved element by element of the *view*: the rounding errors of a kernel
        that reads an expanded element twice are independent, too. Written ones are moved in their storage.
        """
        views: _Views = []
        storages: _Storages = []
        for position, (storage, sign, recipe) in enumerate(zip(wide, signs, self._recipes, strict=True)):
            mutated = position in self.contract.mutated
            if sign is not None and not mutated:
                views.append((batched_view(storage, recipe) * (1.0 + step * sign)).unbind(0))
                storages.append(storage)
                continue
            private = storage * (1.0 + step * sign) if sign is not None else storage.clone() if mutated else storage
            views.append(batched_view(private, recipe).unbind(0))
            storages.append(private)
        try:
            with _float64_as_default():
                results = self._evaluate(self._wide_case, views, len(views[0]))
        except _OPERATOR_ERRORS:
            return {}  # Moved inputs can leave the operator's domain; then nothing is known about the slope.
        return self._collect(results, storages) if _uniform(results) else {}

    def _signs(self, position: int, storage: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
        """Random signs for one argument; None if it has no float elements."""
        recipe = self._recipes[position]
        if not _is_continuous(storage.dtype):
            return None
        mutated = position in self.contract.mutated
        shape = storage.shape if mutated else torch.Size((storage.shape[0], *recipe.shape))
        signs = torch.empty(shape, dtype=torch.float64, device=storage.device)
        signs.random_(0, 2, generator=generator).mul_(2.0).sub_(1.0)
        return self._masked(_argument(position), signs) if mutated else signs

    def _pairs(self, full: bool) -> int:
        """Large results tell enough about their scale by their neighbours; small ones need more draws."""
        if not full or self._elements > 1 << 20:
            return 1
        return 3 if self._elements <= 1 << 14 else 2

    def _terms(self, result: torch.Tensor) -> int:
        """An upper guess of how many values are added into one element of this ``(calls, *shape)`` result."""
        if torch.Tag.pointwise in self._operator.tags:
            return 1
        elements = max(1, result[0].numel())
        sizes = [size for recipe in self._recipes for size in recipe.shape]
        shares = [operators.storage_extent(recipe) // elements for recipe in self._recipes]
        return max([1, *sizes, *shares])

    def _masked(self, key: str, values: torch.Tensor) -> torch.Tensor:
        """For an argument's storage, 0 outside the argument's view. Returned tensors as they are."""
        inside = self._inside.get(int(key.removeprefix("argument "))) if key.startswith("argument ") else None
        return values if inside is None else values * inside

    def _stacked_storages(self, calls: Sequence[DrawnCall]) -> _Storages:
        """Fresh copies of all storages of these calls."""
        for position in self.contract.mutated - self._inside.keys():
            self._inside[position] = inside_view(calls[0], position)
        columns = zip(*(call.tensors for call in calls), strict=True)
        return [torch.stack([tensor.storage for tensor in column]) for column in columns]

    def _views(self, storages: _Storages) -> _Views:
        pairs = zip(storages, self._recipes, strict=True)
        return [batched_view(storage, recipe).unbind(0) for storage, recipe in pairs]

    def _evaluate(self, case: schema.Case, views: _Views, count: int) -> list[list[Any]]:
        """Per call, the flat list of what the operator returned."""
        calls: Sequence[Sequence[torch.Tensor]] = list(zip(*views, strict=True)) if views else [()] * count
        with torch.no_grad():
            return [self._evaluate_one(case, tensors) for tensors in calls]

    def _evaluate_one(self, case: schema.Case, tensors: Sequence[torch.Tensor]) -> list[Any]:
        args, kwargs = operators.build_arguments(case, tensors, self.device)
        result = self._operator(*args, **kwargs)
        return operators.flatten_outputs(result) if self._operator._schema.returns else []

    def _collect(self, results: Sequence[Sequence[Any]], storages: _Storages) -> dict[str, torch.Tensor]:
        """Every tensor that the operator returned or wrote to, stacked over the calls, by name."""
        found = {
            f"output {position}": _stack([result[position] for result in results])
            for position, leaf in enumerate(results[0])
            if isinstance(leaf, torch.Tensor)
        }
        return found | {_argument(position): storages[position] for position in self.contract.mutated}

    def _leaf(self, position: int, results: Sequence[Sequence[Any]], values: Mapping[str, Values]) -> Leaf:
        first = results[0][position]
        if not isinstance(first, torch.Tensor):
            return PlainLeaf(tuple(result[position] for result in results))
        declared = self.contract.returned_arguments
        is_argument = declared[position] if len(declared) == len(results[0]) else None
        return TensorLeaf(
            values[f"output {position}"], first.dtype, tuple(first.shape), tuple(first.stride()), is_argument
        )


def _argument(position: int) -> str:
    return f"argument {position}"


def _widened(case: schema.Case) -> schema.Case:
    """The case with float64 in the place of lower float dtypes that are passed as arguments."""
    args = tuple(_widened_argument(argument) for argument in case.args)
    kwargs = {name: _widened_argument(argument) for name, argument in case.kwargs.items()}
    return msgspec.structs.replace(case, args=args, kwargs=kwargs)


def _widened_argument(argument: schema.Argument) -> schema.Argument:
    if isinstance(argument, schema.DType):
        dtype = operators.torch_dtype(argument.value)
        wide = str(bounds.wide_dtype(dtype)).removeprefix("torch.")
        return schema.DType(wide) if _is_continuous(dtype) else argument
    if isinstance(argument, schema.Sequence):
        return schema.Sequence(tuple(_widened_argument(item) for item in argument.items))
    return argument


@contextmanager
def _float64_as_default() -> Iterator[None]:
    """Operators that make floats from integers (mean, sqrt, true division) then make float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _slope(ahead: torch.Tensor | None, exact: torch.Tensor, behind: torch.Tensor | None) -> torch.Tensor:
    """|central difference| per unit of relative move; 0 where there is a jump, or no number."""
    if not (_corresponds(ahead, exact) and _corresponds(behind, exact)):
        return torch.zeros(exact.shape, dtype=torch.float64, device=exact.device)
    assert ahead is not None
    assert behind is not None
    odd = (ahead - behind).abs_() if not exact.dtype.is_complex else (ahead - behind).abs()
    even = (ahead - exact + (behind - exact)).abs()
    slope = odd.mul_(0.5 / PROBE_STEP)
    smooth = even.mul_(1.0 / PROBE_STEP) <= 2.0 * slope
    return torch.where(smooth & torch.isfinite(slope), slope, 0.0)


def _corresponds(found: torch.Tensor | None, other: torch.Tensor) -> bool:
    """Whether this is the wide form of that result."""
    return found is not None and found.shape == other.shape and found.dtype == bounds.wide_dtype(other.dtype)


def _is_continuous(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _to_wide(storage: torch.Tensor) -> torch.Tensor:
    return storage.to(bounds.wide_dtype(storage.dtype)) if _is_continuous(storage.dtype) else storage


def _stack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(tensors)) if len(tensors) > 1 else tensors[0].unsqueeze(0)


def _uniform(results: Sequence[Sequence[Any]]) -> bool:
    """Whether all calls returned tensors of the same dtypes and shapes in the same places."""
    signatures = {tuple(_signature(leaf) for leaf in result) for result in results}
    return len(signatures) == 1


def _signature(leaf: Any) -> Any:
    return (leaf.dtype, leaf.shape) if isinstance(leaf, torch.Tensor) else type(leaf)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
