"""Plots: charts of sweeps and runs by Vega-Lite, as SVG, PNG or one HTML page that works offline.

The libraries, altair and vl-convert, come with the extra `plots`. This module imports neither: code that draws calls
:func:`require_libraries` first, so that a missing extra is one line and not a traceback.
"""

from __future__ import annotations

import importlib.util

from torchstone.errors import MissingExtraError

CHARTS = ("time", "bandwidth", "speedup", "heatmap", "efficiency", "size", "roofline")
"""Charts of a sweep by name, in the order in which they are drawn."""
FORMATS = ("svg", "png", "html")

_PACKAGES = {"altair": "altair", "vl_convert": "vl-convert-python"}
"""Module -> the package that brings it."""


def require_libraries() -> None:
    """Raise an error that names the extra, unless charts can be drawn and rendered."""
    missing = [package for module, package in _PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise MissingExtraError(
            f"plots need the package{'s' * (len(missing) > 1)} {' and '.join(missing)}. "
            "Install with: pip install torchstone[plots]"
        )
