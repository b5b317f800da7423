"""Chooses the device on which the judge draws inputs, evaluates in float64 and compares.

The judge is the trusted process that checks and times a kernel. Large cases use the GPU. Small cases use the CPU: they
consist of hundreds of tiny steps, each of which would wait for a GPU that other processes use. Timed cases always use
the GPU. The choice depends only on the case and its device, so that a replay draws the same values again.
"""

from __future__ import annotations

import torch

from torchstone import operators, schema

_MOST_HOST_ELEMENTS = 1 << 14
"""Most elements of a case's tensors for which the CPU is used."""
_HOST = torch.device("cpu")


def arithmetic_device_of(case: schema.Case, device: torch.device) -> torch.device:
    """The device that draws and compares calls of a case that is judged on ``device``."""
    if device.type == "cpu" or case.timed or not operators.runs_on_the_host(case.operator):
        return device
    elements = sum(operators.storage_extent(recipe) for recipe in schema.tensors_of(case))
    return _HOST if elements <= _MOST_HOST_ELEMENTS else device
