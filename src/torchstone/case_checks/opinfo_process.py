"""Child process that runs OpInfo's samples (torch's own test inputs), and makes cases of the operator calls they make.

It reads one request per line and writes replies as JSON lines. It is a separate process because samples set seeds and
flags, and because some operators crash on values that they should refuse. Cached cases are read without it and without
torch.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.reference_calls import Evaluator
from torchstone.judging import ReferenceFailure, draw_call
from torchstone.judging.audit.adversaries import audit
from torchstone.suites.base import CaseQuery, selects
from torchstone.suites.case_cache import Exclusion
from torchstone.suites.case_from_recorded_call import Domains, Unfit, domains_of, fit
from torchstone.suites.enlarging import enlarged, repeats_itself
from torchstone.suites.opinfo_catalogue import CRASHES, BegunReply, Found, Names, Reply, Sample, SamplingOrder
from torchstone.suites.recorder import RecordedCall, Recorder, is_bookkeeping

SUITE = "opinfo"
_HOST = torch.device("cpu")
SendReply = Callable[[Reply], None]


def main() -> None:
    """Write the names of all OpInfo entries, then answer each request from standard input with cases."""
    device, dtype = torch.device(sys.argv[1]), getattr(torch, sys.argv[2])
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # text that operators print must not mix with replies
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ModuleNotFoundError as error:
        replies.write(msgspec.json.encode(Names(missing=error.name or str(error))) + b"\n")
        return
    replies.write(msgspec.json.encode(Names(tuple(_name(entry) for entry in op_db))) + b"\n")

    def send(reply: Reply) -> None:
        replies.write(msgspec.json.encode(reply) + b"\n")

    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=SamplingOrder)
        if isinstance(order, Sample):
            send(_cases_of_samples(op_db[order.index], order, device, dtype, send))
        else:
            send(_enlarged(order.case, device))


def _name(entry: Any) -> str:
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else str(entry.name)


def _cases_of_samples(entry: Any, order: Sample, device: torch.device, dtype: torch.dtype, send: SendReply) -> Found:
    """Run the samples of one OpInfo entry and make cases of the operator calls."""
    name = _name(entry)
    if dtype not in entry.supported_dtypes(device.type):
        return Found()
    called = _CalledOperators(order.names)
    recorder = Recorder(called.is_wanted)
    failures: Counter[str] = Counter()
    _seed()
    try:
        samples = list(entry.sample_inputs(device, dtype))
    except Exception as error:  # noqa: BLE001 - torch's test code may raise any exception
        return Found(exclusions=(Exclusion("", f"OpInfo makes no sample: {_first_line(error)}", name),))
    for sample in samples:
        try:
            with torch.no_grad(), recorder:
                entry(sample.input, *sample.args, **sample.kwargs)
        except Exception as error:  # noqa: BLE001
            failures[f"the sample fails in torch itself: {_first_line(error)}"] += 1
    exclusions = [Exclusion("", reason, name, count) for reason, count in failures.items()]
    exclusions += [Exclusion(op, reason, name, count) for (op, reason), count in recorder.unrecorded.items()]
    return _cases_of_calls(
        name, recorder, order, device, send, Found(exclusions=tuple(exclusions), operators=called.operators)
    )


class _CalledOperators:
    """Collects the overloads that an OpInfo entry calls, and decides which of them are recorded."""

    def __init__(self, names: tuple[str, ...] | None) -> None:
        self._query = CaseQuery(names)
        self._seen: dict[str, bool] = {}

    def is_wanted(self, operator: str) -> bool:
        if operator not in self._seen:
            self._seen[operator] = selects(self._query, operator)
        return self._seen[operator]

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(operator for operator in self._seen if not is_bookkeeping(operator))


def _cases_of_calls(
    name: str, recorder: Recorder, order: Sample, device: torch.device, send: SendReply, found: Found
) -> Found:
    """Make cases of the recorded calls, operator by operator.

    Seeds are reset before each call, so that its case does not depend on which other calls are requested.
    """
    domains = domains_of(recorder.calls.values())
    cases: dict[int, schema.Case] = {}
    exclusions = list(found.exclusions)
    for operator, calls in _by_operator(recorder).items():
        if operator in order.without:
            exclusions.append(Exclusion(operator, CRASHES, name, len(calls)))
            continue
        send(BegunReply(operator))
        for number, call in calls:
            _seed()
            try:
                case = _case(call, domains, device, cautious=operator in order.cautious)
            except Unfit as error:
                exclusions.append(Exclusion(operator, str(error), name))
            else:
                cases[number] = msgspec.structs.replace(case, tags=(name,), occurrences=0)
    numbers = tuple(sorted(cases))
    return Found(tuple(cases[number] for number in numbers), tuple(exclusions), numbers, found.operators)


def _by_operator(recorder: Recorder) -> dict[str, list[tuple[int, RecordedCall]]]:
    """Operator -> its calls with their numbers."""
    found: dict[str, list[tuple[int, RecordedCall]]] = {}
    for key, call in recorder.calls.items():
        found.setdefault(call.operator, []).append((recorder.first[key], call))
    return found


def _case(call: RecordedCall, domains: Domains, device: torch.device, *, cautious: bool) -> schema.Case:
    """Make a case: fit and audit it on the host if the operator runs there, and call it once on the device.

    Fitting tries invalid values: the CPU raises an error, but a GPU process may end. Fitting and audit also take
    hundreds of tiny steps, which are slow on a GPU.
    """
    if device.type != _HOST.type and operators.runs_on_the_host(call.operator):
        with contextlib.suppress(Unfit):
            case = fit(call, SUITE, domains, _HOST, cautious=cautious)
            if _device_accepts(case, device):
                return _checked_for_repeatability(_with_audit(case, _HOST), device)
    return _checked_for_repeatability(_with_audit(fit(call, SUITE, domains, device, cautious=cautious), device), device)


def _device_accepts(case: schema.Case, device: torch.device) -> bool:
    """Whether torch accepts a call of the case on the device."""
    try:
        Evaluator(case, device).native([draw_call(case, 0, device)])
    except ReferenceFailure:
        return False
    return True


def _checked_for_repeatability(case: schema.Case, device: torch.device) -> schema.Case:
    """The case. Raises ``Unfit`` if torch's results differ when repeated: threads of a device may race."""
    if device.type != _HOST.type and not repeats_itself(Evaluator(case, device), draw_call(case, 0, device)):
        raise Unfit("torch itself returns a different result each time")
    return case


def _with_audit(case: schema.Case, device: torch.device) -> schema.Case:
    """The case, marked as indistinct if a trivially wrong kernel agrees on it."""
    if case.indistinct:
        return case
    passed = [name for finding in audit([case], device).findings for name in finding.adversaries]
    return (
        msgspec.structs.replace(case, indistinct=f"trivial kernels agree: {', '.join(passed[:4])}") if passed else case
    )


def _enlarged(case: schema.Case, device: torch.device) -> Found:
    _seed()
    found = enlarged(case, device)
    return Found() if found is None else Found((found,))


def _seed() -> None:
    """Reset the seeds, so that the catalogue is the same each time it is built."""
    random.seed(0)
    torch.manual_seed(0)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


if __name__ == "__main__":
    main()
