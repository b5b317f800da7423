"""Configuration of the gym's evaluators and environments: the cases, where kernels are judged, rollouts, rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from torchstone import registry
from torchstone.api.settings import names_of, of_wrong_part
from torchstone.errors import UsageError, unknown_name
from torchstone.gym.reward import RewardSettings
from torchstone.gym.splits import Split
from torchstone.prompting import language_named
from torchstone.schema import Deadlines, Effort, IsolationLevel, Limits, NonFiniteInputs, ResultReading, Shapes

Gpu = Literal["local", "T4", "L4", "A100", "H100", "H200", "B200"]
"""`local`: the devices of this machine. The others are types of GPU at Modal."""

FeedbackLoop = Literal["until_correct", "until_max_turns", "none"]
"""When a rollout ends. A turn is one judged reply of the model; after it the model gets feedback.

- `until_correct`: when a kernel is right, or the turns are used up.
- `until_max_turns`: when the turns are used up; a right kernel can become faster.
- `none`: after one turn, without feedback."""

RolloutReward = Literal["best", "last"]
"""Which turn's reward is the reward of the rollout."""

LOCAL, MODAL, RAY = "local", "modal", "ray"


class EvaluatorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Which kernels are asked for, where they are judged, and what reward they earn."""

    gpu: Gpu = "local"
    """`local`: the devices of this machine. `T4` to `B200`: GPUs at Modal. With the executor `ray`: the type of GPU
    on the cluster, and `local` for any."""
    executor: str | None = None
    """Judges kernels: `local`, `modal`, `ray` or a plugin. None: `local`, or `modal` if `gpu` names a type."""
    ray_address: str = "auto"
    """Of the cluster, for the executor `ray`."""
    suite: str = "smoke"
    """Where the cases come from."""
    source: str | None = None
    """File or folder of cases, for suites that read one: the problems of `kernelbench`."""
    ops: tuple[str, ...] | None = None
    """Operators, by overload or base name; a text is one, or several with commas between. None: all of the suite."""
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
    results: ResultReading = "read"
    """`copied`: do without reading results in the kernel's memory, and without CUDA IPC."""
    queue_size: int = 256
    """Kernels that may be waiting or under way; further rollouts wait for a place."""
    deadlines: Deadlines = Deadlines()
    """Seconds per stage: `load_seconds`, `compile_seconds`, `check_seconds`, `measure_seconds`."""
    limits: Limits = Limits()
    """Memory, processes and files of a worker."""
    verdict_cache: str | None = None
    """Folder of evaluations that are used again. The split `eval` does not use it."""

    def __post_init__(self) -> None:
        for name in _CHOICES:
            _require(name, getattr(self, name))
        for name in _NAMES:
            msgspec.structs.force_setattr(self, name, names_of(getattr(self, name)))
        if self.num_turns < 1:
            raise UsageError(f"num_turns is {self.num_turns}; it must be 1 or more.")
        if self.language is not None:
            language_named(self.language)
        self._require_executor()

    def _require_executor(self) -> None:
        if self.executor is not None:
            registry.executors.factory(self.executor)
        if self.executor == LOCAL and self.gpu != "local":
            raise UsageError(
                f"gpu is '{self.gpu}' and executor is 'local'. Use gpu='local' for the devices of this machine, or the "
                "executor 'modal' or 'ray'."
            )
        if self.executor == MODAL and self.gpu == "local":
            types = ", ".join(get_args(Gpu)[1:])
            raise UsageError(f"the executor 'modal' needs a type of GPU, and gpu is 'local'. Name one of: {types}.")

    @property
    def is_modal(self) -> bool:
        """Whether kernels are judged at Modal."""
        return self.executor_name == MODAL

    @property
    def executor_name(self) -> str:
        """The executor that kernels are given to."""
        return self.executor or (LOCAL if self.gpu == "local" else MODAL)

    @property
    def turns(self) -> int:
        """Most replies of a rollout."""
        return 1 if self.feedback_loop == "none" else self.num_turns

    def language_on(self, device_type: str) -> str:
        """The language in which kernels for this type of device are written."""
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
        """Settings that are fixed when a `Judge` is created."""
        found: dict[str, Any] = {
            "isolation": self.isolation,
            "limits": self.limits,
            "threads": self.threads,
            "judges": self.judges,
            "results": self.results,
            "queue_size": self.queue_size,
        }
        if self.is_modal:
            return {**found, "executor": MODAL, "gpu": self.gpu}
        found["device"] = self.device
        if self.executor_name == LOCAL:
            return found
        chosen = {"executor": self.executor_name, "ray_address": self.ray_address}
        return {**found, **chosen, "gpu": "" if self.gpu == "local" else self.gpu}


def configured(config: EvaluatorConfig | None, given: dict[str, Any]) -> EvaluatorConfig:
    """A copy of the configuration with these fields replaced. Lists are accepted for tuples, as in JSON and TOML."""
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
    names = {name: names_of(plain[name]) for name in _NAMES if name in plain}
    try:
        return msgspec.convert({**fields, **plain, **names}, EvaluatorConfig)
    except msgspec.ValidationError as error:
        raise of_wrong_part(error, given) from error


_NAMES = ("ops", "dtypes")
"""Fields that hold names. One text may stand for a tuple of names."""
_CHOICES = {"gpu": Gpu, "split": Split, "feedback_loop": FeedbackLoop, "rollout_reward": RolloutReward}
"""Field -> the type that lists its allowed values."""


def _require(name: str, value: object) -> None:
    choices = get_args(_CHOICES[name])
    if value not in choices:
        raise UsageError(f"{name} is '{value}'; expected one of: {', '.join(choices)}.")
