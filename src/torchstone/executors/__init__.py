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
from torchstone.executors.site import Site

__all__ = [
    "Answer",
    "Executor",
    "ExecutorOptions",
    "FakeExecutor",
    "FakeSession",
    "Session",
    "Site",
    "Ticket",
    "fake_record",
    "judge_one",
    "run_in",
    "ticket_of",
]
