"""Defines the messages between `torchstone model` and the processes that train the model. Imports no torch."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchstone.backends import Problem


class ModelOrder(msgspec.Struct, frozen=True, tag=True):
    """How a side (the training with or without kernels) is set up."""

    script: str
    device: str
    threads: int
    seed: int
    kernels_dir: str | None = None
    """None: torch's own operators."""
    operators: tuple[str, ...] | None = None
    fallback: bool = False
    noisy_copies: int = 0
    """Train this many models, each with weights and inputs changed by one rounding; 0: one model, unchanged."""


class Step(msgspec.Struct, frozen=True, tag=True):
    """Train one step."""

    number: int
    keep: str = ""
    """Folder to which outputs and gradients are written; empty: they are not kept."""


class Finish(msgspec.Struct, frozen=True, tag=True):
    """Report how often each kernel was called. This is the last request."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The model is made and the kernels are installed."""

    parameters: int
    installed: dict[str, str] = {}
    problems: tuple[Problem, ...] = ()


class Stepped(msgspec.Struct, frozen=True, tag=True):
    """One step is done."""

    losses: tuple[float, ...]
    """One loss for each copy of the model."""
    seconds: float
    loss_epsilon: float
    """Machine epsilon of the loss's dtype."""


class Counted(msgspec.Struct, frozen=True, tag=True):
    """Calls per overload: of its kernel, and those among them that the kernel refused."""

    calls: dict[str, int]
    refused: dict[str, int]


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Why a side has ended early."""

    by: Literal["script", "kernel", "usage", "machine", "death"]
    message: str


Request = ModelOrder | Step | Finish
Reply = Ready | Stepped | Counted | Failed
