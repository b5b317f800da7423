"""Chooses the machine on which a suite finds its cases: this one, or a node that has the device or the source file."""

from __future__ import annotations

from torchstone import registry
from torchstone.executors import Site
from torchstone.runs.devices import has_device
from torchstone.suites import Suite
from torchstone.suites.remote_suite import SuiteAtNode, is_here


def suite_at(name: str, source: str | None, site: Site) -> Suite:
    """The suite of this name. A node finds its cases if this machine lacks the device or the suite's source file."""
    if site.ask is not None and not (has_device(site.device) and is_here(source)):
        return SuiteAtNode(name, site.ask)
    made: Suite = registry.suites.factory(name)()
    return made
