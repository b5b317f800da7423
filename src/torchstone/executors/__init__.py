"""Executors: send jobs to judges on this machine, on a Ray cluster or on Modal."""

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
from torchstone.executors.batch_session import BatchSession, session_of
from torchstone.executors.judge_site import Site

__all__ = [
    "Answer",
    "BatchSession",
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
    "session_of",
    "ticket_of",
]
