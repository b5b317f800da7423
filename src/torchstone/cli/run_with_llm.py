"""`torchstone run --backend llm`: lets a model write kernels; the run then judges the best of each operator.

The run folder is created when generation begins. So `run --resume` can resume generation or judging, with all options.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from torchstone.cli.model_options import MODEL_FIELDS, price_of

if TYPE_CHECKING:
    from torchstone.generation import GenerationRequest
    from torchstone.runs import RunRequest


def with_generated(request: RunRequest, given: Mapping[str, Any]) -> RunRequest | None:
    """Generate kernels, and return the request with their folder; None: generation was interrupted.

    ``--kernels-dir`` names the parent of that folder. Attempts are judged with effort `quick`, the run with its own.
    """
    from torchstone.runs.folder import read_plan, resuming_command

    if request.resume and read_plan(request.output_dir / str(request.run_id)) is not None:
        return request  # generation ended in an earlier part of the run
    asked = _resumed_generation(request, given) if request.resume else _new_generation(request, given)
    run = _RunFolder(request)
    if not _generate(asked, run, given):
        click.echo(f"interrupted; go on with: {resuming_command(run.folder)}", err=True)
        return None
    return run.request


class _RunFolder:
    """Creates the folder of the run and stores its options there. It is named like the kernels folder, if possible."""

    def __init__(self, request: RunRequest) -> None:
        self.request = request

    @property
    def folder(self) -> Path:
        return self.request.output_dir / str(self.request.run_id)

    def make(self, kernels: Path) -> None:
        """Create the run folder. Called when generation begins, with the folder of the kernels."""
        from torchstone.runs.devices import resolve_device
        from torchstone.runs.folder import open_folder
        from torchstone.runs.manifest import collect
        from torchstone.runs.request import check, configuration

        name = self.request.run_id
        if name is None and not (self.request.output_dir / kernels.name).exists():
            name = kernels.name
        self.request = check(msgspec.structs.replace(self.request, kernels_dir=kernels, run_id=name))
        manifest = collect(configuration(self.request, resolve_device(self.request.device)))
        folder = open_folder(self.request, manifest)
        self.request = msgspec.structs.replace(self.request, run_id=folder.name, resume=True)


def _generate(asked: GenerationRequest, run: _RunFolder, given: Mapping[str, Any]) -> bool:
    """Generate the kernels. Returns False if that was interrupted."""
    from torchstone.cli.generate import generated

    return not generated(asked, quiet=given["quiet"], verbose=given["verbose"], begun=run.make).interrupted


def _new_generation(request: RunRequest, given: Mapping[str, Any]) -> GenerationRequest:
    """The request that generates kernels for a new run."""
    from torchstone.generation import GenerationRequest
    from torchstone.runs.folder import require_new

    if request.case is not None:
        raise click.UsageError("--backend llm writes kernels for a suite's operators. Leave out --case.")
    if request.executor != "local":
        raise click.UsageError(
            f"--backend llm judges attempts on this machine, and --executor is {request.executor}. Run 'torchstone "
            f"generate' first, then 'torchstone run --backend directory --executor {request.executor}'."
        )
    require_new(request)  # before anything is paid for
    return GenerationRequest(**_fields(request, given))


def _resumed_generation(request: RunRequest, given: Mapping[str, Any]) -> GenerationRequest:
    """The request that resumes the generation of an earlier part of the run."""
    from torchstone.cli.generate import with_remembered
    from torchstone.generation import GenerationRequest
    from torchstone.runs.folder import read_manifest

    stored = read_manifest(request.output_dir / str(request.run_id)).configuration["kernels_dir"]
    kernels = Path(str(stored))
    place = {"run_id": kernels.name, "output_dir": kernels.parent, "resume": True}
    return GenerationRequest(**with_remembered({**_fields(request, given), **place}, given))


def _fields(request: RunRequest, given: Mapping[str, Any]) -> dict[str, Any]:
    from torchstone.generation import GenerationRequest
    from torchstone.generation.request import OUTPUT_DIR

    shared = set(GenerationRequest.__struct_fields__) & set(request.__struct_fields__)
    own = {"effort", "resume", "output_dir"}
    return {
        **{name: getattr(request, name) for name in shared - own},
        **{name: given[name] for name in MODEL_FIELDS},
        "max_attempts": given["max_attempts"] or 5,
        "price": price_of(given),
        "output_dir": request.kernels_dir or OUTPUT_DIR,
    }
