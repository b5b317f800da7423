"""The table of ``torchstone watch``, as it is drawn on a terminal."""

from __future__ import annotations

import io

from rich.console import Console

import made_records as making
from torchstone.api import Evaluation
from torchstone.cli.watch_view import TableView
from torchstone.schema import Disagrees

RELU, ADD = "aten.relu.default", "aten.add.Tensor"


def drawn(view: TableView) -> str:
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(view.table())
    return console.export_text()


def test_rows_follow_the_kernels() -> None:
    view = TableView()
    view.judging(RELU)
    view.judging(ADD)
    assert drawn(view).count("judging") == 2
    wrong = making.record(Disagrees("check", "values", "at [0]: got 1, expected 2"))
    view.judged(RELU, Evaluation(RELU, (wrong,)))
    view.failed(ADD, "no case of this operator")
    text = drawn(view)
    assert text.index("aten.add") < text.index("aten.relu")
    assert "disagrees" in text
    assert "got 1" in text
    assert "not judged" in text
    view.removed(ADD)
    assert "aten.add" not in drawn(view)


def test_a_note_about_the_folder_stays_until_it_is_no_longer_so() -> None:
    view = TableView()
    assert "Ctrl-C ends it" in drawn(view)
    view.noted("no folder of my_kernels has a kernel for add yet")
    view.judging(RELU)
    view.judged(RELU, Evaluation(RELU, (making.record(),)))
    assert "kernel for add yet" in drawn(view)
    view.noted("")
    assert "Ctrl-C ends it" in drawn(view)
