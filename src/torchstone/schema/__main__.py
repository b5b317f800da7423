"""``python -m torchstone.schema [FOLDER]``: writes the JSON Schema of the files in a run folder.

The schemas are generated from the data classes in `NOUNS`. Equal classes give equal bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from torchstone.schema import FORMAT_VERSION, Manifest, PlannedRun, Profile, Record
from torchstone.schema.generation import Attempt, Exchange, GenerationRun

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NOUNS: dict[str, type[msgspec.Struct]] = {
    "record.schema.json": Record,
    "manifest.schema.json": Manifest,
    "plan.schema.json": PlannedRun,
    "profile.schema.json": Profile,
    "attempt.schema.json": Attempt,
    "exchange.schema.json": Exchange,
    "generation.schema.json": GenerationRun,
}
"""File name -> the data class that it describes."""


def main(argv: list[str] | None = None) -> int:
    """Print the schemas as one object, or write each to its own file."""
    parser = argparse.ArgumentParser(prog="python -m torchstone.schema", description="JSON Schema of the run files.")
    parser.add_argument("folder", nargs="?", type=Path, help="write one file per data class here instead of printing")
    folder: Path | None = parser.parse_args(argv).folder
    schemas = {name: schema_of(noun) for name, noun in NOUNS.items()}
    if folder is None:
        sys.stdout.write(as_text(schemas))
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in schemas.items():
        (folder / name).write_text(as_text(schema), encoding="utf-8")
    return 0


def schema_of(noun: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema of one data class, with the version of the record format that it belongs to."""
    about = {"$schema": DIALECT, "$comment": f"Torchstone record format {FORMAT_VERSION}", "title": noun.__name__}
    return about | msgspec.json.schema(noun)


def as_text(schema: dict[str, Any]) -> str:
    """The schema as indented JSON with sorted keys and a final newline."""
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
