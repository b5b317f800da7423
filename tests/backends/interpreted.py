"""Triton's interpreter, mended far enough to run Liger's kernels on the CPU in float32. Import before any kernel.

As it stands the interpreter hands float arguments over as Python floats, which have no `.to`, and knows no libdevice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import interpreter

_convert = interpreter._implicit_cvt


def _with_floats(argument: Any) -> Any:
    if isinstance(argument, float):
        value = interpreter.TensorHandle(np.array([argument], dtype=np.float32), tl.float32)
        return tl.tensor(value, tl.float32)
    return _convert(argument)


interpreter._implicit_cvt = _with_floats
libdevice.rsqrt = lambda x: tl.rsqrt(x)
