"""``torchstone model``: trains a script's model with and without kernels, in turn, and compares.

Each side (with kernels, without) has its own process and the same seeds. They take turns, so that disturbances of the
machine affect both. A third process trains copies whose weights and inputs are changed by one rounding, to measure how
much difference is noise. Imports no torch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import msgspec

from torchstone.backends.torchstone_kernels import is_built_in
from torchstone.errors import InfrastructureError, UsageError
from torchstone.installing.training_comparison import (
    Difference,
    ModelComparison,
    OperatorUse,
    compare_files,
    compare_losses,
    times_of,
)
from torchstone.installing.training_process_messages import (
    Counted,
    Failed,
    Finish,
    ModelOrder,
    Ready,
    Reply,
    Request,
    Step,
    Stepped,
)
from torchstone.processes import ending_in_words, receive, send

NOISY_COPIES = 2
"""Copies of the plain training, changed by one rounding, that measure how much difference is noise."""
OnStep = Callable[[int, int], None]
"""Called after each step with the number of steps done and the number of all steps."""


class ModelRequest(msgspec.Struct, frozen=True):
    """What to compare."""

    script: Path
    kernels_dir: Path
    device: str
    """``cpu``, ``cuda`` or ``cuda:N``."""
    operators: tuple[str, ...] | None = None
    steps: int = 20
    seed: int = 0
    threads: int = 1
    fallback: bool = False


class _SideFailedError(Exception):
    """A side failed and has ended."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


class _Side:
    """Starts the process of one side, sends it requests and reads its replies."""

    def __init__(self, order: ModelOrder) -> None:
        to_read, to_write = os.pipe()
        to_receive, to_reply = os.pipe()
        command = [sys.executable, "-P", "-m", "torchstone.installing.training_process", str(to_read), str(to_reply)]
        # The script's output goes to stderr, not among our results. Ctrl-C reaches this process only.
        self._process = subprocess.Popen(
            command, pass_fds=(to_read, to_reply), stdin=subprocess.DEVNULL, stdout=2, start_new_session=True
        )
        os.close(to_read)
        os.close(to_reply)
        self._requests = os.fdopen(to_write, "wb")
        self._replies = os.fdopen(to_receive, "rb")
        self._send(order)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # with processes of the script: the side has its own session
        self._process.wait()
        for stream in (self._requests, self._replies):
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def wait_until_ready(self) -> Ready:
        reply = self._reply()
        assert isinstance(reply, Ready), "the answer to an order"
        return reply

    def step(self, number: int, keep: Path | None) -> Stepped:
        self._send(Step(number, "" if keep is None else str(keep)))
        reply = self._reply()
        assert isinstance(reply, Stepped), "the answer to a step"
        return reply

    def finish(self) -> Counted:
        self._send(Finish())
        reply = self._reply()
        assert isinstance(reply, Counted), "the answer to the end"
        return reply

    def _send(self, request: Request) -> None:
        with contextlib.suppress(BrokenPipeError):  # `_reply` reports the missing reply
            send(self._requests, request)

    def _reply(self) -> Reply:
        reply: Reply | None = receive(self._replies, Reply)  # type: ignore[arg-type]  # a union
        if reply is None:
            raise _SideFailedError(Failed("death", f"its process {ending_in_words(self._process.wait())}"))
        if isinstance(reply, Failed):
            raise _SideFailedError(reply)
        return reply


class _History:
    """The replies of each side, step by step."""

    def __init__(self) -> None:
        self.plain: list[Stepped] = []
        self.kernels: list[Stepped] = []
        self.noisy: list[Stepped] = []
        self.failure = ""


def compare(request: ModelRequest, on_step: OnStep) -> ModelComparison:
    """Train with and without kernels, and compare. Raises UsageError for a faulty script or kernels folder."""
    _check(request)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="torchstone-model-")))
        first, *others = _orders(request)
        plain = stack.enter_context(_Side(first))
        with _blaming_script(request.script):  # alone: a wrong script fails once and soon
            parameters = plain.wait_until_ready().parameters
        kernels, noisy = (stack.enter_context(_Side(order)) for order in others)
        with _blaming_script(request.script):
            noisy.wait_until_ready()
        with _blaming_kernels():
            ready = kernels.wait_until_ready()
        history = _train(request, folder, plain, kernels, noisy, on_step)
        return _comparison(request, folder, history, ready, _calls_of_kernels(kernels, history), parameters)


def _check(request: ModelRequest) -> None:
    if not request.script.is_file():
        raise UsageError(f"script '{request.script}' is not a file. Give a Python file with make_model and make_batch.")
    if not request.kernels_dir.is_dir() and not is_built_in(request.kernels_dir):
        raise UsageError(f"kernels folder '{request.kernels_dir}' is not a folder.")


def _orders(request: ModelRequest) -> Iterator[ModelOrder]:
    plain = ModelOrder(str(request.script), request.device, request.threads, request.seed)
    yield plain
    yield msgspec.structs.replace(
        plain, kernels_dir=str(request.kernels_dir), operators=request.operators, fallback=request.fallback
    )
    yield msgspec.structs.replace(plain, noisy_copies=NOISY_COPIES)


def _train(
    request: ModelRequest, folder: Path, plain: _Side, kernels: _Side, noisy: _Side, on_step: OnStep
) -> _History:
    history = _History()
    for number in range(request.steps):
        folder_to_keep = _folder_to_keep(folder, number, request.steps)

        def step_plain(number: int = number, keep: Path | None = folder_to_keep) -> None:
            with _blaming_script(request.script):
                history.plain.append(plain.step(number, keep and keep / "plain"))

        def step_kernels(number: int = number, keep: Path | None = folder_to_keep) -> None:
            try:
                history.kernels.append(kernels.step(number, keep and keep / "kernels"))
            except _SideFailedError as error:
                history.failure = f"with the kernels, step {number + 1}: {error.failed.message}"

        # The order alternates, so that neither side always comes second.
        for step in (step_plain, step_kernels) if number % 2 == 0 else (step_kernels, step_plain):
            step()
        if history.failure:
            break
        with _blaming_script(request.script):
            history.noisy.append(noisy.step(number, folder_to_keep and folder_to_keep / "noisy"))
        on_step(number + 1, request.steps)
    return history


def _calls_of_kernels(kernels: _Side, history: _History) -> Counted:
    """How often each kernel was called; empty if the side with kernels failed."""
    if not history.failure:
        try:
            return kernels.finish()
        except _SideFailedError as error:
            history.failure = f"with the kernels, after the last step: {error}"
    return Counted({}, {})


def _folder_to_keep(folder: Path, number: int, steps: int) -> Path | None:
    """Folder for outputs and gradients of this step. None: only the first and the last step are kept."""
    if number == 0:
        return folder / "first"
    return folder / "last" if number == steps - 1 else None


@contextlib.contextmanager
def _blaming_script(script: Path) -> Iterator[None]:
    """Raise the failure of a side without kernels as UsageError of the script, or as InfrastructureError."""
    try:
        yield
    except _SideFailedError as error:
        if error.failed.by in ("machine", "death"):
            raise InfrastructureError(f"training {script.name} without kernels: {error}.") from error
        raise UsageError(f"{str(error).removesuffix('.')}.") from error


@contextlib.contextmanager
def _blaming_kernels() -> Iterator[None]:
    """Raise a failure before the first step with kernels as UsageError of the kernels folder: the script has worked
    without them. A failure of the machine is an InfrastructureError.
    """
    try:
        yield
    except _SideFailedError as error:
        if error.failed.by == "machine":
            raise InfrastructureError(f"with the kernels: {error}.") from error
        text = f"while the kernels were loaded, {error}" if error.failed.by == "death" else str(error)
        raise UsageError(f"{text.removesuffix('.')}.") from error


def _comparison(
    request: ModelRequest, folder: Path, history: _History, ready: Ready, counted: Counted, parameters: int
) -> ModelComparison:
    done = len(history.noisy)
    uses = tuple(
        OperatorUse(operator, kernel, counted.calls.get(operator, 0), counted.refused.get(operator, 0))
        for operator, kernel in ready.installed.items()
    )
    failure = history.failure
    if not failure and not any(use.calls for use in uses):
        failure = "the model calls none of the operators that the kernels are for"
    plain, kernels = history.plain[:done], history.kernels[:done]
    return ModelComparison(
        script=str(request.script),
        kernels_dir=str(request.kernels_dir),
        device=request.device,
        steps=done,
        parameters=parameters,
        operators=uses,
        problems=ready.problems,
        differences=tuple(_differences(request, folder, history)) if done else (),
        plain_losses=tuple(step.losses[0] for step in plain),
        kernels_losses=tuple(step.losses[0] for step in kernels),
        times=times_of([step.seconds for step in plain], [step.seconds for step in kernels]),
        failure=failure,
    )


def _differences(request: ModelRequest, folder: Path, history: _History) -> Iterator[Difference]:
    done = len(history.noisy)
    moments = ["first"] if request.steps == 1 or done < request.steps else ["first", "last"]
    for moment in moments:
        for kind in ("outputs", "gradients"):
            file = f"{kind}.npz"
            copies = [folder / moment / "noisy" / str(copy) / file for copy in range(NOISY_COPIES)]
            plain, kernels = (folder / moment / side / "0" / file for side in ("plain", "kernels"))
            yield compare_files(f"{kind}, {moment} step", plain, kernels, copies)
    yield compare_losses(
        [step.losses[0] for step in history.plain[:done]],
        [step.losses[0] for step in history.kernels[:done]],
        [[step.losses[copy] for step in history.noisy] for copy in range(NOISY_COPIES)],
        history.plain[0].loss_epsilon,
    )
