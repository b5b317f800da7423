"""A manifest: hardware, software, git state and configuration of a run. Every record refers to one by its key."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from torchstone.schema.codec import content_key
from torchstone.schema.record import Layer


class Gpu(msgspec.Struct, frozen=True):
    """One accelerator."""

    index: int
    name: str
    uuid: str
    memory_bytes: int
    capability: str | None = None
    max_sm_clock_mhz: int | None = None
    max_memory_clock_mhz: int | None = None


class Hardware(msgspec.Struct, frozen=True):
    cpu: str
    cpu_cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()


class Software(msgspec.Struct, frozen=True):
    torchstone: str
    python: str
    platform: str
    packages: dict[str, str] = {}
    """Versions of torch, triton, numpy … if they are installed."""
    cuda: str | None = None
    driver: str | None = None


class Git(msgspec.Struct, frozen=True):
    commit: str
    branch: str
    dirty: bool


class Node(msgspec.Struct, frozen=True):
    """One machine on which an executor's judges run."""

    name: str
    """Its host name."""
    hardware: Hardware
    software: Software
    layers: tuple[Layer, ...] = ()
    """Layers of the sandbox on this machine, by a test. Empty: not tested, or an earlier version."""


class Manifest(msgspec.Struct, frozen=True, dict=True):
    """Hardware, software, source state, environment, seeds and configuration of a run."""

    hardware: Hardware
    software: Software
    git: Git | None
    environment: dict[str, str]
    """Variables that can change results (threads, visible devices, Triton and Inductor settings), without secrets."""
    seeds: dict[str, str]
    """`inputs: os-randomness`: values are drawn for every call and cannot be known beforehand."""
    configuration: dict[str, Any]
    """The options of the request after resolving: suite, backend, operators, effort, deadlines, isolation …"""
    nodes: tuple[Node, ...] = ()
    """The machines that judge, if they are not this one. Then `hardware` and `software` are those of the first."""

    @cached_property
    def key(self) -> str:
        return content_key(self)


def difference(before: Manifest, after: Manifest) -> dict[str, tuple[Any, Any]]:
    """Dotted name -> (before, after) for every field that differs."""
    return _difference(msgspec.to_builtins(before), msgspec.to_builtins(after), "")


def _difference(before: Any, after: Any, path: str) -> dict[str, tuple[Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        found: dict[str, tuple[Any, Any]] = {}
        for name in sorted(before.keys() | after.keys()):
            found |= _difference(before.get(name), after.get(name), f"{path}.{name}" if path else name)
        return found
    return {} if before == after else {path: (before, after)}
