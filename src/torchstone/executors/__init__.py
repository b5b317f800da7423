"""Executors: bring jobs to judges."""

from torchstone.executors.base import (
    Answer,
    Executor,
    ExecutorOptions,
    FakeExecutor,
    FakeSession,
    Session,
    Ticket,
    fake_record,
    judge_one,
    run_in,
    ticket_of,
)

__all__ = [
    "Answer",
    "Executor",
    "ExecutorOptions",
    "FakeExecutor",
    "FakeSession",
    "Session",
    "Ticket",
    "fake_record",
    "judge_one",
    "run_in",
    "ticket_of",
]
