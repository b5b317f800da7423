"""Measures one point (operation and size) of a sweep: checks every implementation, times those that are right."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from torchstone.benchmarks.profiled_calls import marked
from torchstone.measuring.speed_of_light import limit_of
from torchstone.processes.free_memory import free_host_bytes
from torchstone.schema.measurement import SpeedOfLight
from torchstone.schema.sweep import SweepPoint, SweepRecord, SweepSkip, SweepTiming
from torchstone.sweeps import rows
from torchstone.sweeps.correctness_check import exact_results, mismatch
from torchstone.sweeps.device_limit import DOUBTFUL_PERCENT, SpeedLimits
from torchstone.sweeps.estimate import estimate
from torchstone.sweeps.forward_backward import Gradients, Passes, make_gradients
from torchstone.sweeps.memory import Footprint, fitting_copies, host_cache_bytes, too_large
from torchstone.sweeps.operations import Function, Inputs, Moved, Operation, dtype_of, leaves, shape_of
from torchstone.sweeps.tensor_pool import TensorPool
from torchstone.sweeps.timing import Block, Call, Clock, CpuClock, CudaClock, take_samples

TIMING = "(timing)"
"""Step that is reported while all implementations are timed together."""
_MAX_COMPILED_SHAPES = 1 << 16
"""Most shapes for which a function is compiled. By default, torch's compiler stops after 8 and runs it uncompiled."""


class DeviceLostError(Exception):
    """The device can no longer be used by this process; the arguments are the implementation and the reason."""


class _NoInputsError(Exception):
    """An operation raised an exception while making inputs; the text describes it."""


class _Prepared(NamedTuple):
    """An implementation whose results are right at this point, ready to be timed."""

    calls: list[Call]
    memory_bytes: int


class PointMeter:
    """Measures points on one device, one after the other."""

    def __init__(
        self, device: torch.device, name: str, limits: SpeedLimits, seed: int, stage: Callable[[str], None]
    ) -> None:
        """`stage` receives the name of the implementation that is called next."""
        self._device, self._name, self._limits, self._stage = device, name, limits, stage
        self._is_cuda = device.type == "cuda"
        self._pool = TensorPool(device, seed)
        self._rng = random.Random(seed)
        self._clock: Clock = CudaClock(device) if self._is_cuda else CpuClock()
        self._cache_bytes = self._device_cache_bytes()
        self._compiled: dict[str, Function] = {}

    def measure(self, operation: Operation, point: SweepPoint, functions: Mapping[str, Function | None]) -> SweepRecord:
        """Measure a point. A function of None stands for the compiled reference."""
        began = time.monotonic()
        skips = {name: reason for name in functions if (reason := operation.why_lacking(name, point.mode))}
        skips = {name: f"{rows.UNSUPPORTED}: {reason}" for name, reason in skips.items()}
        wanted = {name: function for name, function in functions.items() if name not in skips}
        try:
            with marked(_title(point), self._is_cuda), torch.set_grad_enabled(point.mode != "fwd"):
                timings, light = self._check_and_time(operation, point, wanted, skips)
        except _NoInputsError as error:
            timings, light = [], None
            skips |= dict.fromkeys(wanted, f"{rows.NO_INPUTS}: make_inputs raised {error}")
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
            timings, light = [], None
            skips |= {name: _out_of_memory(error) for name in wanted if name not in skips}
        finally:
            self._clean_up(point, functions)
        return SweepRecord(
            point=point,
            device=self._name,
            timings=tuple(timings),
            skips=tuple(SweepSkip(name, reason) for name, reason in skips.items()),
            light=light,
            seconds=round(time.monotonic() - began, 4),
        )

    def call(self, operation: Operation, point: SweepPoint, function: Function | None) -> Call:
        """Prepare one call with its own inputs. For a backward pass, the forward pass runs here."""
        self._pool.keep_only(shape_of(point))
        with torch.set_grad_enabled(point.mode != "fwd"):
            inputs = operation.make_inputs(point, self._pool, 1)
            gradients = make_gradients(operation, point, inputs, self._pool)
            chosen = function if function is not None else self._compiled_once(operation)
            (call,) = Passes(operation, point.mode).calls(chosen, inputs, gradients)
        return call

    def _compiled_once(self, operation: Operation) -> Function:
        """The compiled reference, kept between calls so that a second call does not compile again."""
        import torch._dynamo.config

        torch._dynamo.config.recompile_limit = _MAX_COMPILED_SHAPES
        torch._dynamo.config.accumulated_recompile_limit = _MAX_COMPILED_SHAPES
        if operation.name not in self._compiled:
            self._compiled[operation.name] = torch.compile(operation.reference, dynamic=False)
        return self._compiled[operation.name]

    def _check_and_time(
        self,
        operation: Operation,
        point: SweepPoint,
        wanted: Mapping[str, Function | None],
        skips: dict[str, str],
    ) -> tuple[list[SweepTiming], SpeedOfLight | None]:
        self._pool.keep_only(shape_of(point))
        footprint = operation.footprint(point) or self._footprint_of(operation, point)
        copies = self._copies(footprint, len(wanted))
        if not copies:
            reason = f"{rows.TOO_LARGE}: {too_large(footprint, len(wanted), self._free_bytes())}"
            skips |= dict.fromkeys(wanted, reason)
            return [], None
        inputs = self._inputs(operation, point, copies)
        gradients = make_gradients(operation, point, inputs, self._pool)
        right = self._check_all(operation, point, wanted, inputs, gradients, footprint, skips)
        moved = operation.moved_bytes(point) or Moved(footprint.input_bytes, footprint.result_bytes)
        light = self._limits.of(moved)
        samples, calls = self._timed(right, limit_of(light)[0], skips)
        percent = [rows.efficiency(light, estimate(taken).time_ns) or 0.0 for taken in samples.values()]
        if max(percent, default=0.0) > DOUBTFUL_PERCENT:
            self._limits.request_new_measurement()
            light = self._limits.of(moved)
        found = [SweepTiming(n, tuple(taken), calls[n], right[n].memory_bytes) for n, taken in samples.items()]
        return found, light

    def _inputs(self, operation: Operation, point: SweepPoint, copies: int) -> list[Inputs]:
        """Make the inputs. An exception of the user's code becomes `_NoInputsError`, which blames no implementation."""
        try:
            return operation.make_inputs(point, self._pool, copies)
        except Exception as error:
            self._require_device("", error)
            if _is_out_of_memory(error):
                raise
            raise _NoInputsError(f"{type(error).__name__}: {_first_line(error)}") from error

    # ---- memory

    def _device_cache_bytes(self) -> int:
        if self._is_cuda:
            return int(torch.cuda.get_device_properties(self._device).L2_cache_size)
        return host_cache_bytes()

    def _free_bytes(self) -> int:
        if not self._is_cuda:
            return free_host_bytes()
        free, _ = torch.cuda.mem_get_info(self._device)
        return int(free + torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device))

    def _copies(self, footprint: Footprint, implementations: int) -> int:
        """Number of copies that fit. If none fits, memory of earlier points is freed first."""
        copies = fitting_copies(footprint, self._cache_bytes, implementations, self._free_bytes())
        if not copies:
            self._release()
            copies = fitting_copies(footprint, self._cache_bytes, implementations, self._free_bytes())
        return copies

    def _footprint_of(self, operation: Operation, point: SweepPoint) -> Footprint:
        """Footprint of an operation that declares none, from one set of inputs and one call of the reference."""
        (inputs,) = self._inputs(operation, point, 1)
        with torch.no_grad():
            results = leaves(operation.reference(*inputs))
        given, made = _nbytes(leaves(inputs)), _nbytes(results)
        if point.mode != "fwd":
            given, made = given + 2 * made, made + given
        return Footprint(given, made, dtype_of(point).itemsize)

    def _release(self) -> None:
        self._pool.clear()
        if isinstance(self._clock, CudaClock):
            self._clock.release()

    def _clean_up(self, point: SweepPoint, functions: Mapping[str, Function | None]) -> None:
        """Free memory that functions left behind, before the next point."""
        self._stage("")
        if "Liger" in functions and point.mode != "fwd":
            self._pool.clear()  # its cross-entropy leaves the gradient where the input was
        if not self._is_cuda:
            return
        with contextlib.suppress(RuntimeError):  # a lost device reports that at the next call
            free, total = torch.cuda.mem_get_info(self._device)
            if free < total // 8:
                self._release()

    # ---- comparing

    def _check_all(
        self,
        operation: Operation,
        point: SweepPoint,
        wanted: Mapping[str, Function | None],
        inputs: Sequence[Inputs],
        gradients: Sequence[Gradients],
        footprint: Footprint,
        skips: dict[str, str],
    ) -> dict[str, _Prepared]:
        """The implementations with right results, ready to be timed. The others are added to `skips`."""
        passes = Passes(operation, point.mode)
        wide = torch.float64 if footprint.wide_bytes() < self._free_bytes() else torch.float32
        exact = exact_results(passes, operation.reference, inputs[0], gradients[0], wide)
        right: dict[str, _Prepared] = {}
        for name, given in wanted.items():
            with self._skipping_on_error(name, skips):
                function = given if given is not None else _compiled(operation.reference)
                (call,) = passes.calls(function, [_cloned(inputs[0])], gradients[:1])
                found = mismatch(passes.results(call), exact, dtype_of(point), operation.pointwise)
                if found:
                    skips[name] = f"{rows.WRONG}: {found}"
                    continue
                taken = self._memory_bytes(call, _nbytes(leaves((*inputs[0], *gradients[0]))))
                del call
                right[name] = _Prepared(passes.calls(function, inputs, gradients), taken)
        return right

    def _memory_bytes(self, call: Call, given_bytes: int) -> int:
        """Peak memory during one warm call, arguments included."""
        if not self._is_cuda:
            return given_bytes + _nbytes(leaves(call()))
        before = torch.cuda.memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        call()
        return given_bytes + torch.cuda.max_memory_allocated(self._device) - before

    # ---- timing

    def _timed(
        self, right: dict[str, _Prepared], limit_ns: float, skips: dict[str, str]
    ) -> tuple[dict[str, list[float]], dict[str, int]]:
        """Samples, and calls per sample, of each implementation that could be prepared."""
        blocks: dict[str, Block] = {}
        for name, prepared in right.items():
            with self._skipping_on_error(name, skips):
                blocks[name] = self._clock.prepare(prepared.calls, max(limit_ns, 1.0))
        if not blocks:
            return {}, {}
        self._stage(TIMING)
        try:
            samples = take_samples(self._clock, blocks, self._rng)
        except RuntimeError as error:
            self._require_device("", error)
            raise
        return samples, {name: block.calls for name, block in blocks.items()}

    # ---- failures

    @contextlib.contextmanager
    def _skipping_on_error(self, name: str, skips: dict[str, str]) -> Iterator[None]:
        """Skip this implementation if the block raises; the exception becomes the reason."""
        self._stage(name)
        try:
            yield
            if self._is_cuda:
                torch.cuda.synchronize(self._device)
        except Exception as error:  # noqa: BLE001 - any kernel may raise anything; the others go on
            self._require_device(name, error)
            skips[name] = _reason_of(error)

    def _require_device(self, name: str, error: Exception) -> None:
        if not self._is_cuda:
            return
        try:
            torch.cuda.synchronize(self._device)
        except RuntimeError:
            raise DeviceLostError(name, _first_line(error)) from error


def _title(point: SweepPoint) -> str:
    """Title of the point's NVTX range, shown by nsys."""
    return f"{point.operation} {'x'.join(map(str, shape_of(point)))} {point.dtype} {point.mode}"


def _compiled(reference: Function) -> Function:
    """The reference, compiled again for every point: with static shapes, and without a limit on recompilations."""
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False  # a backward pass is made again and again
    torch._dynamo.reset()
    compiled: Function = torch.compile(reference, dynamic=False)
    return compiled


def _cloned(inputs: Inputs) -> Inputs:
    """Copies, since some implementations overwrite their arguments."""
    return tuple(each.clone() if isinstance(each, torch.Tensor) else each for each in inputs)


def _nbytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _reason_of(error: Exception) -> str:
    """An exception of an implementation as the reason of a skip."""
    if _is_out_of_memory(error):
        return _out_of_memory(error)
    if isinstance(error, NotImplementedError):
        return f"{rows.UNSUPPORTED}: {_first_line(error)}"
    return f"{rows.RAISED}: {type(error).__name__}: {_first_line(error)}"


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether memory of a GPU or of the host ran out. For the host, torch raises a plain `RuntimeError`."""
    by_text = isinstance(error, RuntimeError) and "allocate memory" in str(error)
    return by_text or isinstance(error, (torch.OutOfMemoryError, MemoryError))


def _out_of_memory(error: BaseException) -> str:
    return f"{rows.OUT_OF_MEMORY}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
