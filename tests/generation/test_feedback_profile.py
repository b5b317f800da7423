"""`--feedback-profile`: the author of a right kernel reads where its time goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from generation.test_run import Watcher, carry_out
from torchstone.errors import UsageError
from torchstone.generation import GenerationRequest, generate
from torchstone.generation.providers import ModelRequest, ScriptedProvider
from torchstone.schema import Profile, decode

RIGHT = "import torch\n\n\ndef relu_kernel_impl(self):\n    return torch.where(self <= 0, 0.0, self)  # {number}\n"
WRONG = "import torch\n\n\ndef relu_kernel_impl(self):\n    return self.abs()\n"


def test_feedback_on_a_right_kernel_has_its_profile(tmp_path: Path) -> None:
    def script(request: ModelRequest) -> str:
        return f"```python\n{WRONG if request.number == 1 else RIGHT.format(number=request.number)}```"

    provider = ScriptedProvider(script)
    request = GenerationRequest(
        operators=("relu",), dtypes=("float32",), largest=1, dsl="pytorch", device="cpu", max_attempts=3,
        target_speedup=1000.0, feedback_profile=True, output_dir=tmp_path, run_id="mine",
    )  # fmt: skip
    result = generate(request, Watcher(), provider=provider)
    assert [attempt.right for attempt in result.attempts] == [False, True, True]
    on_wrong, on_right = (request.messages[-1].text for request in provider.requests[1:])
    assert "by torch's profiler" not in on_wrong
    assert "Where the time goes, by torch's profiler:" in on_right
    assert "% operator aten::where" in on_right
    (path,) = (result.folder / "relu").glob("*.profile.json")
    assert path.name == "relu_attempt_2.profile.json"
    (profiled,) = decode(path.read_bytes(), Profile).results
    assert (profiled.status, profiled.sandboxed) == ("profiled", True)


@pytest.mark.parametrize("fields", [{}, {"strategy": "best-of-n", "target_speedup": 2.0}])
def test_a_profile_that_no_model_would_read_is_refused(tmp_path: Path, fields: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="no model would read it"):
        carry_out(lambda request: RIGHT, tmp_path / "none", feedback_profile=True, **fields)
    assert not (tmp_path / "none").exists()
