"""Caches evaluations in a folder: the same kernel, cases, settings, device and versions are not judged twice."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from torchstone.api.evaluation import Evaluation
from torchstone.api.settings import Settings
from torchstone.atomic_files import write_atomically
from torchstone.executors.machine import hardware
from torchstone.executors.versions import own_version, software
from torchstone.isolation.layer_probe import layers_here
from torchstone.schema import Job, Node, Record, TimedOut, Unjudged, Verdict, content_key, decode, encode


class VerdictCache:
    """One file for each evaluation. Every file may be deleted at any time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, operator: str, key: str) -> Evaluation | None:
        """The stored evaluation; None: there is no file, or it cannot be read."""
        try:
            records = decode((self._folder / f"{key}.json").read_bytes(), tuple[Record, ...])
        except (OSError, msgspec.DecodeError, ValueError):
            return None
        return Evaluation(operator, records, from_cache=True)

    def keep(self, key: str, evaluation: Evaluation) -> None:
        """Store the evaluation, unless judging again could give a better one. Warns if the folder cannot be written.

        Not stored: cases that the machine could not judge or skipped, and a right kernel with an unresolved time.
        """
        if not evaluation.records or any(_is_no_verdict(each.verdict) for each in evaluation.records):
            return
        if evaluation.agrees and evaluation.summary.cases_unresolved:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._folder / f"{key}.json", encode(evaluation.records))
        except OSError as error:
            warnings.warn(f"the verdict cache cannot be written to '{self._folder}': {error}.", stacklevel=2)


def _is_no_verdict(verdict: Verdict) -> bool:
    """Whether the case was not judged: the machine failed, or the case was skipped after others had timed out."""
    return isinstance(verdict, Unjudged) or (isinstance(verdict, TimedOut) and bool(verdict.not_tried))


def cache_key(jobs: Sequence[Job], settings: Settings, device: str, nodes: Sequence[Node] = ()) -> str:
    """A hash of all that a verdict may depend on: jobs, process settings, time limits, judging machines, versions.

    ``nodes``: the judging machines; empty: this machine.
    """
    kind = device.partition(":")[0]
    judging = nodes or (Node("", hardware(), software(), layers_here(kind, settings.isolation)),)
    machines = sorted({_machine(node, kind) for node in judging})
    versions = [own_version(), *map(_version, ("torch", "triton"))]
    where = (settings.executor, settings.ray_address, settings.gpu, settings.results)
    setup = (settings.isolation, settings.limits, settings.threads, *where)
    time_limits = (settings.deadlines, settings.try_every_case)
    return content_key([job.key for job in jobs], *time_limits, setup, device, machines, versions)


def _machine(node: Node, kind: str) -> tuple[str, ...]:
    """The properties of a machine that a verdict may depend on: devices, drivers, packages, active layers.

    Its name is not among them: a verdict from one node is valid for every node of the same kind.
    """
    devices = [gpu.name for gpu in node.hardware.gpus] if kind == "cuda" else [node.hardware.cpu]
    active_layers = [layer.name for layer in node.layers if layer.active]
    packages = node.software.packages
    driven = [packages.get("torch", ""), packages.get("triton", ""), node.software.driver or ""]
    return ",".join(sorted(set(devices))), *driven, ",".join(active_layers)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
