"""Evaluations kept in a folder: the same kernel on the same cases, device and versions is not judged twice."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from torchstone.api.evaluation import Evaluation
from torchstone.api.settings import Settings
from torchstone.durable import write_atomically
from torchstone.executors.machine import hardware
from torchstone.executors.versions import own_version
from torchstone.schema import Job, Record, TimedOut, Unjudged, Verdict, content_key, decode, encode


class VerdictCache:
    """One file for each evaluation. Every file may be deleted at any time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, operator: str, key: str) -> Evaluation | None:
        """None: not there, or not readable as an evaluation."""
        try:
            records = decode((self._folder / f"{key}.json").read_bytes(), tuple[Record, ...])
        except (OSError, msgspec.DecodeError, ValueError):
            return None
        return Evaluation(operator, records, from_cache=True)

    def keep(self, key: str, evaluation: Evaluation) -> None:
        """What the machine could not judge is not kept. If the folder cannot be written, warn: the result stands."""
        if not evaluation.records or any(_is_no_verdict(each.verdict) for each in evaluation.records):
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._folder / f"{key}.json", encode(evaluation.records))
        except OSError as error:
            warnings.warn(f"the verdict cache cannot be written to '{self._folder}': {error}.", stacklevel=2)


def _is_no_verdict(verdict: Verdict) -> bool:
    """Whether nothing was tried: the machine failed, or other submissions of the kernel had timed out."""
    return isinstance(verdict, Unjudged) or (isinstance(verdict, TimedOut) and bool(verdict.not_tried))


def cache_key(jobs: Sequence[Job], settings: Settings, device: str) -> str:
    """All that a verdict may depend on: the jobs, how processes are set up, the machine, the versions."""
    machine = hardware()
    names = [gpu.name for gpu in machine.gpus] if device.startswith("cuda") else [machine.cpu]
    versions = [own_version(), *map(_version, ("torch", "triton"))]
    where = (settings.executor, settings.ray_address, settings.gpu, settings.results)
    setup = (settings.isolation, settings.limits, settings.threads, *where)
    patience = (settings.deadlines, settings.try_every_case)
    return content_key([job.key for job in jobs], *patience, setup, device, names, versions)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
