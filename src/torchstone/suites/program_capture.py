"""Records the operator calls of a running program, and makes a file of cases from them.

When the recorded block ends, fills that torch accepts are found for each call. At that point the ranges of all recorded
values are known. So the cases can be judged on any machine. A call for which no fill is found stays in the file, with
the reason.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import draw_call
from torchstone.errors import UsageError
from torchstone.operator_categories import base_name
from torchstone.suites.base import names_operator
from torchstone.suites.captured import FORMAT, SUITE, Captured, Head, write_captured
from torchstone.suites.case_cache import Exclusion, merged
from torchstone.suites.case_from_recorded_call import Domains, KnownChoice, Unfit, domains_of, fit
from torchstone.suites.recorded_call_from_case import Untraceable, traced
from torchstone.suites.recorder import RecordedCall, Recorder
from torchstone.suites.selection import input_bytes
from torchstone.suites.torchbench import TIMED_BYTES
from torchstone.suites.valid_values import fills_for, is_known

FLOAT_READS = 3
"""Number of equal calls in which the values of floating-point tensors are read."""
MOST_VARIANTS = 8
"""Most calls recorded that differ only in floating-point scalars. Further calls are counted as the first of them."""
_LIBRARY_MEMORY = "returns or takes working memory of a library, whose content is undefined"
_UNJUDGEABLE = dict.fromkeys(("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward"), _LIBRARY_MEMORY)
TOO_LARGE = "too large: the free memory does not suffice to try values for it"
_TRIAL_MEMORY_FACTOR = 8
"""Free memory needed to try values, in multiples of the arguments. With less, the program could be killed before the
file is written."""
UNDECLARED_WRITE = "writes to an argument that its schema does not declare as written"
INTERRUPTED = "interrupted before its values were tried"


class Capture:
    """A block of code whose calls are recorded, and the cases made of them."""

    def __init__(self, path: Path, recorder: Recorder, told: Callable[[str], None]) -> None:
        self.path = path
        self._recorder = recorder
        self._told = told
        self._written: Captured | None = None

    def finish(self) -> None:
        """Write the file."""
        self._told(f"looking for values that fit {_counted(len(self._recorder.calls), 'unique call')}")
        captured = fitted(self._recorder)
        try:
            write_captured(self.path, captured)
        except OSError as error:
            raise UsageError(f"'{self.path}' cannot be written: {error}. Choose another file.") from error
        self._written = captured

    @property
    def is_finished(self) -> bool:
        """Whether the file has been written."""
        return self._written is not None

    @property
    def cases(self) -> tuple[schema.Case, ...]:
        """The cases that can be judged; none before the block has ended."""
        return self._written.cases if self._written is not None else ()

    @property
    def exclusions(self) -> tuple[Exclusion, ...]:
        """The calls that cannot be judged, and why."""
        return self._written.exclusions if self._written is not None else ()

    @property
    def closing_line(self) -> str:
        """One line for the user: the numbers of calls, cases, operators and exclusions."""
        calls = self._written.head.calls if self._written is not None else 0
        unique = len(self._recorder.calls)
        of = len({case.operator for case in self.cases})
        excluded = _counted(sum(exclusion.count for exclusion in self.exclusions), "call")
        return (
            f"{self.path}: {_counted(calls, 'call')}, {unique} unique, {_counted(len(self.cases), 'case')} of "
            f"{_counted(of, 'operator')}, {excluded} excluded"
        )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@contextmanager
def capturing(
    path: Path, names: tuple[str, ...] | None = None, told: Callable[[str], None] = lambda text: None
) -> Iterator[Capture]:
    """Record the calls of the block, and write the file however the block ends. ``names``: only these operators.

    ``told`` receives messages about the work after the block's end, which may take a while.
    """
    if not path.parent.is_dir():
        raise UsageError(f"'{path.parent}' is no folder. Make it, or choose another file.")
    recorder = Recorder(_wanted(names), float_reads=FLOAT_READS, most_variants=MOST_VARIANTS)
    capture = Capture(path, recorder, told)
    process = os.getpid()
    try:
        with recorder:
            yield capture
    finally:
        if os.getpid() == process:  # not in a process that the program forked
            capture.finish()


def _wanted(names: tuple[str, ...] | None) -> Callable[[str], bool]:
    if names is None:
        return lambda operator: True
    return lambda operator: any(names_operator(name, operator) for name in names)


# ---- from calls to cases


def fitted(recorder: Recorder) -> Captured:
    """A case or an exclusion for every call."""
    calls = tuple(recorder.calls.values())
    domains = domains_of(calls)
    cases: list[schema.Case] = []
    exclusions = [Exclusion(operator, reason, "", n) for (operator, reason), n in recorder.unrecorded.items()]
    tried = 0
    with _default_torch_settings():
        try:
            for call in calls:
                found = _case_or_exclusion(call, domains)
                tried += 1
                (cases if isinstance(found, schema.Case) else exclusions).append(found)  # type: ignore[arg-type]
        except KeyboardInterrupt:
            exclusions += [_exclusion(call, INTERRUPTED) for call in calls[tried:]]
    total = sum(call.count for call in calls) + recorder.unrecorded.total()
    return Captured(Head(FORMAT, str(torch.__version__), total), tuple(cases), merged(exclusions))


def _exclusion(call: RecordedCall, reason: str) -> Exclusion:
    """The exclusion of a recorded call, counted as often as the call was made."""
    return Exclusion(call.operator, reason, count=call.count)


def _case_or_exclusion(call: RecordedCall, domains: Domains) -> schema.Case | Exclusion:
    reason = _UNJUDGEABLE.get(base_name(call.operator))
    if reason is not None:
        return _exclusion(call, reason)
    device = torch.device(call.device)
    size_bytes = input_bytes(schema.Case(SUITE, call.operator, call.args, call.kwargs))
    if _TRIAL_MEMORY_FACTOR * size_bytes > _free_bytes(device):
        return _exclusion(call, TOO_LARGE)
    try:
        case = fit(call, SUITE, domains, device, known=_known_choice(call))
        if _writes_undeclared_argument(case, device):
            return _exclusion(call, UNDECLARED_WRITE)
    except Unfit as error:
        return _exclusion(call, str(error))
    except (RuntimeError, MemoryError) as error:  # a device without room for another copy of the arguments
        return _exclusion(call, f"values cannot be tried: {str(error).partition(chr(10))[0]}")
    timed = input_bytes(case) >= TIMED_BYTES and not operators.is_view(case.operator)
    return msgspec.structs.replace(case, timed=timed)


def _free_bytes(device: torch.device) -> float:
    """Free memory of the device in bytes; infinity if it is not known."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024.0 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    return math.inf


def _writes_undeclared_argument(case: schema.Case, device: torch.device) -> bool:
    """Whether the operator writes to an argument that its schema does not mark as written: then it is not judged."""
    call = draw_call(case, 1, device)
    declared = operators.contract_of(case).mutated
    silent = [drawn.storage for place, drawn in enumerate(call.tensors) if place not in declared]
    before = [storage.clone() for storage in silent]
    operators.resolve(case.operator)(*call.args, **call.kwargs)
    bytes_of = torch.uint8  # compares bits, so that NaN is equal to itself
    return not all(torch.equal(old.view(bytes_of), new.view(bytes_of)) for old, new in zip(before, silent, strict=True))


def _known_choice(call: RecordedCall) -> KnownChoice | None:
    if not is_known(call.operator):
        return None
    try:
        valued = fills_for(call.operator, traced(call.args, call.kwargs))
    except Untraceable:
        return None
    case = schema.Case(SUITE, call.operator, valued.args, valued.kwargs)
    return KnownChoice(tuple(tensor.fill for tensor in schema.tensors_of(case)), valued.jitter)


@contextmanager
def _default_torch_settings() -> Iterator[None]:
    """Run the block with torch's default settings, and restore the program's settings afterwards."""
    cuda = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    dtype = torch.get_default_dtype()
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=cuda))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        for device in ("cpu", "cuda") if cuda else ("cpu",):
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.callback(torch.set_default_dtype, dtype)
        torch.set_default_dtype(torch.float32)
        yield
