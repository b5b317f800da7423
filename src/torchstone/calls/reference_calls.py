"""Calls torch's own operator on private copies: many calls in the dtype of the case, or one call in float64.

This module does not compare results or compute bounds; :mod:`torchstone.judging.reference` does.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, batched_view
from torchstone.calls.torch_errors import OPERATOR_ERRORS as OPERATOR_ERRORS
from torchstone.calls.torch_errors import is_out_of_memory, operator_errors
from torchstone.errors import TorchstoneError
from torchstone.transfer import copy_to_device


class ReferenceFailure(TorchstoneError):  # noqa: N818 - no error of ours: torch cannot do this case here.
    """torch cannot compute this case on this device, so no candidate can be judged on it."""


class ResultPosition(NamedTuple):
    """A tensor that a call produces: a returned leaf, or the storage of a tensor argument that it writes to."""

    kind: Literal["output", "argument"]
    position: int


Tensors = dict[ResultPosition, torch.Tensor]
"""The tensors that a call, or several stacked calls, return and write to."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The results of several calls: what they returned and wrote to."""

    results: list[list[Any]]
    """For each call, the returned leaves. Empty lists for an operator that declares no return."""
    tensors: Tensors
    """The returned tensors and the written storages, stacked over the calls."""
    shared: frozenset[int] = frozenset()
    """Positions of the leaves that share memory with an argument or with another leaf, in torch's own result."""


class PrecomputedResults:
    """Results of calls that are needed soon. They were evaluated together, with one wait for the device."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[DrawnCall, Evaluation, int]] = {}
        """``id`` of a call -> the call, which keeps the ``id`` in use, its evaluation, and its row there."""

    def keep(self, calls: Sequence[DrawnCall], evaluations: Sequence[Evaluation]) -> None:
        """Keep these results, and drop earlier ones that were not taken."""
        rows = [(each, index) for each in evaluations for index in range(len(each.results))]
        self._kept = {id(call): (call, *row) for call, row in zip(calls, rows, strict=True)}

    def take(self, calls: Sequence[DrawnCall]) -> list[Evaluation] | None:
        """Return and drop the results, as :meth:`Evaluator.natives` gives them; None if some are not kept."""
        if not calls or any(id(call) not in self._kept for call in calls):
            return None
        rows = [self._kept.pop(id(call))[1:] for call in calls]
        begins = [place for place in range(len(rows)) if place == 0 or not _is_next_row(rows[place - 1], rows[place])]
        return [_rows_of(*rows[begin], end - begin) for begin, end in itertools.pairwise([*begins, len(rows)])]


def _is_next_row(before: tuple[Evaluation, int], after: tuple[Evaluation, int]) -> bool:
    return before[0] is after[0] and before[1] + 1 == after[1]


def _rows_of(whole: Evaluation, first: int, count: int) -> Evaluation:
    rows = slice(first, first + count)
    tensors = {place: tensor[rows] for place, tensor in whole.tensors.items()}
    return Evaluation(whole.results[rows], tensors, whole.shared)


class Evaluator:
    """Calls one case's operator in the dtype of the case, or in float64.

    The arithmetic device is the device where the caller has its tensors: arguments come from there and results go
    there. Calls in the dtype of the case are made on ``device``, float64 calls on the arithmetic device.
    """

    def __init__(self, case: schema.Case, device: torch.device, arithmetic_device: torch.device | None = None) -> None:
        self.case = case
        self.contract = operators.contract_of(case)
        self.recipes = schema.tensors_of(case)
        self.operator = operators.resolve(case.operator)
        self._device = device
        self._arithmetic_device = device if arithmetic_device is None else arithmetic_device
        self._float64_case = _with_float64_dtypes(case)
        self.precomputed = PrecomputedResults()

    @property
    def device(self) -> torch.device:
        """The device on which the operator is called in the dtype of the case."""
        return self._device

    @property
    def arithmetic_device(self) -> torch.device:
        """The device of the caller's tensors: arguments come from it and results are copied to it."""
        return self._arithmetic_device

    def is_written(self, position: int) -> bool:
        """Whether the operator writes to this tensor argument."""
        return position in self.contract.mutated

    def native(self, calls: Sequence[DrawnCall]) -> Evaluation | None:
        """The results of the calls in the dtype of the case; None if their shapes differ from call to call."""
        found = self.natives(calls)
        return found[0] if len(found) == 1 else None

    def natives(self, calls: Sequence[DrawnCall]) -> list[Evaluation]:
        """As :meth:`native`, in several parts if the shapes of the results differ from call to call."""
        found = self.precomputed.take(calls)
        return self._natives(calls) if found is None else found

    def precompute(self, calls: Sequence[DrawnCall]) -> None:
        """Evaluate the calls together and keep the results for later. If torch refuses one call, none is kept."""
        with contextlib.suppress(ReferenceFailure):
            self.precomputed.keep(calls, self._natives(calls))

    def _natives(self, calls: Sequence[DrawnCall]) -> list[Evaluation]:
        columns = zip(*(call.tensors for call in calls), strict=True)
        # A single call whose arguments are only read needs no copy of them.
        stack_storages = torch.stack if self.contract.mutated else stacked
        storages = copy_to_device(
            [stack_storages([tensor.storage for tensor in column]) for column in columns], self._device
        )
        results = self._results(storages, len(calls))
        return self._evaluations(results, storages, _slices_of_equal_shapes(results))

    def native_on(self, storages: Sequence[torch.Tensor], count: int) -> Evaluation | None:
        """As :meth:`native`, for calls whose arguments are stacked. In-place operators write to these storages.

        None if the shapes of the results differ.
        """
        storages = copy_to_device(storages, self._device)
        results = self._results(storages, count)
        if len(_slices_of_equal_shapes(results)) > 1:
            return None
        return self._evaluations(results, storages, [slice(0, count)])[0]

    def _results(self, storages: Sequence[torch.Tensor], count: int) -> list[list[Any]]:
        views = [batched_view(s, recipe).unbind(0) for s, recipe in zip(storages, self.recipes, strict=True)]
        rows: Sequence[Sequence[torch.Tensor]] = list(zip(*views, strict=True)) if views else [()] * count
        if torch.Tag.inplace_view in self.operator.tags:
            raise ReferenceFailure(
                f"{self.case.operator} changes the shape of its argument, and has no result to judge"
            )
        try:
            results = [self._call(self.case, row, self._device) for row in rows]
        except operator_errors() as error:
            raise ReferenceFailure(f"{self.case.operator} in torch: {first_line(error)}") from error
        if rows and any(rows[0][place].shape != self.recipes[place].shape for place in self.contract.mutated):
            raise ReferenceFailure(f"{self.case.operator} changes the shape of an argument, which torch warns about")
        returned = [leaf for leaf in results[0] if isinstance(leaf, torch.Tensor)]
        if any(leaf.layout is not torch.strided for leaf in returned):
            raise ReferenceFailure(f"{self.case.operator} returns a tensor that is not strided")
        if any(leaf.device.type != self._device.type for leaf in returned):  # "cuda" is "cuda:0"
            raise ReferenceFailure(
                f"{self.case.operator} returns a tensor on another device than that of its arguments"
            )
        if any(leaf.dtype is torch.complex32 for leaf in returned):
            raise ReferenceFailure(f"{self.case.operator} returns complex32, which torch itself cannot compare")
        return results

    def _evaluations(
        self, results: list[list[Any]], storages: Sequence[torch.Tensor], slices: Sequence[slice]
    ) -> list[Evaluation]:
        """One evaluation for each slice of calls, all copied to the arithmetic device with one wait."""
        found = [
            Evaluation(
                results[part],
                self._stacked_results(results[part], [storage[part] for storage in storages]),
                _sharing_memory(results[part.start], storages),
            )
            for part in slices
        ]
        return found if self._arithmetic_device == self._device else self._brought(found)

    def _brought(self, found: Sequence[Evaluation]) -> list[Evaluation]:
        """Copy all evaluations to the arithmetic device at once.

        There, contiguous outputs are rows of the stacked tensors.
        """
        resolved = [[[_resolved(leaf) for leaf in row] for row in each.results] for each in found]
        not_contiguous = [leaf for rows in resolved for row in rows for leaf in row if _is_not_contiguous(leaf)]
        collected = [tensor for each in found for tensor in each.tensors.values()]
        brought = iter(copy_to_device([*collected, *map(_memory_of, not_contiguous)], self._arithmetic_device))
        tensors = [dict(zip(each.tensors, brought, strict=False)) for each in found]
        return [
            Evaluation(self._leaves_brought(rows, there, brought), there, each.shared)
            for rows, there, each in zip(resolved, tensors, found, strict=True)
        ]

    def _leaves_brought(
        self, rows: Sequence[Sequence[Any]], tensors: Tensors, memories: Iterator[torch.Tensor]
    ) -> list[list[Any]]:
        return [
            [
                self._leaf_brought(leaf, tensors.get(ResultPosition("output", i)), call, memories)
                for i, leaf in enumerate(row)
            ]
            for call, row in enumerate(rows)
        ]

    def _leaf_brought(
        self, leaf: Any, brought: torch.Tensor | None, call: int, memories: Iterator[torch.Tensor]
    ) -> Any:
        if _is_not_contiguous(leaf):
            return next(memories).as_strided(leaf.shape, leaf.stride(), 0)
        return leaf if brought is None else brought[call]

    def float64_call(self, storages: Sequence[torch.Tensor], views: Sequence[torch.Tensor]) -> Tensors:
        """One call in float64, made on the arithmetic device: the returned tensors and the written storages.

        Raises torch's errors.
        """
        with _float64_as_default():
            return self._single_call(self._float64_case, storages, views, self._arithmetic_device)

    def native_call(self, storages: Sequence[torch.Tensor], views: Sequence[torch.Tensor]) -> Tensors:
        """One call in the dtype of the case, made on the device: as :meth:`float64_call`."""
        if self._arithmetic_device != self._device:
            storages = copy_to_device(storages, self._device)
            views = [operators.view_of(storage, self.recipes[place]) for place, storage in enumerate(storages)]
        found = self._single_call(self.case, storages, views, self._device)
        return dict(zip(found, copy_to_device(found.values(), self._arithmetic_device), strict=True))

    def _single_call(
        self,
        case: schema.Case,
        storages: Sequence[torch.Tensor],
        views: Sequence[torch.Tensor],
        device: torch.device,
    ) -> Tensors:
        result = self._call(case, views, device)
        found = self._stacked_results([result], [storage.unsqueeze(0) for storage in storages])
        return {place: tensor[0] for place, tensor in found.items()}

    def call_on_arithmetic_device(self, tensors: Sequence[torch.Tensor], case: schema.Case) -> list[Any]:
        """The leaves that the operator returns for the case's arguments with these tensors.

        The tensors lie on the arithmetic device. Raises torch's errors.
        """
        return self._call(case, tensors, self._arithmetic_device)

    def _call(self, case: schema.Case, tensors: Sequence[torch.Tensor], device: torch.device) -> list[Any]:
        args, kwargs = operators.build_arguments(case, tensors, device)
        try:
            with torch.no_grad():
                result = self.operator(*args, **kwargs)
        except RuntimeError as error:
            if is_out_of_memory(error) and not isinstance(error, torch.OutOfMemoryError):  # raised by CUDA
                raise torch.OutOfMemoryError(first_line(error)) from error
            raise
        return operators.flatten_outputs(result) if self.operator._schema.returns else []

    def _stacked_results(self, results: Sequence[Sequence[Any]], storages: Sequence[torch.Tensor]) -> Tensors:
        found = {
            ResultPosition("output", position): stacked([result[position] for result in results])
            for position, leaf in enumerate(results[0])
            if isinstance(leaf, torch.Tensor)
        }
        return found | {
            ResultPosition("argument", position): storages[position] for position in sorted(self.contract.mutated)
        }


def stacked(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The tensors as one of shape ``(n, *shape)``; a single tensor is not copied."""
    return torch.stack(list(tensors)) if len(tensors) > 1 else tensors[0].unsqueeze(0)


def _slices_of_equal_shapes(results: Sequence[Sequence[Any]]) -> list[slice]:
    """Slices of consecutive calls whose results have the same shapes and dtypes."""
    kinds = [tuple(map(_signature, result)) for result in results]
    begins = [index for index in range(len(kinds)) if index == 0 or kinds[index] != kinds[index - 1]]
    return [slice(begin, end) for begin, end in itertools.pairwise([*begins, len(kinds)])]


def _resolved(leaf: Any) -> Any:
    return leaf.resolve_conj().resolve_neg() if isinstance(leaf, torch.Tensor) else leaf


def _is_not_contiguous(leaf: Any) -> bool:
    """Whether the leaf is a tensor that is not contiguous."""
    return isinstance(leaf, torch.Tensor) and not leaf.is_contiguous()


def _memory_of(leaf: torch.Tensor) -> torch.Tensor:
    """The memory from a tensor's first element to its last, as a flat view."""
    span = 1 + sum((size - 1) * step for size, step in zip(leaf.shape, leaf.stride(), strict=True))
    return leaf.as_strided((span,), (1,), leaf.storage_offset())


def is_continuous(dtype: torch.dtype) -> bool:
    """Whether values of this dtype are rounded: floating-point or complex."""
    return dtype.is_floating_point or dtype.is_complex


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which exact results are computed: float64 or complex128."""
    return torch.complex128 if dtype.is_complex else torch.float64


def first_line(error: BaseException) -> str:
    """The first line of an error's message: torch's messages contain C++ stacks."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _sharing_memory(leaves: Sequence[Any], storages: Sequence[torch.Tensor]) -> frozenset[int]:
    """Positions of returned tensors that share memory with an argument or one another.

    torch's schema promises new memory also for operators that may return their argument (dropout outside of training).
    """
    memory = [leaf.untyped_storage().data_ptr() if isinstance(leaf, torch.Tensor) else None for leaf in leaves]
    taken = {storage.untyped_storage().data_ptr() for storage in storages}
    return frozenset(i for i, pointer in enumerate(memory) if pointer in taken or memory.count(pointer) > 1)


def _signature(leaf: Any) -> Any:
    return (leaf.dtype, leaf.shape) if isinstance(leaf, torch.Tensor) else type(leaf)


@contextmanager
def _float64_as_default() -> Iterator[None]:
    """Make float64 the default dtype, which operators return for integers (mean, sqrt, true division)."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _with_float64_dtypes(case: schema.Case) -> schema.Case:
    """The case with float64 instead of other floating-point dtypes among its dtype arguments."""
    args = tuple(_with_float64_dtype(argument) for argument in case.args)
    kwargs = {name: _with_float64_dtype(argument) for name, argument in case.kwargs.items()}
    return msgspec.structs.replace(case, args=args, kwargs=kwargs)


def _with_float64_dtype(argument: schema.Argument) -> schema.Argument:
    if isinstance(argument, schema.DType):
        dtype = operators.torch_dtype(argument.value)
        return schema.DType(str(wide_dtype(dtype)).removeprefix("torch.")) if is_continuous(dtype) else argument
    if isinstance(argument, schema.Sequence):
        return schema.Sequence(tuple(_with_float64_dtype(item) for item in argument.items))
    return argument


def inside_view(evaluator: Evaluator, position: int, storage: torch.Tensor) -> torch.Tensor:
    """Mask of the elements of an argument's storage that its view covers."""
    covered = torch.zeros(storage.shape, dtype=torch.bool, device=storage.device)
    operators.view_of(covered, evaluator.recipes[position]).fill_(True)
    return covered
