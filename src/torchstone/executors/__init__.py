"""Executors: bring jobs to judges."""

from torchstone.executors.base import Executor, ExecutorOptions, FakeExecutor, Session

__all__ = ["Executor", "ExecutorOptions", "FakeExecutor", "Session"]
