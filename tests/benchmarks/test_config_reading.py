"""What `get_config()` may return: our config, another harness's object, a dict. Only what it sets counts."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from torchstone.benchmarks import BenchmarkConfig, BenchmarkDefaults, BenchmarkMode
from torchstone.benchmarks.config import merge
from torchstone.benchmarks.parse_get_config import ConfigError, read_config


class TheirMode(enum.Enum):
    CUSTOM = 1
    TRITON = 2


@dataclasses.dataclass
class TheirConfig:
    """A config class as other harnesses have it: every field with a default of its own."""

    iterations: int = 20
    warmup: int = 5
    timeout_multiplier: float = 3.0
    percentiles: list[float] = dataclasses.field(default_factory=lambda: [25, 50, 75, 99])
    mode: TheirMode = TheirMode.CUSTOM
    use_subprocess: bool = True
    device: Any = None
    required_world_size: int | None = None
    multi_gpu_required: bool = False
    setup_timeout_seconds: float | None = None

    @property
    def total(self) -> int:
        return self.iterations + self.warmup

    def get_timeout(self) -> float:
        return 1.0


def test_fields_equal_to_the_defaults_of_their_class_count_as_unset() -> None:
    assert read_config(TheirConfig()) == (BenchmarkConfig(), ())
    config, ignored = read_config(TheirConfig(iterations=7, warmup=5, use_subprocess=False))
    assert config == BenchmarkConfig(iterations=7)
    assert ignored == ("use_subprocess",)


def test_changed_and_aliased_fields_are_read_by_name() -> None:
    config, ignored = read_config(
        TheirConfig(mode=TheirMode.TRITON, percentiles=[99.9], multi_gpu_required=True, setup_timeout_seconds=60)
    )
    assert config == BenchmarkConfig(
        mode=BenchmarkMode.TRITON, percentiles=(99.9,), min_devices=2, setup_timeout_seconds=60.0
    )
    assert ignored == ()
    assert read_config(TheirConfig(required_world_size=4))[0].min_devices == 4


def test_a_class_that_needs_arguments_tells_its_defaults_by_its_fields() -> None:
    @dataclasses.dataclass
    class NeedsName:
        name: str
        iterations: int = 20
        warmup: int = 5

    assert read_config(NeedsName("it", warmup=6)) == (BenchmarkConfig(warmup=6), ("name",))


def test_plain_classes_named_tuples_and_structs_are_read_too() -> None:
    class Plain:
        iterations = 20
        warmup = 5

        def __init__(self) -> None:
            self.warmup = 5

    plain = Plain()
    plain.iterations = 30

    class Pair(NamedTuple):
        iterations: int = 20
        warmup: int = 5

    class Struct(msgspec.Struct):
        iterations: int = 20
        seed: int = 1

    assert read_config(plain) == (BenchmarkConfig(iterations=30), ())
    assert read_config(Pair(warmup=1)) == (BenchmarkConfig(warmup=1), ())
    assert read_config(Struct(seed=3)) == (BenchmarkConfig(seed=3), ())


def test_a_dict_has_no_defaults_and_every_entry_counts() -> None:
    config, ignored = read_config({"iterations": np.int64(20), "adaptive_iterations": True, "foo": 1, "warmup": None})
    assert config == BenchmarkConfig(iterations=20)
    assert ignored == ("foo",)


def test_our_own_config_and_nothing_at_all() -> None:
    assert read_config(BenchmarkConfig(warmup=0)) == (BenchmarkConfig(warmup=0), ())
    assert read_config(None) == (BenchmarkConfig(), ())


@pytest.mark.parametrize("mode", [BenchmarkMode.PYTORCH, "pytorch", "PYTORCH"])
def test_a_mode_is_read_by_value_or_name(mode: Any) -> None:
    assert read_config({"timing_method": mode})[0].mode is BenchmarkMode.PYTORCH


@pytest.mark.parametrize("capability", ["9.0", 9.0, (9, 0), "9"])
def test_a_capability_is_read_in_the_usual_forms(capability: Any) -> None:
    assert read_config({"min_capability": capability})[0].min_capability == "9.0"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("iterations", 0),
        ("iterations", True),
        ("iterations", 2.5),
        ("warmup", "few"),
        ("min_run_time_ms", float("nan")),
        ("timeout_multiplier", 0),
        ("deterministic", "yes"),
        ("percentiles", 99),
        ("percentiles", [101]),
        ("mode", "fast"),
        ("min_capability", "nine"),
        ("multi_gpu_required", "yes"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_field(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"config field '{field}' is"):
        read_config({field: value})


def test_every_setting_has_a_reader_and_survives_the_layers() -> None:
    for name in BenchmarkConfig.__struct_fields__:
        assert name in BenchmarkDefaults.__struct_fields__
    own = read_config(TheirConfig(warmup=3))[0]
    merged = merge(BenchmarkConfig(iterations=7, warmup=9), own, BenchmarkConfig(seed=1))
    assert (merged.iterations, merged.warmup, merged.seed) == (7, 3, 1)
