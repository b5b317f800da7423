"""Runs a coroutine for a caller that does not await, also where an event loop runs already: in a notebook."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from threading import Thread
from typing import Any


def run_now(work: Coroutine[Any, Any, Any]) -> Any:
    """Run the coroutine and return its result. If this thread runs an event loop, it runs in another thread and loop.

    Ctrl-C then cancels it there, and is raised when it has ended.
    """
    if not _has_loop():
        return asyncio.run(work)
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()
    done: Future[Any] = Future()
    Thread(target=_run_in_thread, args=(work, begun, done), daemon=True).start()
    try:
        return done.result()
    except KeyboardInterrupt:
        if not done.done():
            loop, task = begun.result()
            loop.call_soon_threadsafe(task.cancel)
            wait([done])
        raise


def _has_loop() -> bool:
    """Whether this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_in_thread(
    work: Coroutine[Any, Any, Any],
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]],
    done: Future[Any],
) -> None:
    async def with_task_reported() -> Any:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await work

    try:
        done.set_result(asyncio.run(with_task_reported()))
    except BaseException as error:  # noqa: BLE001 - `done.result()` raises it in the caller
        done.set_exception(error)
