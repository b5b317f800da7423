"""Runs asyncio tasks together: the first error cancels the others. Ctrl-C and SIGTERM cancel a whole run."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any


async def all_or_first_error(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all coroutines at the same time. The first error cancels the others, and is raised when they have ended."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def interruptible(task: asyncio.Task[Any] | None, on_interrupt: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM call ``on_interrupt`` and cancel the task at its next await.

    A second signal has its usual effect. Does nothing outside of the main thread.
    """
    if task is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        on_interrupt()
        for number in numbers:
            loop.remove_signal_handler(number)
        task.cancel()

    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
