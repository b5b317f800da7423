"""The JSON Schema in the documentation is the one that the nouns have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal, get_args, get_origin

import msgspec
import pytest

from docs.pages import ROOT
from torchstone.schema import Record, Verdict
from torchstone.schema.__main__ import NOUNS, as_text, main, schema_of
from torchstone.schema.verdict import Stage


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


PAGE = (ROOT / "docs" / "schema.md").read_text()
KINDS = {str(kind.__struct_config__.tag): kind for kind in get_args(Verdict)}


def test_the_page_has_every_kind_of_verdict_with_its_fields() -> None:
    table = re.search(r"^## Verdicts\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    assert table
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table[1], re.MULTILINE))
    assert list(rows) == list(KINDS)
    for tag, kind in KINDS.items():
        told = re.sub(r" \([^)]*\)", "", rows[tag]).split(", ")
        assert told == [field.name for field in msgspec.structs.fields(kind)], tag
        words = [word for field in msgspec.structs.fields(kind) if field.name != "stage" for word in _words(field.type)]
        assert re.findall(r"`(\w+)`", rows[tag]) == words, tag


def _words(kind: object) -> tuple[str, ...]:
    """The values of a field that has a few."""
    return get_args(kind) if get_origin(kind) is Literal else ()


def test_the_page_has_every_stage() -> None:
    told = re.search(r"^Stages are (.*?)\.", PAGE, re.MULTILINE | re.DOTALL)
    assert told
    assert tuple(re.findall(r"`(\w+)`", told[1])) == get_args(Stage)
