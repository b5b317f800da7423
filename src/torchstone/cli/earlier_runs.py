"""Takes options that are not given from an earlier run of the same command, for `--resume` and `--last-failed`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

_OPTIONS_OF_FIELD = {
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
"""Field of a request -> the options that set it, if that is not an option of the same name."""
_OPTIONS_OF_PARTS = {
    "deadlines": {f"{stage}_seconds": f"{stage}_timeout" for stage in ("load", "compile", "check", "measure")},
    "limits": {"memory_bytes": "memory_limit", "scratch_bytes": "scratch_limit", "processes": "process_limit"},
}
"""Field of a request that is a struct -> its fields, each with its option. Fields without a given option keep the
earlier run's value."""


class NothingFailed(Exception):  # noqa: N818 - an answer
    """No case of the run failed, so there is nothing to judge again."""


def with_earlier(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The fields of the request. Those without a given option have the value of the earlier run."""
    if given["resume"] and given["last_failed"] is not None:
        raise click.UsageError("--resume continues a run, --last-failed begins another. Give one of them.")
    if given["resume"]:
        return _resumed(fields, given)
    if given["last_failed"] is not None:
        return _with_failed_cases(fields, given)
    return fields


def _resumed(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    from torchstone.runs import earlier
    from torchstone.runs.folder import unknown_run

    output_dir: Path = given["output_dir"]
    if given["run_id"] is None:
        folder, progress = earlier.newest_unfinished(output_dir)
        of = "" if progress.planned is None else f" of {progress.planned}"
        _print_notice(f"going on with {folder}, in which {progress.judged}{of} cases are judged", given)
    else:
        folder = output_dir / given["run_id"]
        if not folder.is_dir():
            raise unknown_run(folder.name, output_dir)
    fields = {**fields, "run_id": folder.name}
    if earlier.was_begun(folder):
        return merged(fields, earlier.remembered(folder))
    if folder.is_dir():
        _print_notice(
            f"{folder} has no options to remember: its run was killed at once. It begins now as asked.", given
        )
    return fields


def _with_failed_cases(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a new run on the failed cases. The cases' keys select them, not the earlier run's options."""
    from torchstone.runs import earlier
    from torchstone.schema import forward_operator

    folder = earlier.find_run(given["last_failed"], given["output_dir"])
    failed = earlier.failed_cases(folder, missing_too=given["fail_on_missing"])
    if not failed:
        raise NothingFailed(f"no case failed in {folder}: there is nothing to judge again.")
    _print_notice(f"judging what failed in {folder}: {len(failed)} case{'s' * (len(failed) != 1)}", given)
    narrowing = {
        "operators": tuple(dict.fromkeys(forward_operator(case.operator) for case in failed)),
        "expression": None,
        "largest": None,
        "sample": None,
        "case_keys": tuple(dict.fromkeys(case.key for case in failed)),
    }
    return merged(fields, {**earlier.remembered(folder), **narrowing})


def merged(fields: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    """Fields with options that are given now take precedence over the earlier run's, and those over defaults."""
    given_now = {
        name: value for name, value in fields.items() if any(map(_was_given, _OPTIONS_OF_FIELD.get(name, (name,))))
    }
    if "suite" in given_now and "case" in fields:
        given_now["case"] = fields["case"]
    found = {**fields, **earlier, **given_now}
    for name, parts in _OPTIONS_OF_PARTS.items():
        if name in earlier and name not in given_now:
            found[name] = _with_parts(
                earlier[name], fields[name], [key for key, option in parts.items() if _was_given(option)]
            )
    return found


def _with_parts(earlier: Any, current: Any, names: list[str]) -> Any:
    import msgspec

    return msgspec.structs.replace(earlier, **{name: getattr(current, name) for name in names})


def _was_given(parameter: str) -> bool:
    source = click.get_current_context().get_parameter_source(parameter)
    return source not in (None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)


def _print_notice(line: str, given: dict[str, Any]) -> None:
    if not given["quiet"]:
        click.echo(line, err=True)
