"""The corpus on a CUDA device. Run with ``-m gpu``."""

from __future__ import annotations

import pytest

from redteam.test_corpus_cpu import expect
from torchstone.redteam import FixtureResult, judge_corpus, read_corpus

pytestmark = [pytest.mark.gpu, pytest.mark.adversary]

_BY_ID = {fixture.id: fixture for fixture in read_corpus() if fixture.device == "cuda"}
_CASES = [(fixture.id, case) for fixture in _BY_ID.values() for case in fixture.expected]


@pytest.fixture(scope="module")
def findings() -> dict[tuple[str, str], FixtureResult]:
    return {(found.fixture, found.case): found for found in judge_corpus("cuda")}


@pytest.mark.parametrize(("name", "case"), _CASES, ids=[f"{name}-{case}" for name, case in _CASES])
def test_every_fixture_gets_what_it_must_get(
    name: str, case: str, findings: dict[tuple[str, str], FixtureResult]
) -> None:
    expect(_BY_ID[name], findings[name, case])
