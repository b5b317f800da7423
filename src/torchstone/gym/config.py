"""The one configuration object of evaluators and environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from torchstone import registry
from torchstone.errors import UsageError, unknown_name
from torchstone.gym.reward import RewardSettings
from torchstone.gym.splits import Split
from torchstone.prompting import language_named
from torchstone.schema import Deadlines, Effort, IsolationLevel, Limits, NonFiniteInputs, Shapes

Gpu = Literal["local", "T4", "L4", "A100", "H100", "H200", "B200"]
"""`local`: the devices of this machine. The others are types of GPU at Modal."""

FeedbackLoop = Literal["until_correct", "until_max_turns", "none"]
"""How a rollout goes on after a judged turn.

- `until_correct`: with feedback, until a kernel is right or the turns are used up.
- `until_max_turns`: with feedback, until the turns are used up; a right kernel can become faster.
- `none`: not at all. There is one turn."""

RolloutReward = Literal["best", "last"]
"""Which turn's reward is that of the rollout."""

MODAL = "modal"
"""The executor of every `gpu` but `local`."""


class EvaluatorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, where kernels are judged, and what they earn."""

    gpu: Gpu = "local"
    """`local`: the devices of this machine. `T4` to `B200`: GPUs at Modal."""
    suite: str = "smoke"
    """Where the cases come from."""
    source: str | None = None
    """File or folder of cases, for suites that read one: the problems of `kernelbench`."""
    ops: tuple[str, ...] | None = None
    """Operators, by overload or base name. None: all of the suite."""
    dtypes: tuple[str, ...] | None = None
    """None: the suite's own choice."""
    largest: int | None = None
    """Only so many cases of each operator, those with the most bytes of arguments. None: all."""
    split: Split = "train"
    """Which of an operator's cases: `train`, `eval` or `all`."""
    num_turns: int = 1
    """Replies of the model in one rollout. Every one is judged, the last too."""
    feedback_loop: FeedbackLoop = "until_max_turns"
    """When a rollout is over."""
    feedback_tokens: int | None = 1000
    """Length of the feedback that a turn gets; None: all of it."""
    reward: RewardSettings = RewardSettings()
    """What a kernel earns."""
    rollout_reward: RolloutReward = "best"
    """Which turn's reward is that of the rollout: `best` or `last`."""
    language: str | None = None
    """What kernels are written in, a name of `torchstone.prompting.LANGUAGES`. None: `triton` on a GPU, `pytorch` on
    the CPU."""
    device: str = "auto"
    """Of this machine, with `gpu` `local`: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
    measured: bool = True
    """False: kernels are only checked, and no speed is rewarded."""
    effort: Effort = "quick"
    """How many calls are checked, and how long is measured."""
    require_authored: bool = False
    """A kernel in which torch or a library does the work is `delegated`, and earns no more than a wrong one."""
    shapes: Shapes = "near"
    """`stated`: judge on the stated sizes and memory layouts alone."""
    non_finite: NonFiniteInputs = "check"
    """`ignore`: do not call pointwise operators with NaN and infinities among their inputs."""
    isolation: IsolationLevel = "best"
    """Of the kernel's process: `strict`, `best` or `none`."""
    threads: int = 1
    """CPU threads of the kernel and of the reference alike."""
    judges: int = 1
    """Judges that share a device."""
    queue_size: int = 256
    """Kernels that may be waiting or under way; further rollouts wait for a place."""
    deadlines: Deadlines = Deadlines()
    """Seconds per stage."""
    limits: Limits = Limits()
    """Memory, processes and files of a worker."""
    verdict_cache: str | None = None
    """Folder of evaluations that are used again. The split `eval` does not use it."""

    def __post_init__(self) -> None:
        for name in _CHOICES:
            _require(name, getattr(self, name))
        if self.num_turns < 1:
            raise UsageError(f"num_turns is {self.num_turns}; it must be 1 or more.")
        if self.language is not None:
            language_named(self.language)

    @property
    def is_modal(self) -> bool:
        """Whether kernels are judged at Modal."""
        return self.gpu != "local"

    @property
    def turns(self) -> int:
        """Replies that a rollout may have."""
        return 1 if self.feedback_loop == "none" else self.num_turns

    def language_on(self, device_type: str) -> str:
        """The language that is asked for on such a device."""
        return self.language or ("triton" if device_type == "cuda" else "pytorch")

    def judge_settings(self) -> dict[str, Any]:
        """Settings of a `Judge` that may differ between calls."""
        return {
            "effort": self.effort,
            "require_authored": self.require_authored,
            "shapes": self.shapes,
            "non_finite": self.non_finite,
            "deadlines": self.deadlines,
            "verdict_cache": None if self.split == "eval" else self.verdict_cache,
        }

    def process_settings(self) -> dict[str, Any]:
        """Settings that a `Judge` is made with."""
        found: dict[str, Any] = {
            "isolation": self.isolation,
            "limits": self.limits,
            "threads": self.threads,
            "judges": self.judges,
            "queue_size": self.queue_size,
        }
        if not self.is_modal:
            return {**found, "device": self.device}
        if MODAL not in registry.executors.names():
            raise UsageError(
                f"gpu='{self.gpu}' judges at Modal, and this version has no executor '{MODAL}'. "
                "Use gpu='local' on a machine with a GPU."
            )
        return {**found, "executor": MODAL, "gpu": self.gpu}


def configured(config: EvaluatorConfig | None, given: dict[str, Any]) -> EvaluatorConfig:
    """The configuration with these fields in place of its own. Values may be as JSON and TOML have them: lists."""
    known = EvaluatorConfig.__struct_fields__
    for name in given:
        if name not in known:
            raise unknown_name("field of the configuration", name, known)
        if name in _CHOICES:
            _require(name, given[name])
    if not given:
        return config or EvaluatorConfig()
    fields = {name: getattr(config or EvaluatorConfig(), name) for name in known}
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    try:
        return msgspec.convert({**fields, **plain}, EvaluatorConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"the configuration is not valid: {error}.") from error


_CHOICES = {"gpu": Gpu, "split": Split, "feedback_loop": FeedbackLoop, "rollout_reward": RolloutReward}


def _require(name: str, value: object) -> None:
    choices = get_args(_CHOICES[name])
    if value not in choices:
        raise UsageError(f"{name} is '{value}'; expected one of: {', '.join(choices)}.")
