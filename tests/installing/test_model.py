"""A model trained with and without kernels: right ones agree within a measured floor, wrong ones do not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec.structs import replace

import torchstone
from torchstone.cli import main
from torchstone.errors import InfrastructureError, KernelError, UsageError
from torchstone.installing.model import ModelRequest, compare
from torchstone.installing.model_training import Script, ScriptError, Training, rounded_once_more
from torchstone.installing.training_comparison import compare_files, compare_losses, times_of
from torchstone.installing.training_process import Side
from torchstone.installing.training_process_messages import ModelOrder, Step

WriteKernel = Callable[..., Path]
EXAMPLES = Path(__file__).parents[2] / "examples" / "training_kernels"
CPU = torch.device("cpu")
SMALL = """
import torch
from torch import nn

def make_model():
    print("a script may print")
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 3))

def make_batch(step):
    return (torch.randn(5, 6),)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "small.py"
    path.write_text(SMALL)
    return path


def train(training: Training, steps: int) -> list[float]:
    return [training.step(number, None).loss for number in range(steps)]


# ---- a transformer, 200 steps


@pytest.mark.slow
def test_a_transformer_learns_the_same_with_kernels_for_200_steps() -> None:
    steps = 200
    script = Script(EXAMPLES / "transformer.py")
    plain = train(Training(script, CPU, 0), steps)
    noisy = train(Training(script, CPU, 0, torch.Generator().manual_seed(0)), steps)
    training = Training(script, CPU, 0)
    with torchstone.enable(EXAMPLES, device="cpu") as installation:
        kernels = train(training, steps)
    found = compare_losses(plain, kernels, [noisy], 2**-23)
    assert found.agrees, found
    assert found.difference < 1e-3
    assert np.mean(plain[-10:]) < 0.5 * plain[0]
    assert all(calls >= 2 * steps for calls in installation.calls.values()), installation.calls


# ---- the command


def test_right_kernels_agree_and_the_command_tells_so(
    script: Path, write_kernel: WriteKernel, capfd: pytest.CaptureFixture[str]
) -> None:
    write_kernel("no_such_operator", "return x", "x")
    folder = write_kernel("gelu", "return x * 0.5 * torch.erfc(-x / 2**0.5)", "x, *, approximate='none'")
    options = ["--kernels-dir", str(folder), "--steps", "8", "--device", "cpu", "--json"]
    assert main(["model", str(script), *options]) == 0
    printed = capfd.readouterr()
    whole = json.loads(printed.out)
    found = whole["comparison"]
    assert whole["agrees"]
    assert "a script may print" in printed.err
    assert found["operators"] == [{"operator": "aten.gelu.default", "kernel": "gelu/gelu.py", "calls": 8, "refused": 0}]
    assert [problem["where"] for problem in found["problems"]] == ["no_such_operator"]
    assert len(found["plain_losses"]) == len(found["kernels_losses"]) == 8
    assert found["times"]["speedup"]["low"] <= found["times"]["speedup"]["high"]
    assert [item["what"] for item in found["differences"]] == [
        "outputs, first step", "gradients, first step", "outputs, last step", "gradients, last step", "loss, 8 steps"
    ]  # fmt: skip


@pytest.mark.slow
def test_a_kernel_that_is_slightly_wrong_is_told_as_such(
    script: Path, write_kernel: WriteKernel, capfd: pytest.CaptureFixture[str]
) -> None:
    body = "return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))"
    folder = write_kernel("gelu", body, "x, *, approximate='none'")
    options = ["--kernels-dir", str(folder), "--steps", "3", "--device", "cpu"]
    assert main(["model", str(script), *options]) == 1
    printed = capfd.readouterr().out
    assert "DISAGREES" in printed
    assert printed.splitlines()[-1] == "does not agree: 3 steps, 1 operator replaced, 3 calls"


@pytest.mark.slow
def test_a_side_that_dies_with_its_kernel_does_not_agree(script: Path, write_kernel: WriteKernel) -> None:
    folder = write_kernel("gelu", "import os\nos.kill(os.getpid(), 9)", "x, *, approximate='none'")
    found = compare(ModelRequest(script, folder, "cpu", steps=3), lambda done, steps: None)
    assert not found.agrees
    assert found.failure == "with the kernels, step 1: its process was killed by SIGKILL"


def test_a_wrong_script_is_one_line(
    tmp_path: Path, write_kernel: WriteKernel, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = write_kernel("gelu", "return x", "x")
    path = tmp_path / "wrong.py"
    path.write_text("def make_model():\n    raise ValueError('no\\nidea')\n\ndef make_batch(step):\n    return ()\n")
    assert main(["model", str(path), "--kernels-dir", str(folder), "--device", "cpu"]) == 2
    assert capfd.readouterr().err == "error: wrong.py: make_model raised ValueError: no idea.\n"
    assert main(["model", str(tmp_path / "none.py"), "--kernels-dir", str(folder), "--device", "cpu"]) == 2
    assert "is not a file" in capfd.readouterr().err


# ---- its parts


def test_a_kernel_that_is_slightly_wrong_disagrees(script: Path, write_kernel: WriteKernel, tmp_path: Path) -> None:
    folder = write_kernel("gelu", "return torch.nn.functional.silu(1.702 * x) / 1.702", "x, *, approximate='none'")
    order = ModelOrder(str(script), "cpu", 1, 0)
    orders = {
        "plain": order,
        "noisy": replace(order, noisy_copies=2),
        "kernels": replace(order, kernels_dir=str(folder)),
    }
    for name, each in orders.items():
        Side(each).step(Step(0, str(tmp_path / name)))
    torchstone.disable()
    for file in ("outputs.npz", "gradients.npz"):
        copies = [tmp_path / "noisy" / copy / file for copy in "01"]
        found = compare_files(file, tmp_path / "plain" / "0" / file, tmp_path / "kernels" / "0" / file, copies)
        assert not found.agrees
        assert 1e-7 < found.floor < 1e-5
        assert compare_files(file, copies[0], copies[1], copies).agrees


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def make_model(:", "it raised SyntaxError"),
        ("raise SystemExit(1)", "it raised SystemExit: 1"),
        ("def make_model(): pass", "defines no function make_batch"),
        (SMALL.replace("return nn.Sequential", "return type"), "make_model raised TypeError"),
        (SMALL + "\ndef make_model(): return 3", "make_model returned int, no torch.nn.Module"),
        (SMALL + "\ndef make_batch(step): return 3", "make_batch returned int, no tuple of inputs"),
        (SMALL + "\ndef make_batch(step): return torch.ones(2, 2)", "the model raised RuntimeError"),
        (SMALL + "\ndef loss(output, batch): return output", "the loss is not a tensor of one element"),
        (SMALL + "\ndef loss(output, batch): return output.detach().sum()", "training raised RuntimeError"),
        (SMALL + "\ndef make_optimizer(parameters): return 3", "make_optimizer returned int, no Optimizer"),
    ],
)
def test_what_a_script_does_wrong_is_said(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "script.py"
    path.write_text(text)
    with pytest.raises(ScriptError, match=message):
        Training(Script(path), CPU, 0).step(0, None)


def test_an_error_of_a_kernel_is_the_kernels_and_not_the_scripts(script: Path, write_kernel: WriteKernel) -> None:
    folder = write_kernel("gelu", "raise ValueError('no')", "x, *, approximate='none'")
    side = Side(ModelOrder(str(script), "cpu", 1, 0, str(folder)))
    try:
        with pytest.raises(KernelError, match=r"kernel gelu/gelu.py"):
            side.step(Step(0))
    finally:
        torchstone.disable()


def test_outputs_and_gradients_of_every_kind_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "kinds.py"
    path.write_text(
        "import torch\nfrom torch import nn\n\n"
        "def make_model():\n    return nn.Embedding(5, 3, sparse=True)\n\n"
        "def make_batch(step):\n    return torch.tensor([1, 2])\n\n"
        "def forward(model, batch):\n    x = model(*batch)\n"
        "    return {'x': x, 'c': torch.complex(x, x), 'n': x > 0}\n\n"
        "def loss(output, batch):\n    return output['x'].sum()\n"
    )
    Training(Script(path), CPU, 0).step(0, tmp_path / "kept")
    with (
        np.load(tmp_path / "kept" / "outputs.npz") as outputs,
        np.load(tmp_path / "kept" / "gradients.npz") as gradients,
    ):
        assert sorted(outputs[name].size for name in outputs.files) == [6, 6, 12]
        assert [gradients[name].sum() for name in gradients.files] == [6.0]


def test_the_same_seed_trains_the_same_and_noise_changes_a_little(script: Path, tmp_path: Path) -> None:
    plain, again = (train(Training(Script(script), CPU, 3), 4) for _ in range(2))
    noisy = train(Training(Script(script), CPU, 3, torch.Generator().manual_seed(1)), 4)
    assert plain == again
    assert noisy != plain
    assert np.allclose(noisy, plain, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_noise_is_about_one_rounding(dtype: torch.dtype) -> None:
    x = torch.randn(1000, dtype=dtype)
    moved = rounded_once_more(x, torch.Generator().manual_seed(0))
    share = ((moved - x) / x).double().abs()
    assert moved.dtype == dtype
    assert share.max() <= 2 * torch.finfo(dtype).eps
    assert (share > 0).double().mean() > 0.9
    integers = torch.arange(3)
    assert rounded_once_more(integers, torch.Generator()) is integers


def test_losses_that_are_no_numbers_agree_only_with_their_like() -> None:
    assert compare_losses([1.0, math.nan, math.inf], [1.0, math.nan, math.inf], [], 2**-23).agrees
    assert not compare_losses([1.0, 2.0], [1.0, math.nan], [[1.0, 2.0]], 2**-23).agrees
    assert not compare_losses([1.0, math.inf], [1.0, 2.0], [[1.0, math.inf]], 2**-23).agrees


def test_one_rounding_of_a_coarse_loss_is_no_disagreement() -> None:
    assert compare_losses([1.0], [1.0 + 2**-7], [[1.0]], 2**-7).agrees
    assert not compare_losses([1.0], [1.0 + 2**-7], [[1.0]], 2**-23).agrees


def test_a_tensor_that_only_one_side_has_is_a_disagreement(tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", **{"weight|1e-07": np.ones(3), "bias|1e-07": np.ones(1)})
    np.savez(tmp_path / "kernels.npz", **{"weight|1e-07": np.ones(3)})
    found = compare_files("gradients", tmp_path / "plain.npz", tmp_path / "kernels.npz", [tmp_path / "plain.npz"])
    assert not found.agrees
    assert found.worst.startswith("bias ")


def test_times_need_three_pairs_for_a_ratio() -> None:
    few = times_of([1.0, 2.0, 2.0], [1.0, 1.0, 1.0])
    assert few is not None
    assert few.speedup is None
    many = times_of([9.0, 2.0, 2.1, 2.0, 1.9], [1.0, 1.0, 1.0, 1.0, 1.0])
    assert many is not None
    assert many.speedup is not None
    assert 1.9 < many.speedup.ratio < 2.1


def test_a_folder_without_a_kernel_for_torch_and_a_missing_one_are_usage_errors(script: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        compare(ModelRequest(script, tmp_path / "none", "cpu"), lambda done, steps: None)


@pytest.mark.slow
def test_a_machine_that_fails_is_told_apart(tmp_path: Path, write_kernel: WriteKernel) -> None:
    path = tmp_path / "dies.py"
    path.write_text("import os\nos._exit(7)\n")
    folder = write_kernel("gelu", "return x", "x")
    with pytest.raises(InfrastructureError, match="without kernels: its process ended with exit code 7"):
        compare(ModelRequest(path, folder, "cpu"), lambda done, steps: None)
