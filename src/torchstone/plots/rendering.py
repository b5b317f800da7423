"""Renders charts as SVG, PNG, or one HTML page that holds all charts and works offline."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from html import escape
from typing import Any

import altair as alt
import vl_convert

from torchstone.plots.style import TopLevel

_PNG_SCALE = 2
"""Pixels per unit of the chart: sharp on dense screens, about 1800 pixels wide."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 15px Helvetica, Arial, sans-serif; color: #1b1f24; margin: 1.5rem auto; max-width: 1200px; }}
nav a {{ margin-right: 1rem; }}
section {{ margin: 1rem 0 2.5rem; overflow-x: auto; }}
</style>
<script>
{libraries}
</script>
</head>
<body>
<h1>{title}</h1>
<nav>{links}</nav>
{sections}
<script>
const charts = {charts};
for (const [name, chart] of Object.entries(charts))
  vegaEmbed("#chart-" + name, chart, {{actions: {{export: true, source: false, compiled: false, editor: false}}}});
</script>
</body>
</html>
"""


def svg(chart: TopLevel) -> bytes:
    """The chart as SVG."""
    return vl_convert.vegalite_to_svg(_spec(chart), vl_version=_version()).encode()


def png(chart: TopLevel) -> bytes:
    """The chart as PNG."""
    return vl_convert.vegalite_to_png(_spec(chart), scale=_PNG_SCALE, vl_version=_version())


RENDERERS: dict[str, Callable[[TopLevel], bytes]] = {"svg": svg, "png": png}
"""Format -> renderer, for formats with one file per chart."""


def html_page(charts: Mapping[str, TopLevel], title: str) -> bytes:
    """One HTML page with all charts. It contains the libraries, so that it works offline."""
    links = "".join(f'<a href="#chart-{escape(name)}">{escape(name)}</a>' for name in charts)
    sections = "\n".join(f'<section id="chart-{escape(name)}"></section>' for name in charts)
    specs = json.dumps({name: _spec(chart) for name, chart in charts.items()})
    page = _PAGE.format(
        title=escape(title),
        libraries=_libraries(),
        links=links,
        sections=sections,
        charts=_for_script(specs),
    )
    return page.encode()


@cache
def _libraries() -> str:
    """Vega, Vega-Lite and vega-embed as one script; bundling takes a second or more."""
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=_version())
    # Only text that would end the element is escaped. "</" alone also ends regular expressions such as /</g.
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _spec(chart: TopLevel) -> dict[str, Any]:
    found: dict[str, Any] = chart.to_dict()
    return found


def _version() -> str:
    """Vega-Lite release that altair writes, or the newest that vl-convert renders if it lacks that one."""
    wanted = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    known = vl_convert.get_vegalite_versions()
    return wanted if wanted in known else known[-1]


def _for_script(text: str) -> str:
    """The JSON with `<` escaped, so that it cannot end the script element that contains it."""
    return text.replace("<", "\\u003c")
