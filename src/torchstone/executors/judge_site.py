"""Describes the machines on which an executor's judges run, and checks that software and GPU type are the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torchstone.errors import InfrastructureError, UsageError
from torchstone.schema import Layer, Node, Software

Ask = Callable[[str, str], str]
"""Runs a module of Torchstone on a node. Takes the module's name and its input text; returns what it prints."""


@dataclass(frozen=True)
class Site:
    """The device and machines that an executor judges on.

    An executor whose judges are not on this machine has a static method ``survey(options) -> Site``. Its options have
    the device that the user named. Executors without this method use the devices of this machine.
    """

    device: str
    """The kind of device on these machines for the user's choice: ``cpu``, ``cuda`` or ``cuda:N``."""
    nodes: tuple[Node, ...] = ()
    """The machines that judge; empty: this one."""
    ask: Ask | None = None
    """Runs a module on a node, for suites that need a device to find their cases. This machine may have none."""
    warnings: tuple[str, ...] = ()
    """Warnings about these machines for the user."""


def require_alike(nodes: Sequence[Node], here: Software) -> None:
    """Raise unless every node has this machine's versions: another version could give another verdict."""
    problems = [problem for node in nodes for problem in differences(node, here, nodes[0])]
    if problems:
        listed = "; ".join(problems[:_MOST_LISTED])
        more = f"; and {len(problems) - _MOST_LISTED} more" if len(problems) > _MOST_LISTED else ""
        raise InfrastructureError(
            f"versions differ between nodes: {listed}{more}. Install the same versions on every node."
        )


_MOST_LISTED = 6
"""Most differences that one message lists."""


def differences(node: Node, here: Software, first: Node) -> list[str]:
    """Differences between the versions of a node and those of this machine or the first node, as text."""
    theirs, beside = node.software, first.software
    found = _differ(node.name, "Torchstone", theirs.torchstone, here.torchstone, "this machine")
    # The head of a cluster may have torch's CPU build. So only the release is compared with this machine.
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
    """A warning for each node on which a kernel can reach the sockets of Ray's processes."""
    refused = [(node.name, layer.detail) for node in nodes for layer in node.layers if _is_missing_files(layer)]
    return tuple(
        f"node {name} refuses the layer 'files' ({detail}): a kernel there can reach the sockets of Ray, and so the "
        "cluster. Allow user namespaces on it, or refuse such nodes with --isolation strict"
        for name, detail in refused
    )


def _is_missing_files(layer: Layer) -> bool:
    return layer.name == "files" and not layer.active
