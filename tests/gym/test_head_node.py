"""A head node plans and rewards: its executor's nodes are asked about a GPU or files that only they have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gym.kernels import RIGHT, WRONG, reply
from gym.test_evaluator import by_text
from gym.test_problems import PROBLEM
from torchstone.errors import UsageError
from torchstone.executors import ExecutorOptions, FakeExecutor, Site
from torchstone.executors.node_judge import ask_here
from torchstone.executors.versions import software
from torchstone.gym import Evaluator, EvaluatorConfig
from torchstone.runs import RunRequest, suite_machine
from torchstone.runs.run import SilentObserver, execute
from torchstone.schema import Gpu, Hardware, Node

NODE = Node(
    "node-1", Hardware("a processor", 64, 512 << 30, (Gpu(0, "NVIDIA X100", "GPU-1", 80 << 30, "9.0"),)), software()
)


class Cluster(FakeExecutor):
    """An executor whose nodes have a device of this type and answer questions by a function."""

    def __init__(self, device: str, ask: Callable[[str, str], str]) -> None:
        super().__init__(by_text)
        self._device, self._ask = device, ask
        self.asked: list[str] = []

    def survey(self, options: ExecutorOptions) -> Site:
        def ask(module: str, text: str) -> str:
            self.asked.append(text)
            return self._ask(module, text)

        return Site(self._device, (NODE,), ask)


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is a head node: it has no GPU, whatever runs the tests."""
    monkeypatch.setattr(suite_machine, "has_device", lambda device: device == "cpu")


@pytest.mark.usefixtures("without_gpu")
def test_tasks_are_planned_on_a_head_without_a_gpu_for_the_gpu_of_the_nodes() -> None:
    cluster = Cluster("cuda", ask_here)
    with Evaluator(executor=cluster, ops=("relu",), split="all") as evaluator:
        task = evaluator.task("relu")
        right, wrong = evaluator.turns_now([(reply(RIGHT), "relu"), (reply(WRONG), "relu")])
    assert "on a CUDA GPU (NVIDIA X100), compute capability 9.0, 80 GiB of memory" in task.prompt
    assert "Triton" in task.prompt
    assert len(cluster.asked) == 1, "the cases are asked for once"
    assert '"device_type":"cuda"' in cluster.asked[0]
    assert (right.verdict, wrong.verdict) == ("agrees", "disagrees")


def test_the_problems_of_a_suite_may_lie_on_the_nodes_alone(tmp_path: Path) -> None:
    folder, hidden = tmp_path / "problems", tmp_path / "on-the-node"
    hidden.mkdir()
    (hidden / "1_Scaled_ReLU.py").write_text(PROBLEM)

    def ask(module: str, text: str) -> str:
        hidden.rename(folder)
        try:
            return ask_here(module, text)
        finally:
            folder.rename(hidden)

    cluster = Cluster("cpu", ask)
    fields: dict[str, Any] = {"suite": "kernelbench", "source": str(folder), "split": "all"}
    with Evaluator(executor=cluster, **fields) as evaluator:
        (task,) = evaluator.tasks
        assert PROBLEM.strip() in task.prompt
        assert "on the CPU (a processor)" in task.prompt
        assert evaluator.turn_now("```python\nclass ModelNew: ...\n```", task.operator).verdict == "agrees"
    assert cluster.asked


def test_a_suite_is_this_machines_own_where_it_has_the_device_and_the_files() -> None:
    cluster = Cluster("cpu", lambda module, text: pytest.fail("no node need be asked"))
    with Evaluator(executor=cluster, ops=("relu",)) as evaluator:
        assert evaluator.tasks


def test_files_that_no_machine_has_are_told_in_one_line_that_says_who_was_asked(tmp_path: Path) -> None:
    cluster = Cluster("cpu", ask_here)
    with (
        Evaluator(executor=cluster, suite="kernelbench", source=str(tmp_path / "none")) as evaluator,
        pytest.raises(UsageError, match=r"^on a node of the executor: .*none") as refused,
    ):
        _ = evaluator.tasks
    assert "\n" not in str(refused.value)


def test_a_run_needs_the_files_here_and_asks_no_node_for_them(tmp_path: Path) -> None:
    class Factory:
        survey = staticmethod(Cluster("cpu", lambda module, text: pytest.fail("a node was asked")).survey)

        def __call__(self, options: ExecutorOptions) -> FakeExecutor:
            return pytest.fail("an executor was made")

    asked = RunRequest(suite="kernelbench", source=str(tmp_path / "none"), backend="aten")
    with pytest.raises(UsageError, match=r"source '.*none' cannot be read"):
        execute(asked, SilentObserver(), lambda *parts: pytest.fail("a report"), executor_factory=Factory())


def test_one_configuration_names_this_machine_modal_or_a_cluster() -> None:
    def process(**fields: Any) -> dict[str, Any]:
        found = EvaluatorConfig(**fields).process_settings()
        return {name: found[name] for name in ("device", "executor", "ray_address", "gpu") if name in found}

    assert process() == {"device": "auto"}
    assert process(gpu="T4") == process(gpu="T4", executor="modal") == {"executor": "modal", "gpu": "T4"}
    cluster = {"device": "auto", "executor": "ray", "ray_address": "head:6379"}
    assert process(executor="ray", ray_address="head:6379") == {**cluster, "gpu": ""}
    assert process(executor="ray", ray_address="head:6379", gpu="H100") == {**cluster, "gpu": "H100"}
    assert not EvaluatorConfig(executor="ray", gpu="H100").is_modal


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"executor": "local", "gpu": "H100"}, "gpu is 'H100' and executor is 'local'"),
        ({"executor": "modal"}, "needs a type of GPU, and gpu is 'local'. Name one of: T4, L4"),
        ({"executor": "rya"}, "Did you mean 'ray'"),
    ],
)
def test_an_executor_that_does_not_fit_the_gpu_is_refused_in_one_line(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        Evaluator(**fields)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
