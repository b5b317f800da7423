"""Data classes of kernels that models write: requests, replies, and the outcome of each attempt. No torch."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchstone.schema.codec import FORMAT_VERSION

GENERATION = "generation.json"
"""Tells the folder of a run of generation from others; see `GenerationRun`."""
BEST = "best.json"
"""In an operator's folder; see `BestAttempt`."""

Strategy = Literal["refine", "best-of-n", "evolve"]
"""How attempts follow from one another: each from the last one's feedback, all independent, or from the best ones."""


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one request or of many, as the provider counts them."""

    input_tokens: int = 0
    """Of what was sent, those read from the provider's cache included."""
    output_tokens: int = 0
    """Of the reply, hidden reasoning included."""
    cached_input_tokens: int = 0
    """Of the input, those that the provider had in its cache."""
    cost_usd: float | None = None
    """US dollars by the price table; None: the price of the model is not known."""

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


Authorship = Literal["own", "mixed", "torch", "unknown"]
"""What computes the results of a right kernel.

- `own`: its own code.
- `mixed`: its own code, and torch or a library.
- `torch`: torch or a library alone.
- `unknown`: nobody saw what did the work."""


class Judged(msgspec.Struct, frozen=True, tag="judged"):
    """The reply held code, and it was judged."""

    verdict: str
    """Name of the worst verdict among its cases: ``agrees``, ``disagrees``, ``crashed``, ``cheated`` …"""
    verdicts: dict[str, int]
    """Name of a verdict -> how many cases had it."""
    records_file: str
    """Path in the run folder: JSON lines, one record for each case (`records_of`)."""
    right: bool = False
    """Whether every case agreed, of those that torch itself can compute here."""
    correctness: float = 0.0
    """Share of those cases that agreed."""
    speedup: float | None = None
    """Geometric mean of reference time over kernel time; None unless the kernel is right and some case was timed."""
    speedup_low: float | None = None
    """Lower end of its 95 % interval."""
    speedup_high: float | None = None
    authorship: Authorship = "unknown"
    """Of a right kernel. A kernel that only calls torch's operators is right too, and has no code of its own."""


class NoCode(msgspec.Struct, frozen=True, tag="no_code"):
    """The reply held no code that could be judged."""

    problem: str
    """What is wrong with the reply, as the model is told."""


class ProviderFailed(msgspec.Struct, frozen=True, tag="provider_failed"):
    """There was no reply: every request failed. A resumed run asks again."""

    reason: Literal["rate_limit", "overloaded", "connection", "timeout", "garbage", "refused"]
    """`refused`: the server rejects the request, and asking again would not help."""
    message: str


class NotJudged(msgspec.Struct, frozen=True, tag="not_judged"):
    """The machine, not the kernel, prevented a verdict. A resumed run judges the stored reply again."""

    reason: str


Outcome = Judged | NoCode | ProviderFailed | NotJudged


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a model at one operator: a line of the journal of a run of generation (`records.jsonl`)."""

    format_version: int = FORMAT_VERSION
    kind: Literal["attempt"] = "attempt"
    operator: str
    """Full overload name: ``aten.add.Tensor``."""
    folder: str
    """The operator's folder in the run folder: ``add``."""
    number: int
    """From 1."""
    parents: tuple[int, ...] = ()
    """Attempts whose code and feedback the model was shown; empty: it saw the first prompt alone."""
    outcome: Outcome
    file: str | None = None
    """Path of the kernel in the run folder, ``relu/relu_attempt_1.py``; None if there was no code."""
    usage: Usage = Usage()
    """Of the request that was answered."""
    requests: int = 1
    """How often the provider was asked, failed tries included."""
    asking_seconds: float = 0.0
    """From the first request to the whole reply, waits for the provider's limits included."""
    judging_seconds: float = 0.0
    """From handing the kernel to the judge to its verdict, waits for other kernels included."""
    finished_unix_ns: int = 0

    @property
    def right(self) -> bool:
        """Whether every case agreed."""
        return isinstance(self.outcome, Judged) and self.outcome.right


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Literal["user", "assistant"]
    text: str


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt sent and received: a line of the operator's ``transcript.jsonl``, written before judging."""

    operator: str
    number: int
    """Of the attempt, from 1."""
    parents: tuple[int, ...] = ()
    model: str
    messages: tuple[Message, ...]
    reply: str
    stop_reason: str = ""
    """Why the model ended, in the provider's words."""
    usage: Usage = Usage()
    requests: int = 1
    asking_seconds: float = 0.0
    replied_unix_ns: int = 0


class BestAttempt(msgspec.Struct, frozen=True):
    """``best.json`` beside the attempts: the one that the backend `directory` takes."""

    file: str
    """Its name in this folder."""
    number: int
    right: bool
    """Whether every case agreed when it was judged."""
    correctness: float
    """Share of cases that agreed."""
    speedup: float | None = None
    speedup_low: float | None = None
    """What right attempts are ordered by."""


class GenerationRun(msgspec.Struct, frozen=True, kw_only=True):
    """``generation.json``: what a run folder of generation is about. Its presence tells such a folder from others."""

    format_version: int = FORMAT_VERSION
    started_unix_ns: int
    suite: str
    provider: str
    model: str
    dsl: str
    """Language of the kernels, as `--dsl` names it."""
    strategy: Strategy
    max_attempts: int
    """For each operator."""
    folders: dict[str, str]
    """Operator -> its folder: all that were asked for, also those without an attempt yet."""
    device: str = ""
    """What the kernels are judged on: ``cpu``, ``cuda:0``."""
    effort: str = ""
    mode: str = "fwd"
    """Whether kernels are judged by their results, their gradients (``bwd``), or both."""
    source: str | None = None
    """The suite's folder or file, for suites that read one."""
