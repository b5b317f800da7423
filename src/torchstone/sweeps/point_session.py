"""Answers a sweep in the process that has the device: opens it, loads users' operations, measures points one by one."""

from __future__ import annotations

import os
from typing import ClassVar

import torch

from torchstone.errors import UsageError
from torchstone.executors.machine import hardware
from torchstone.schema.sweep import SweepPoint
from torchstone.sweeps import process_messages as messages
from torchstone.sweeps.device_limit import SpeedLimits
from torchstone.sweeps.last_step_file import LastStepFile
from torchstone.sweeps.operations import BUILT_IN, Function, Operation, why_missing
from torchstone.sweeps.point_measurement import DeviceLostError, PointMeter
from torchstone.sweeps.process_messages import Broken, Failed, Measure, MeasurementReply, Open, Opened, OwnOperation
from torchstone.sweeps.timing import Call
from torchstone.sweeps.user_operation import load_operation


class PointSession:
    """Carries out the requests of a sweep in the process that has the device."""

    request_type: ClassVar[object] = messages.Request

    def __init__(self) -> None:
        self._operations: dict[str, Operation] = dict(BUILT_IN)
        self._meter: PointMeter | None = None

    def handle(self, request: messages.Request) -> messages.Reply:
        """One reply to each request."""
        try:
            return self._open(request) if isinstance(request, Open) else self._measure(request)
        except UsageError as error:
            return Failed(str(error), is_usage=True)
        except DeviceLostError as error:
            return Broken(*error.args)
        except Exception as error:  # noqa: BLE001 - the sweep decides what to do without this point
            return Failed(f"{type(error).__name__}: {error}")

    def _open(self, request: Open) -> Opened:
        os.environ.update(request.environment)
        os.chdir(request.folder)
        torch.set_num_threads(request.threads)
        device, name = _open_device(request.device_type)
        own = []
        for file in request.files:
            operation = load_operation(file, request.seed)
            if operation.name in self._operations:
                raise UsageError(
                    f"{file} defines '{operation.name}', which is defined already. Give it another 'name'."
                )
            self._operations[operation.name] = operation
            own.append(OwnOperation(file, operation.name, tuple(operation.implementations)))
        limits = SpeedLimits(device, name, request.threads, request.ceilings_folder)
        self._meter = PointMeter(device, name, limits, request.seed, LastStepFile(request.last_step_file).write)
        missing = {name: why_missing(name, request.device_type) for name in request.implementations}
        return Opened(
            device=name,
            missing={name: reason for name, reason in missing.items() if reason},
            lacking={name: dict(operation.lacking) for name, operation in self._operations.items()},
            own=tuple(own),
        )

    def _measure(self, request: Measure) -> MeasurementReply:
        assert self._meter is not None, "the device is opened first"
        operation = self._operations[request.point.operation]
        functions = {name: self._function(operation, name, request.point) for name in request.implementations}
        return MeasurementReply(self._meter.measure(operation, request.point, functions))

    def call(self, point: SweepPoint, implementation: str) -> Call:
        """Prepare one call of an implementation, for a profiler."""
        assert self._meter is not None, "the device is opened first"
        operation = self._operations[point.operation]
        return self._meter.call(operation, point, self._function(operation, implementation, point))

    def _function(self, operation: Operation, name: str, point: SweepPoint) -> Function | None:
        """None: compile the reference."""
        return None if name == "Compile" else operation.function(name)


def _open_device(kind: str) -> tuple[torch.device, str]:
    """The device and its name. Calls run on a new stream, since the default stream cannot be captured."""
    if kind != "cuda":
        return torch.device("cpu"), hardware().cpu
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    torch.cuda.set_stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
    return device, torch.cuda.get_device_name(device)
