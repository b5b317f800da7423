"""Finds the slots of a Ray cluster: GPUs or groups of CPU cores on which judges can run, or why there are none."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from torchstone.executors.base import ExecutorOptions

_TYPE_PREFIX = "accelerator_type:"
"""Prefix of the resource by which Ray names the type of a node's GPUs."""


class Slot(NamedTuple):
    """A place for one actor with its judges, as many as ``judges_per_device``: a GPU, or a group of cores."""

    key: str
    """``<node>/<number>``."""
    node_id: str
    host: str
    number: int
    """Number among the slots of its node."""
    of: int
    """Number of slots of its node."""
    resources: tuple[tuple[str, float], ...]
    """Resources that its actor requests from Ray, as options of an actor."""

    @property
    def node_name(self) -> str:
        """The node's name in records. It has the id, since several Ray nodes may run on one machine."""
        return f"{self.host} (Ray {self.node_id[:8]})"


def find_slots(nodes: Sequence[Any], options: ExecutorOptions) -> list[Slot]:
    """The slots of the live nodes, in turn: the first slot of each node, then the second of each, and so on."""
    found = [_slots_of(node, options) for node in nodes if node["Alive"]]
    return [slot for slots in itertools.zip_longest(*found) for slot in slots if slot is not None]


def _slots_of(node: Any, options: ExecutorOptions) -> list[Slot]:
    resources = node.get("Resources", {})
    if options.gpu and not _has_type(resources, options.gpu):
        return []
    cores = resources.get("CPU", 0.0)
    wanted: dict[str, float] = {"num_cpus": _cores_of_slot(options)}
    if options.device == "cpu":
        count = int(cores // wanted["num_cpus"])
    else:
        count, wanted = int(resources.get("GPU", 0.0)), {"num_gpus": 1, "num_cpus": 0}
    host, node_id = node.get("NodeManagerHostname") or node["NodeID"][:8], node["NodeID"]
    options_of_actor = tuple(wanted.items())
    return [Slot(f"{node_id}/{n}", node_id, host, n, count, options_of_actor) for n in range(count)]


def _has_type(resources: Iterable[str], gpu: str) -> bool:
    """Whether a node has GPUs of this type. Ray names them ``H100`` or ``A100-80G``; a prefix matches."""
    names = (name.removeprefix(_TYPE_PREFIX) for name in resources if name.startswith(_TYPE_PREFIX))
    return any(name.lower().startswith(gpu.lower()) for name in names)


def _cores_of_slot(options: ExecutorOptions) -> int:
    """Number of cores of a slot without a GPU: one for each judge, and one for each thread of its kernel."""
    return (1 + options.threads) * options.judges_per_device


def no_slot(nodes: Sequence[Any], options: ExecutorOptions) -> str:
    """Message about a missing slot: what was requested, what the cluster has, what to do."""
    there = [node.get("Resources", {}) for node in nodes if node["Alive"]]
    if options.device == "cpu" and not options.gpu:
        most = max((int(resources.get("CPU", 0.0)) for resources in there), default=0)
        return (
            f"a slot with --judges {options.judges_per_device} and --threads {options.threads} needs "
            f"{_cores_of_slot(options)} CPU cores on one node of the Ray cluster; its largest node offers {most}. "
            "Ask for fewer judges or threads, or add a node."
        )
    types = _gpu_types(there)
    if not types:
        return "no node of the Ray cluster has a GPU. Add one, or run with --device cpu and without --gpu."
    listed = ", ".join(f"{name} ({count:g})" for name, count in sorted(types.items()))
    return f"no node of the Ray cluster has a GPU of type {options.gpu}. It has: {listed}. Choose one with --gpu."


def _gpu_types(there: Iterable[Any]) -> dict[str, float]:
    """Number of GPUs by type, with Ray's names of types."""
    found: dict[str, float] = {}
    for resources in there:
        if count := resources.get("GPU", 0.0):
            names = [name.removeprefix(_TYPE_PREFIX) for name in resources if name.startswith(_TYPE_PREFIX)]
            name = "/".join(sorted(names)) or "of no named type"
            found[name] = found.get(name, 0.0) + count
    return found
