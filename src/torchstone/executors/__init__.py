"""WHERE IT RUNS."""

from torchstone.executors.base import Executor, ExecutorOptions, FakeExecutor

__all__ = ["Executor", "ExecutorOptions", "FakeExecutor"]
