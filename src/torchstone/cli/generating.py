"""`torchstone run --backend llm`: kernels are generated first, then the best of them are judged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.model_options import MODEL_FIELDS, price_of

if TYPE_CHECKING:
    from torchstone.runs import RunRequest


def with_generated(request: RunRequest, given: Mapping[str, Any]) -> RunRequest | None:
    """The request with the folder of kernels that were generated for it; None: it was interrupted.

    ``--kernels-dir`` is where the folder is made. Attempts are judged quickly, the run then judges with its own effort.
    """
    import msgspec

    from torchstone.cli.generate import generated, tell_resuming
    from torchstone.generation import GenerationRequest
    from torchstone.generation.request import OUTPUT_DIR

    if request.mode != "fwd" or request.case is not None:
        raise click.UsageError("--backend llm writes kernels for a suite's operators. Leave out --mode and --case.")
    same: tuple[str, ...] = (
        "suite",
        "operators",
        "dtypes",
        "source",
        "largest",
        "sample",
        "device",
        "isolation",
        "threads",
        "judges",
    )
    same += ("shapes", "non_finite", "deadlines", "limits", "run_id", "command")
    asked = GenerationRequest(
        **{name: getattr(request, name) for name in same},
        **{name: given[name] for name in MODEL_FIELDS},
        max_attempts=given["max_attempts"] or 5,
        require_authored=request.require_authored,
        price=price_of(given),
        output_dir=request.kernels_dir or OUTPUT_DIR,
    )
    result = generated(asked, quiet=given["quiet"], verbose=given["verbose"])
    if result.interrupted:
        tell_resuming(result)
        kernels = Path(result.folder)
        click.echo(f"and then judge: torchstone run --backend directory --kernels-dir {kernels}", err=True)
        return None
    return msgspec.structs.replace(request, kernels_dir=result.folder)
