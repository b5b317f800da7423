"""WHERE IT RUNS."""

from torchstone.executors.base import Executor, ExecutorOptions, FakeExecutor, Session

__all__ = ["Executor", "ExecutorOptions", "FakeExecutor", "Session"]
