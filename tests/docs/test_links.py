"""No link of the documentation leads nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.pages import PAGES, ROOT, anchors, links, name_of


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_resolves(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{name_of(page)} links to {link}, which is not there"
        assert target.resolve().is_relative_to(ROOT), f"{name_of(page)} links out of the repository: {link}"
        assert not anchor or anchor in anchors(target), f"{name_of(page)} links to {link}, but there is no such heading"


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / link).resolve() for link in links(index)}
    assert {page for page in PAGES if page.parent == index.parent} - {index} <= named
