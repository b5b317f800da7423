"""``python -m torchstone.installing.training_process IN OUT``: trains a script's model, with or without kernels.

Started by ``torchstone model``. IN and OUT are descriptors of pipes: it reads requests from IN and writes replies to
OUT. Runs the user's script and kernels, both trusted and without a sandbox.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import BinaryIO

import torch

from torchstone.errors import KernelError, UsageError
from torchstone.installing.enabling import Installation, enable
from torchstone.installing.model_training import Script, ScriptError, Training
from torchstone.installing.training_process_messages import (
    Counted,
    Failed,
    ModelOrder,
    Ready,
    Reply,
    Request,
    Step,
    Stepped,
)
from torchstone.processes import receive, send


class Side:
    """The training with or without kernels; or, to measure noise, several copies of the one without."""

    def __init__(self, order: ModelOrder) -> None:
        torch.set_num_threads(order.threads)
        device = torch.device(order.device)
        script = Script(Path(order.script))
        noises = [torch.Generator().manual_seed(copy) for copy in range(order.noisy_copies)]
        # Before any kernel is installed: all sides begin with the same weights.
        self._trainings = [Training(script, device, order.seed, noise) for noise in noises or (None,)]
        self._installation = None if order.kernels_dir is None else _enabled(order, order.kernels_dir)

    def ready(self) -> Ready:
        installed = self._installation
        parameters = self._trainings[0].parameters
        return Ready(parameters) if installed is None else Ready(parameters, installed.installed, installed.problems)

    def step(self, request: Step) -> Stepped:
        done = [
            training.step(request.number, Path(request.keep) / str(copy) if request.keep else None)
            for copy, training in enumerate(self._trainings)
        ]
        return Stepped(tuple(item.loss for item in done), sum(item.seconds for item in done), done[0].loss_epsilon)

    def counted(self) -> Counted:
        found = self._installation
        return Counted({}, {}) if found is None else Counted(found.calls, found.refused)


def _enabled(order: ModelOrder, folder: str) -> Installation:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reply contains the problems that it warns of
        device_type = torch.device(order.device).type
        return enable(folder, operators=order.operators, device=device_type, fallback=order.fallback)  # type: ignore[arg-type]


def main() -> int:
    """Answer requests until the caller closes its pipe or something fails."""
    with os.fdopen(int(sys.argv[1]), "rb") as requests, os.fdopen(int(sys.argv[2]), "wb") as replies:
        order = _next(requests)
        assert isinstance(order, ModelOrder), "the first message"
        try:
            side = Side(order)
            send(replies, side.ready())
            _serve(side, requests, replies)
        except ScriptError as error:
            send(replies, Failed("script", str(error)))
        except KernelError as error:
            send(replies, Failed("kernel", str(error)))
        except UsageError as error:
            send(replies, Failed("usage", str(error)))
        except Exception as error:  # noqa: BLE001 - devices fail in many ways; every failure is reported in one line
            send(replies, Failed("machine", f"{type(error).__name__}: {error}"))
    return 0


def _next(requests: BinaryIO) -> Request | None:
    return receive(requests, Request)  # type: ignore[arg-type]  # a union


def _serve(side: Side, requests: BinaryIO, replies: BinaryIO) -> None:
    while (request := _next(requests)) is not None:
        reply: Reply = side.step(request) if isinstance(request, Step) else side.counted()
        send(replies, reply)


if __name__ == "__main__":
    sys.exit(main())
