"""Data classes of kernels that models write: requests, replies, and the outcome of each attempt. No torch."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchstone.schema.codec import FORMAT_VERSION

GENERATION = "generation.json"
"""Name of the file in the run folder by which a run of generation is recognized; see `GenerationRun`."""
BEST = "best.json"
"""Name of the file about the best attempt, in an operator's folder; see `BestAttempt`."""

Strategy = Literal["refine", "best-of-n", "evolve"]
"""What an attempt starts from: the last attempt's feedback, nothing (all independent), or the best attempts."""


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one request or of many, as the provider counts them."""

    input_tokens: int = 0
    """Tokens of the request, including those from the provider's cache."""
    output_tokens: int = 0
    """Tokens of the reply, including hidden reasoning."""
    cached_input_tokens: int = 0
    """Input tokens that the provider had in its cache."""
    cost_usd: float | None = None
    """Cost in US dollars by the price table; None: the model's price is unknown."""

    @property
    def tokens(self) -> int:
        """Total of input and output tokens."""
        return self.input_tokens + self.output_tokens


Authorship = Literal["own", "mixed", "torch", "unknown"]
"""What computes the results of a right kernel.

- `own`: its own code.
- `mixed`: its own code, and torch or a library.
- `torch`: torch or a library alone.
- `unknown`: there is no attribution."""


class Judged(msgspec.Struct, frozen=True, tag="judged"):
    """The reply had code, which was judged."""

    verdict: str
    """Name of the worst verdict among its cases: ``agrees``, ``disagrees``, ``crashed``, ``cheated`` …"""
    verdicts: dict[str, int]
    """Name of a verdict -> number of cases with it."""
    records_file: str
    """Path in the run folder: JSON lines, one record for each case (`records_of`)."""
    right: bool = False
    """Whether every case agreed, of the cases that torch itself can compute here."""
    correctness: float = 0.0
    """Share of those cases that agreed."""
    speedup: float | None = None
    """Geometric mean of reference time over kernel time; None unless the kernel is right and a case was timed."""
    speedup_low: float | None = None
    """Lower end of the speedup's 95 % interval."""
    speedup_high: float | None = None
    """Upper end of the speedup's 95 % interval."""
    authorship: Authorship = "unknown"
    """What computes the results of a right kernel. One that only calls torch's operators is right, too."""


class NoCode(msgspec.Struct, frozen=True, tag="no_code"):
    """The reply had no code that could be judged."""

    problem: str
    """What is wrong with the reply. The model gets this text."""


class ProviderFailed(msgspec.Struct, frozen=True, tag="provider_failed"):
    """There was no reply: every request failed. A resumed run sends the request again."""

    reason: Literal["rate_limit", "overloaded", "connection", "timeout", "garbage", "refused"]
    """`refused`: the server rejects the request, and sending it again would not help."""
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
    """Number of the attempt, from 1."""
    parents: tuple[int, ...] = ()
    """Attempts whose code and feedback the model got; empty: it got the first prompt alone."""
    outcome: Outcome
    file: str | None = None
    """Path of the kernel in the run folder, ``relu/relu_attempt_1.py``; None if there was no code."""
    usage: Usage = Usage()
    """Tokens of the request that was answered."""
    requests: int = 1
    """Number of requests to the provider, including failed ones."""
    asking_seconds: float = 0.0
    """Time from the first request to the end of the reply, including waits for the provider's limits."""
    judging_seconds: float = 0.0
    """Time from submitting the kernel to its verdict, including waits for other kernels."""
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
    """Number of the attempt, from 1."""
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
    """``best.json`` beside the attempts: the attempt that the backend `directory` uses."""

    file: str
    """Name of its file in this folder."""
    number: int
    right: bool
    """Whether every case agreed when it was judged."""
    correctness: float
    """Share of cases that agreed."""
    speedup: float | None = None
    speedup_low: float | None = None
    """Lower end of the speedup's interval, by which right attempts are ordered."""


class GenerationRun(msgspec.Struct, frozen=True, kw_only=True):
    """``generation.json``: the settings of a run of generation. Only folders of such runs have this file."""

    format_version: int = FORMAT_VERSION
    started_unix_ns: int
    suite: str
    provider: str
    model: str
    dsl: str
    """Language of the kernels, as `--dsl` names it."""
    strategy: Strategy
    max_attempts: int
    """Most attempts for each operator."""
    folders: dict[str, str]
    """Operator -> its folder: all requested operators, including those without an attempt yet."""
    device: str = ""
    """Device on which the kernels are judged: ``cpu``, ``cuda:0``."""
    effort: str = ""
    mode: str = "fwd"
    """Whether kernels are judged by their results, their gradients (``bwd``), or both."""
    source: str | None = None
    """The suite's folder or file, for suites that read one."""
