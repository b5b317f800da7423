"""The JSON Schema in the documentation is the one that the nouns have."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from docs.pages import ROOT
from torchstone.schema import Record
from torchstone.schema.__main__ import NOUNS, as_text, main, schema_of


@pytest.mark.parametrize("name", NOUNS)
def test_the_schema_in_the_docs_is_not_stale(name: str) -> None:
    stored = (ROOT / "docs" / "schema" / name).read_text()
    assert stored == as_text(schema_of(NOUNS[name])), "run: python -m torchstone.schema docs/schema"


def test_the_docs_hold_no_schema_besides() -> None:
    assert {path.name for path in (ROOT / "docs" / "schema").iterdir()} == set(NOUNS)


def test_what_is_written_is_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "new")]) == 0
    assert main([]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {name: json.loads((tmp_path / "new" / name).read_text()) for name in NOUNS}


def test_every_field_of_a_record_is_in_its_schema() -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(Record)}
    assert set(schema_of(Record)["$defs"]["Record"]["properties"]) == fields
