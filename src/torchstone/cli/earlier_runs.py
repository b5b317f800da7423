"""Takes options that are not given from an earlier run of the same command, for `--resume` and `--last-failed`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

_PARAMETERS = {
    "operators": ("ops",),
    "backend": ("backends",),
    "suite": ("suite", "case"),
    "measured": ("no_measure",),
    "judged": ("no_judge",),
    "regression_threshold_pct": ("regression_threshold",),
    "require_authored": ("require_authored_kernel",),
    "deadlines": ("timeout_multiplier",),
    "stream": ("no_stream",),
    "price": ("price", "prices"),
}
"""Field of a request -> the options that it comes from, where it is not one of the same name."""
_PARTS = {
    "deadlines": {f"{stage}_seconds": f"{stage}_timeout" for stage in ("load", "compile", "check", "measure")},
    "limits": {"memory_bytes": "memory_limit", "scratch_bytes": "scratch_limit", "processes": "process_limit"},
}
"""Field of a request -> its own fields, each with its option: one that is given leaves the others as they were."""


class NothingFailed(Exception):  # noqa: N818 - an answer
    """There is nothing to judge again: every case of the run agrees."""


def with_earlier(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The fields of the request, those that no option was given for as the earlier run had them."""
    if given["resume"] and given["last_failed"] is not None:
        raise click.UsageError("--resume continues a run, --last-failed begins another. Give one of them.")
    if given["resume"]:
        return _resumed(fields, given)
    if given["last_failed"] is not None:
        return _of_failed(fields, given)
    return fields


def _resumed(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    from torchstone.runs import earlier
    from torchstone.runs.folder import unknown_run

    output_dir: Path = given["output_dir"]
    if given["run_id"] is None:
        folder, progress = earlier.newest_unfinished(output_dir)
        of = "" if progress.planned is None else f" of {progress.planned}"
        _say(f"going on with {folder}, in which {progress.judged}{of} cases are judged", given)
    else:
        folder = output_dir / given["run_id"]
        if not folder.is_dir():
            raise unknown_run(folder.name, output_dir)
    fields = {**fields, "run_id": folder.name}
    if earlier.was_begun(folder):
        return merged(fields, earlier.remembered(folder))
    if folder.is_dir():
        _say(f"{folder} has no options to remember: its run was killed at once. It begins now as asked.", given)
    return fields


def _of_failed(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """A new run on the failed cases. Their keys select them, instead of the options that narrowed the earlier run."""
    from torchstone.runs import earlier
    from torchstone.schema import forward_operator

    folder = earlier.find_run(given["last_failed"], given["output_dir"])
    failed = earlier.failed_cases(folder, missing_too=given["fail_on_missing"])
    if not failed:
        raise NothingFailed(f"no case failed in {folder}: there is nothing to judge again.")
    _say(f"judging what failed in {folder}: {len(failed)} case{'s' * (len(failed) != 1)}", given)
    narrowing = {
        "operators": tuple(dict.fromkeys(forward_operator(case.operator) for case in failed)),
        "expression": None,
        "largest": None,
        "sample": None,
        "case_keys": tuple(dict.fromkeys(case.key for case in failed)),
    }
    return merged(fields, {**earlier.remembered(folder), **narrowing})


def merged(fields: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    """The fields given now win over those of the earlier run, and these over the defaults."""
    asked = {name: value for name, value in fields.items() if any(map(_was_given, _PARAMETERS.get(name, (name,))))}
    if "suite" in asked and "case" in fields:
        asked["case"] = fields["case"]
    found = {**fields, **earlier, **asked}
    for name, parts in _PARTS.items():
        if name in earlier and name not in asked:
            found[name] = _with_parts(
                earlier[name], fields[name], [key for key, option in parts.items() if _was_given(option)]
            )
    return found


def _with_parts(earlier: Any, now: Any, names: list[str]) -> Any:
    import msgspec

    return msgspec.structs.replace(earlier, **{name: getattr(now, name) for name in names})


def _was_given(parameter: str) -> bool:
    source = click.get_current_context().get_parameter_source(parameter)
    return source not in (None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)


def _say(line: str, given: dict[str, Any]) -> None:
    if not given["quiet"]:
        click.echo(line, err=True)
