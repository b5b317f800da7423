"""Parses the object or dict that a benchmark's `get_config()` returns into settings, by field names.

A config class of another harness fills every field with its own default, which must not override the command line. So
a field that equals its class's default counts as unset.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torchstone.benchmarks.config import BenchmarkConfig, BenchmarkMode

_MISSING = object()
_SILENTLY_IGNORED = frozenset({"adaptive_iterations"})
"""Fields of other harnesses that have no counterpart here and are ignored without a note."""


class ConfigError(ValueError):
    """A field has an invalid value; the message names the field."""


def read_config(source: Any) -> tuple[BenchmarkConfig, tuple[str, ...]]:
    """The settings that the object sets, and the names of its fields that have no counterpart here."""
    if source is None:
        return BenchmarkConfig(), ()
    if isinstance(source, BenchmarkConfig):
        return _layer(_set_fields(source)), ()
    known: dict[str, Any] = {}
    ignored = []
    for name, value in _values_set(source).items():
        if name in _READERS:
            known[name] = value
        elif name in _ALIASES:
            known.update(_ALIASES[name](name, value))
        elif name not in _SILENTLY_IGNORED:
            ignored.append(name)
    return _layer(known), tuple(sorted(ignored))


def _set_fields(config: BenchmarkConfig) -> dict[str, Any]:
    return {name: value for name in config.__struct_fields__ if (value := getattr(config, name)) is not None}


def _layer(known: Mapping[str, Any]) -> BenchmarkConfig:
    return BenchmarkConfig(**{name: _READERS[name](name, value) for name, value in known.items()})


def _values_set(source: Any) -> dict[str, Any]:
    """The fields that differ from their defaults. In a dict every entry counts, but None never does."""
    if isinstance(source, Mapping):
        return {str(name): value for name, value in source.items() if value is not None}
    default_of = _defaults_of(type(source))
    found = {}
    for name in _field_names(source):
        try:
            value = getattr(source, name)
        except AttributeError:  # declared, never assigned
            continue
        if value is None or callable(value) or _is_equal(value, default_of(name)):
            continue
        found[name] = value
    return found


def _field_names(source: Any) -> list[str]:
    kind = type(source)
    names: dict[str, None] = {}
    for place in reversed(kind.__mro__):
        names.update(dict.fromkeys(getattr(place, "__annotations__", ())))
        names.update(dict.fromkeys(_slots_of(place)))
        if place is not object:
            names.update(dict.fromkeys(name for name, value in vars(place).items() if not _is_no_field(value)))
    names.update(dict.fromkeys(getattr(source, "__dict__", ())))
    return [name for name in names if not name.startswith("_")]


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_no_field(value: Any) -> bool:
    """Whether a class attribute is no field: a method, a descriptor, or a property."""
    return callable(value) or isinstance(value, (staticmethod, classmethod, property)) or hasattr(value, "__get__")


def _defaults_of(kind: type) -> Callable[[str], Any]:
    """Field -> default: from an object made without arguments, else as the class declares it."""
    try:
        plain = kind()
    except Exception:  # noqa: BLE001 - the class is the user's: whatever it raises, it cannot be made so
        return lambda name: _declared_default(kind, name)
    return lambda name: getattr(plain, name, _MISSING)


def _declared_default(kind: type, name: str) -> Any:
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            if field.name != name:
                continue
            if field.default is not dataclasses.MISSING:
                return field.default
            if field.default_factory is not dataclasses.MISSING:
                return field.default_factory()
            return _MISSING
    found = getattr(kind, name, _MISSING)
    return _MISSING if found is not _MISSING and _is_no_field(found) else found


def _is_equal(value: Any, default: Any) -> bool:
    try:
        return bool(value == default)
    except Exception:  # noqa: BLE001 - arrays and tensors compare element by element
        return value is default


def _integer_reader(least: int) -> Callable[[str, Any], int]:
    def read(name: str, value: Any) -> int:
        if isinstance(value, numbers.Real) and not isinstance(value, bool):
            number = float(value)
            if number.is_integer() and number >= least:
                return int(number)
        raise ConfigError(f"config field '{name}' is {value!r}; expected a whole number of at least {least}")

    return read


def _float_reader(least: float, is_strict: bool = False) -> Callable[[str, Any], float]:
    def read(name: str, value: Any) -> float:
        if isinstance(value, numbers.Real) and not isinstance(value, bool):
            number = float(value)
            if math.isfinite(number) and (number > least if is_strict else number >= least):
                return number
        bound = f"above {least:g}" if is_strict else f"of at least {least:g}"
        raise ConfigError(f"config field '{name}' is {value!r}; expected a number {bound}")

    return read


def _read_bool(name: str, value: Any) -> bool:
    if isinstance(value, (bool, numbers.Integral)) and int(value) in (0, 1):
        return bool(value)
    raise ConfigError(f"config field '{name}' is {value!r}; expected True or False")


def _percentiles(name: str, value: Any) -> tuple[float, ...]:
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        found = tuple(_float_reader(0.0)(name, item) for item in value)
        if all(item <= 100.0 for item in found):
            return found
    raise ConfigError(f"config field '{name}' is {value!r}; expected numbers from 0 to 100")


def _mode(name: str, value: Any) -> BenchmarkMode:
    """The mode for a `BenchmarkMode`, another enumeration's value or name, or a text."""
    if isinstance(value, BenchmarkMode):
        return value
    texts = [value.value, value.name] if isinstance(value, enum.Enum) else [value]
    modes = {mode.value: mode for mode in BenchmarkMode}
    for text in texts:
        if isinstance(text, str) and text.lower() in modes:
            return modes[text.lower()]
    raise ConfigError(f"config field '{name}' is {value!r}; expected {', '.join(modes)}")


def _capability(name: str, value: Any) -> str:
    """A compute capability as text. Accepts `9.0`, 9.0 and (9, 0)."""
    parts = tuple(value) if isinstance(value, (tuple, list)) else tuple(str(value).split("."))
    texts = [str(part) for part in parts]
    if len(texts) == 1:
        texts.append("0")
    if len(texts) == 2 and all(text.isdigit() for text in texts):
        return ".".join(texts)
    raise ConfigError(f"config field '{name}' is {value!r}; expected a compute capability such as '9.0'")


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "iterations": _integer_reader(1),
    "warmup": _integer_reader(0),
    "mode": _mode,
    "min_run_time_ms": _float_reader(0.0),
    "percentiles": _percentiles,
    "seed": _integer_reader(0),
    "deterministic": _read_bool,
    "threads": _integer_reader(1),
    "enable_memory_tracking": _read_bool,
    "enable_cleanup": _read_bool,
    "enable_profiling": _read_bool,
    "enable_nsys": _read_bool,
    "enable_ncu": _read_bool,
    "enable_nvtx": _read_bool,
    "timeout_multiplier": _float_reader(0.0, is_strict=True),
    "load_timeout_seconds": _float_reader(0.0, is_strict=True),
    "setup_timeout_seconds": _float_reader(0.0, is_strict=True),
    "warmup_timeout_seconds": _float_reader(0.0, is_strict=True),
    "measurement_timeout_seconds": _float_reader(0.0, is_strict=True),
    "profiling_timeout_seconds": _float_reader(0.0, is_strict=True),
    "nsys_timeout_seconds": _float_reader(0.0, is_strict=True),
    "ncu_timeout_seconds": _float_reader(0.0, is_strict=True),
    "memory_limit_bytes": _integer_reader(1),
    "min_devices": _integer_reader(0),
    "min_memory_gb": _float_reader(0.0),
    "min_capability": _capability,
}

_ALIASES: dict[str, Callable[[str, Any], dict[str, Any]]] = {
    "multi_gpu_required": lambda name, value: {"min_devices": 2} if _read_bool(name, value) else {},
    "required_world_size": lambda name, value: {"min_devices": _integer_reader(0)(name, value)},
    "timing_method": lambda name, value: {"mode": _mode(name, value)},
}
"""Field name of other harnesses -> function that converts its value to our field."""
