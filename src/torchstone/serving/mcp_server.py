"""MCP server (Model Context Protocol) over stdin and stdout: the tools through which an agent uses the service.

Only this module uses the MCP SDK; `cli/mcp.py` checks that it is installed. Stdout belongs to the protocol: the SDK
takes it over before any message.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any, Literal, ParamSpec

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskStatus
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent
from pydantic import Field

from torchstone.api.jobs_for_kernels import Purpose
from torchstone.errors import TorchstoneError
from torchstone.executors.versions import own_version
from torchstone.schema import Effort
from torchstone.serving.answers import GivenKernel, JobAnswer
from torchstone.serving.jobs import JudgingJob
from torchstone.serving.service import LIMIT_SECONDS, KernelService

NAME = "torchstone"
INSTRUCTIONS = """\
Torchstone judges PyTorch operator kernels: is a kernel right, how fast is it, how far from the device's limit. The
kernel runs in a sandbox. It is called with fresh inputs, also with other sizes, strides and special values (NaN,
infinities, ties) than the listed cases have: write it for every input that PyTorch's operator takes.

A kernel is a Python file (Triton and inline CUDA included), or a .cpp or .cu file, with one function named
<operator>_kernel_impl that takes the operator's arguments in PyTorch's order and returns what it returns.

Work like this: list_cases, write the kernel, check_kernel until it is right, then measure_kernel, profile_kernel to see
where the time goes. A call that takes longer than wait_seconds answers with a job: ask job_progress for it."""
_INTERRUPTED = 130
"""Exit code after SIGINT, as that of every command."""
WAIT_SECONDS = 45.0
"""How long a tool waits for a verdict by default: less than the minute after which clients abandon a call."""
_MOST_WAIT_SECONDS = 3600.0
_POLL_SECONDS = 0.05
"""Time between two checks whether a job has ended."""
_SECONDS_BETWEEN_NOTIFICATIONS = 2.0
"""Time between two progress notifications. Clients that receive none may abandon the call."""
_MOST_LISTED = 200
"""Most rows of a list in the text of an answer."""

P = ParamSpec("P")
Operator = Annotated[str, Field(description="relu, add.Tensor or aten.add.Tensor")]
Source = Annotated[str, Field(description="The whole text of a Python kernel file. Give source or path, not both.")]
Path_ = Annotated[str, Field(description="A kernel file (.py, .cpp, .cu). Give source or path, not both.")]
Entry = Annotated[str, Field(description="Name of the kernel's function, if it is not <operator>_kernel_impl.")]
Suite = Annotated[str, Field(description="Where the cases come from: smoke, opinfo, … Empty: the server's choice.")]
DTypes = Annotated[list[str], Field(description="float32, bfloat16 … Empty: the suite's choice.")]
Wait = Annotated[
    float, Field(ge=0, le=_MOST_WAIT_SECONDS, description="After so many seconds the answer is a job to ask about.")
]
Limit = Annotated[
    float, Field(gt=0, le=_MOST_WAIT_SECONDS, description="Longest time of the first call, and of a case's check.")
]


def serve(service: KernelService) -> None:
    """Serve one client until it closes stdin. SIGINT ends the process."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    anyio.run(_serve, service)


async def _serve(service: KernelService) -> None:
    async with anyio.create_task_group() as group:
        await group.start(_end_on_interrupt, service)
        await server_for(service).run_stdio_async()
        group.cancel_scope.cancel()


async def _end_on_interrupt(service: KernelService, *, task_status: TaskStatus[None]) -> None:
    """Close the service and end the process at once. A thread of the SDK blocks in a read from stdin until Enter."""
    with anyio.open_signal_receiver(signal.SIGINT) as signals:
        task_status.started()
        await anext(signals)
        try:
            await _in_thread(service.close)
        finally:
            print("interrupted", file=sys.stderr, flush=True)
            os._exit(_INTERRUPTED)


def server_for(service: KernelService) -> MCPServer[Any]:
    """The server, not yet running. Tests may talk to it without a process."""
    server: MCPServer[Any] = MCPServer(NAME, instructions=INSTRUCTIONS, version=own_version(), log_level="WARNING")
    _add_lists(server, service)
    _add_judging(server, service)
    _add_jobs(server, service)
    _add_explaining_and_profiling(server, service)
    return server


# ---- tools


def _add_lists(server: MCPServer[Any], service: KernelService) -> None:
    @server.tool(structured_output=False)
    @_errors_as_answers
    async def list_operators(suite: Suite = "", contains: str = "") -> CallToolResult:
        """List the operators that kernels can be judged for, with their numbers of cases."""
        found = await _in_thread(service.operators, suite, contains)
        rows = [f"{each.operator}: {each.cases} cases, {each.timed_cases} timed" for each in found]
        return _answer({"operators": found}, _rows_text(rows))

    @server.tool(structured_output=False)
    @_errors_as_answers
    async def list_cases(operator: Operator, suite: Suite = "", dtypes: DTypes = []) -> CallToolResult:  # noqa: B006
        """List the cases of an operator: the arguments that its kernel is called with. Variants are drawn besides."""
        found = await _in_thread(service.cases, operator, suite, dtypes)
        rows = [f"{each.case[:8]} {each.operator}({each.arguments}){' timed' * each.timed}" for each in found]
        return _answer({"cases": found}, _rows_text(rows))


def _add_judging(server: MCPServer[Any], service: KernelService) -> None:
    for name, (purpose, usual_effort, description) in _JUDGING.items():
        server.tool(name, description=description, structured_output=False)(
            _errors_as_answers(_judging_tool(service, purpose, usual_effort))
        )


_JUDGING: dict[str, tuple[Purpose, Effort, str]] = {
    "check_kernel": (
        "check",
        "quick",
        "Is this kernel right? Tells which cases are wrong and why: where, by how much, on what kind of values.",
    ),
    "measure_kernel": (
        "measure",
        "normal",
        "How fast is this kernel? Checks and times the timed cases: speedup with its interval, share of the limit.",
    ),
}
"""Tools that judge one kernel: name -> purpose, default effort, description."""


def _judging_tool(
    service: KernelService, purpose: Purpose, usual_effort: Effort
) -> Callable[..., Awaitable[CallToolResult]]:
    async def judge_kernel(
        ctx: Context[Any, Any],
        operator: Operator,
        source: Source = "",
        path: Path_ = "",
        entry: Entry = "",
        suite: Suite = "",
        dtypes: DTypes = [],  # noqa: B006
        effort: Effort = usual_effort,
        wait_seconds: Wait = WAIT_SECONDS,
        limit_seconds: Limit = LIMIT_SECONDS,
    ) -> CallToolResult:
        kernel = GivenKernel(operator, source, path, entry)
        job = await _in_thread(
            service.start, [kernel], purpose, suite=suite, dtypes=dtypes, effort=effort, limit_seconds=limit_seconds
        )
        return await _answer_after_waiting(service, job, wait_seconds, ctx)

    return judge_kernel


def _add_jobs(server: MCPServer[Any], service: KernelService) -> None:
    @server.tool(structured_output=False)
    @_errors_as_answers
    async def start_job(
        kernels: Annotated[
            list[dict[str, str]],
            Field(description="Each with operator, and source or path, and entry if the function's name is unusual."),
        ],
        purpose: Literal["check", "measure", "evaluate"] = "evaluate",
        suite: Suite = "",
        dtypes: DTypes = [],  # noqa: B006
        effort: Effort = "normal",
        limit_seconds: Limit = LIMIT_SECONDS,
    ) -> CallToolResult:
        """Judge one or many kernels in the background: check, measure, or both. Answers at once with the job's name."""
        given = [_kernel(each) for each in kernels]
        job = await _in_thread(
            service.start, given, purpose, suite=suite, dtypes=dtypes, effort=effort, limit_seconds=limit_seconds
        )
        return _job_answer(service, job)

    @server.tool(structured_output=False)
    @_errors_as_answers
    async def job_progress(ctx: Context[Any, Any], job: str, wait_seconds: Wait = 0.0) -> CallToolResult:
        """How far a job is; once it has ended, the feedback for each of its kernels."""
        return await _answer_after_waiting(service, service.job(job), wait_seconds, ctx, cancels=False)

    @server.tool(structured_output=False)
    @_errors_as_answers
    async def cancel_job(job: str) -> CallToolResult:
        """Withdraw what a job has not judged yet. Answers with what there is."""
        found = service.job(job)
        await _in_thread(found.cancel)
        return _job_answer(service, found)


def _add_explaining_and_profiling(server: MCPServer[Any], service: KernelService) -> None:
    @server.tool(structured_output=False)
    @_errors_as_answers
    async def explain_record(
        record: Annotated[str, Field(description="Key of a record, as answers name it, or its first characters.")],
        run_folder: Annotated[str, Field(description="A run of 'torchstone run'. Empty: jobs of this server.")] = "",
    ) -> CallToolResult:
        """Explain one case by itself, in full length."""
        found = await _in_thread(service.explain, record, run_folder)
        return _answer(found, found.feedback.to_text())

    @server.tool(structured_output=False)
    @_errors_as_answers
    async def profile_kernel(
        operator: Operator,
        source: Source = "",
        path: Path_ = "",
        entry: Entry = "",
        case: Annotated[str, Field(description="Key or arguments of a case. Empty: the largest timed one.")] = "",
        profiler: Annotated[str, Field(description="torch; ncu and nsys only if the server allows them.")] = "torch",
        calls: Annotated[int, Field(ge=1, le=100)] = 5,
    ) -> CallToolResult:
        """Where does the time go? Runs the kernel on one case under a profiler. Its times are no measurements."""
        kernel = GivenKernel(operator, source, path, entry)
        made = await _in_thread(service.profile, kernel, case=case, profiler=profiler, calls=calls)
        return _answer(made, made.to_text())


def _kernel(given: dict[str, str]) -> GivenKernel:
    try:
        return msgspec.convert(given, GivenKernel)
    except msgspec.ValidationError as error:
        raise ToolError(f"a kernel of the job is not valid: {error}. Give operator, and source or path.") from error


# ---- answers


def _errors_as_answers(tool: Callable[P, Awaitable[CallToolResult]]) -> Callable[P, Awaitable[CallToolResult]]:
    """Decorator: a `TorchstoneError` of the tool becomes an answer of one line that is marked as an error."""

    @functools.wraps(tool)
    async def wrapped(*args: P.args, **kwargs: P.kwargs) -> CallToolResult:
        try:
            return await tool(*args, **kwargs)
        except TorchstoneError as error:
            raise ToolError(str(error)) from error

    return wrapped


async def _in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the function in a thread: suites read files and import torch, and must not block the protocol."""
    return await anyio.to_thread.run_sync(functools.partial(function, *args, **kwargs))


async def _answer_after_waiting(
    service: KernelService, job: JudgingJob, seconds: float, ctx: Context[Any, Any], *, cancels: bool = True
) -> CallToolResult:
    """Wait until the job has ended, at most these seconds, and answer with its results or its progress.

    ``cancels``: whether the job is cancelled if the client cancels its request.
    """
    deadline = time.monotonic() + seconds
    next_notification = time.monotonic() + _SECONDS_BETWEEN_NOTIFICATIONS
    try:
        while not job.is_over and time.monotonic() < deadline:
            await anyio.sleep(_POLL_SECONDS)
            if time.monotonic() >= next_notification:
                next_notification = time.monotonic() + _SECONDS_BETWEEN_NOTIFICATIONS
                await _notify_progress(job.answer(), ctx)
    except anyio.get_cancelled_exc_class():
        if cancels:
            job.cancel()
        raise
    return _job_answer(service, job)


async def _notify_progress(answer: JobAnswer, ctx: Context[Any, Any]) -> None:
    message = f"{answer.done_cases} of {answer.total_cases} cases, {answer.wrong_cases} wrong"
    await ctx.report_progress(answer.done_cases, answer.total_cases, message)


def _job_answer(service: KernelService, job: JudgingJob) -> CallToolResult:
    answer = job.answer()
    made = _answer(answer, answer.to_text(service.options.feedback_tokens))
    made.is_error = answer.state == "failed"
    return made


def _answer(noun: Any, text: str) -> CallToolResult:
    """A text for the model, and the same content as fields for programs."""
    fields = msgspec.to_builtins(noun, str_keys=True)
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=fields)


def _rows_text(rows: Iterable[str]) -> str:
    lines = list(rows)
    more = len(lines) - _MOST_LISTED
    return "\n".join([*lines[:_MOST_LISTED], *([f"… {more} more"] if more > 0 else [])]) or "none"
