"""Reads registers, spills and shared memory of the kernels that a call launched, from Triton and the profiler.

Like all attribution, these figures come from the candidate's process. A dishonest candidate can falsify them.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from torchstone.schema import KernelCode

NAME_CHARACTERS = 300
"""Longest name of a device kernel in a report; the rest is cut off."""


class TritonLaunches:
    """Context manager that records which compiled kernels Triton launches. In Triton's interpreter it records none."""

    def __init__(self) -> None:
        self._functions: set[Any] = set()

    def __enter__(self) -> TritonLaunches:
        hooks = _launch_hooks()
        if hooks is not None:
            hooks.add(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        hooks = _launch_hooks()
        if hooks is not None:
            hooks.remove(self._note)

    def _note(self, launch: Any) -> None:
        with contextlib.suppress(AttributeError, KeyError, TypeError):  # another version of Triton
            self._functions.add(launch.data["function"])

    def code(self) -> tuple[KernelCode, ...]:
        """Resources of the launched kernels. A launch has only a handle, so all objects are searched for its kernel."""
        if not self._functions:
            return ()
        kernels = [item for item in gc.get_objects() if _is_compiled_kernel(item)]
        return tuple(_code_of(kernel) for kernel in kernels if getattr(kernel, "function", None) in self._functions)


def _launch_hooks() -> Any:
    """Triton's list of launch hooks. None: Triton is not imported, or has no such list."""
    triton = sys.modules.get("triton")
    hooks = getattr(getattr(getattr(triton, "knobs", None), "runtime", None), "launch_enter_hook", None)
    return hooks if hasattr(hooks, "add") and hasattr(hooks, "remove") else None


def _is_compiled_kernel(item: object) -> bool:
    kind = type(item)
    return kind.__name__ == "CompiledKernel" and kind.__module__.startswith("triton.")


def _code_of(kernel: Any) -> KernelCode:
    metadata = getattr(kernel, "metadata", None)
    return KernelCode(
        str(getattr(kernel, "name", "?"))[:NAME_CHARACTERS],
        registers_per_thread=_count(getattr(kernel, "n_regs", None)),
        spilled_registers=_count(getattr(kernel, "n_spills", None)),
        shared_memory_bytes=_count(getattr(metadata, "shared", None)),
        warps=_count(getattr(metadata, "num_warps", None)),
        stages=_count(getattr(metadata, "num_stages", None)),
    )


def traced_code(profile: Any) -> tuple[KernelCode, ...]:
    """Resources of the kernels in a finished profile. Only the trace that it exports has their registers."""
    try:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            profile.export_chrome_trace(file.name)
            return code_in(Path(file.name).read_text(errors="replace"))
    except (OSError, RuntimeError):  # no room left in the scratch folder
        return ()


def code_in(trace: str) -> tuple[KernelCode, ...]:
    """Resources of the kernels in a Kineto trace, without repeated equal launches. Empty if the text is no trace."""
    try:
        events = json.loads(trace)["traceEvents"]
        kernels = [event for event in events if event.get("cat") == "kernel"]
        return tuple(dict.fromkeys(_traced(event["name"], event.get("args", {})) for event in kernels))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


def _traced(name: str, attributes: dict[str, Any]) -> KernelCode:
    occupancy = attributes.get("est. achieved occupancy %")
    block = _extent(attributes.get("block"))
    return KernelCode(
        name[:NAME_CHARACTERS],
        registers_per_thread=_count(attributes.get("registers per thread")),
        shared_memory_bytes=_count(attributes.get("shared memory")),
        warps=None if block is None else _count(-(-math.prod(block) // 32)),
        grid=_extent(attributes.get("grid")),
        block=block,
        occupancy_percent=float(occupancy) if isinstance(occupancy, (int, float)) and 0 <= occupancy <= 100 else None,
    )


def merged(traced: Iterable[KernelCode], compiled: Iterable[KernelCode], most: int) -> tuple[KernelCode, ...]:
    """Merge both reports, up to ``most`` entries. A traced launch gets the fields that only Triton's report has."""
    compilations = list(compiled)
    found = [_with_triton_fields(launch, compilations) for launch in traced]
    launched = {code.name for code in found}
    found += [code for code in compilations if code.name not in launched]
    return tuple(dict.fromkeys(found))[:most]


def _with_triton_fields(launch: KernelCode, compilations: Iterable[KernelCode]) -> KernelCode:
    """The launch with spills and stages of the kernel's compilation. Of several with its name, the most similar one."""
    same = [code for code in compilations if code.name == launch.name]
    if not same:
        return launch
    seen = launch.registers_per_thread, launch.warps
    nearest = min(same, key=lambda code: (code.registers_per_thread != seen[0], code.warps != seen[1]))
    return msgspec.structs.replace(launch, spilled_registers=nearest.spilled_registers, stages=nearest.stages)


def _count(value: Any) -> int | None:
    """The value as an integer; None if it is not a number in a plausible range."""
    return int(value) if isinstance(value, (int, float)) and 0 <= value < 1 << 62 else None


def _extent(value: Any) -> tuple[int, int, int] | None:
    """A grid or block size in x, y and z; None if the value is not a list of three numbers."""
    found = [_count(item) for item in value] if isinstance(value, list) and len(value) == 3 else []
    sizes = [item for item in found if item is not None]
    return (sizes[0], sizes[1], sizes[2]) if len(sizes) == 3 else None
