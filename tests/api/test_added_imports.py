"""A kernel that forgets its imports, in a real sandbox."""

from __future__ import annotations

import torchstone
from torchstone.schema import Agrees, Case, Crashed, Normal, Tensor

RELU = "aten.relu.default"
CASES = (Case("mine", RELU, (Tensor((5,), "float32", Normal()),)),)

FORGETFUL = """def relu(x):
    return torch.clamp(x, min=math.floor(0.5))
"""
BROKEN = """

def relu(x):
    return torch.clamp(x, min=no_such_name)
"""


def test_forgotten_imports_are_added_and_recorded_and_lines_in_errors_stay_the_authors() -> None:
    with torchstone.Judge(device="cpu", cases=CASES, effort="quick") as judge:
        right, broken, complete = judge.check([FORGETFUL, BROKEN, "import torch\nimport math\n" + FORGETFUL])
    (record,) = right.records
    assert isinstance(record.verdict, Agrees), record.verdict
    assert record.added_imports == ("import math", "import torch")
    (failed,) = broken.records
    assert isinstance(failed.verdict, Crashed)
    assert "no_such_name" in failed.verdict.message
    assert "line 4" in (failed.verdict.traceback or "")
    assert failed.added_imports == ("import torch",)
    assert complete.agrees
    assert complete.records[0].added_imports == ()
