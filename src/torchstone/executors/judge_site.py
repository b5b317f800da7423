"""Describes the machines on which an executor's judges run, and checks that software and GPU type are the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torchstone.errors import InfrastructureError, UsageError
from torchstone.schema import Layer, Node, Software

Ask = Callable[[str, str], str]
"""Runs a module of Torchstone on a node: its name and its input -> what it prints."""


@dataclass(frozen=True)
class Site:
    """The devices of an executor, as its nodes described themselves.

    An executor whose judges are not on this machine has a static method ``survey(options) -> Site``, which is asked
    with the device as the user named it. Without one the devices are those of this machine.
    """

    device: str
    """What the request's device is there: ``cpu``, ``cuda`` or ``cuda:N``."""
    nodes: tuple[Node, ...] = ()
    """The machines that judge; empty: this one."""
    ask: Ask | None = None
    """For suites that find their cases on a device that this machine may not have."""
    warnings: tuple[str, ...] = ()
    """What the user should know of these machines."""


def require_alike(nodes: Sequence[Node], here: Software) -> None:
    """Raise unless every node has what this machine has: another version could give another verdict."""
    problems = [problem for node in nodes for problem in differences(node, here, nodes[0])]
    if problems:
        told = "; ".join(problems[:_MOST_TOLD])
        more = f"; and {len(problems) - _MOST_TOLD} more" if len(problems) > _MOST_TOLD else ""
        raise InfrastructureError(
            f"versions differ between nodes: {told}{more}. Install the same versions on every node."
        )


_MOST_TOLD = 6
"""Differences that one message lists."""


def differences(node: Node, here: Software, first: Node) -> list[str]:
    """What keeps a node from judging together with this machine and with the first of the nodes."""
    theirs, beside = node.software, first.software
    found = _differ(node.name, "Torchstone", theirs.torchstone, here.torchstone, "this machine")
    # The head of a cluster may have torch's build for the CPU: then the release counts.
    release = _release(here.packages.get("torch"))
    found += _differ(node.name, "torch", _release(theirs.packages.get("torch")), release, "this machine")
    if not found:
        found += _differ(node.name, "torch", theirs.packages.get("torch"), beside.packages.get("torch"), first.name)
        found += _differ(node.name, "driver", theirs.driver, beside.driver, first.name)
    return found


def _differ(node: str, what: str, theirs: str | None, expected: str | None, whose: str) -> list[str]:
    if theirs == expected:
        return []
    return [f"{node} has {what} {theirs or 'not at all'}, {whose} has {expected or 'none'}"]


def _release(version: str | None) -> str | None:
    return None if version is None else version.partition("+")[0]


def require_one_type(nodes: Sequence[Node], gpu: str) -> None:
    """Raise if the GPUs of the nodes are of several types: their speeds must not be mixed in one run."""
    models = sorted({gpu.name for node in nodes for gpu in node.hardware.gpus})
    if len(models) > 1:
        chosen = f" of type {gpu}" if gpu else ""
        raise UsageError(
            f"the cluster has GPUs of several types{chosen}: {', '.join(models)}. Choose one with --gpu TYPE."
        )


def exposed_to_ray(nodes: Sequence[Node]) -> tuple[str, ...]:
    """A warning for each node on which a kernel can reach the sockets by which Ray's processes talk to each other."""
    refused = [(node.name, layer.detail) for node in nodes for layer in node.layers if _is_missing_files(layer)]
    return tuple(
        f"node {name} refuses the layer 'files' ({detail}): a kernel there can reach the sockets of Ray, and so the "
        "cluster. Allow user namespaces on it, or refuse such nodes with --isolation strict"
        for name, detail in refused
    )


def _is_missing_files(layer: Layer) -> bool:
    return layer.name == "files" and not layer.active
