"""Results of a problem's model, as the worker describes them to the judge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from torchstone.judge_process import sandboxed_reference_models
from torchstone.judge_process.sandboxed_reference_models import SandboxedReferenceModels
from torchstone.model_operators import register
from torchstone.schema import Case, Normal, Sequence, SourceFile, SourceFiles, Tensor
from torchstone.supervisor.pausable_worker import PausableWorker
from torchstone.supervisor.worker_pool import WorkerPool
from torchstone.worker.problem_models import _described

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        if len(x) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return x + 1

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
"""
MODEL = SourceFiles((SourceFile("problem.py", PROBLEM),), "Model", "problem")
CASE = Case(
    "tests", "kernelbench.tests_lacking.default", (Sequence(()), Tensor((4,), "float32", Normal())), model=MODEL
)


class Models:
    """Models of a judge with a GPU; the tensors of these tests lie in the host's memory."""

    def __init__(self, pool: WorkerPool) -> None:
        self.workers: list[PausableWorker] = []
        self._pool = pool
        self.sandboxed = SandboxedReferenceModels(self._take, torch.device("cuda"))

    def _take(self) -> PausableWorker:
        self.workers.append(self._pool.take_own())
        return self.workers[-1]

    def call(self, size: int) -> torch.Tensor:
        found: torch.Tensor = self.sandboxed.function(CASE)([], torch.ones(size))[0]
        return found


@pytest.fixture
def models(pool: WorkerPool) -> Iterator[Models]:
    register(CASE)
    made = Models(pool)
    yield made
    made.sandboxed.close()


def test_a_worker_whose_model_lacked_memory_keeps_none_of_the_device(models: Models) -> None:
    assert torch.equal(models.call(4), torch.full((4,), 2.0))
    with pytest.raises(torch.OutOfMemoryError):
        models.call(5)
    assert models.workers[0].is_gone
    assert torch.equal(models.call(4), torch.full((4,), 2.0)), "by another worker"
    assert len(models.workers) == 2


def test_nor_where_there_is_no_memory_for_its_arguments(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(size_bytes: int) -> None:
        raise torch.OutOfMemoryError(f"the device has no {size_bytes} bytes left for arguments")

    models.call(4)
    monkeypatch.setattr(sandboxed_reference_models, "HostArena", lacking)
    with pytest.raises(torch.OutOfMemoryError):
        models.call(4)
    assert models.workers[0].is_gone


def test_the_operators_that_compute_the_results_are_told(models: Models) -> None:
    assert models.sandboxed.operators_called(CASE, ([], torch.ones(4))) == {"aten.add.Tensor"}


def test_an_argument_seen_in_another_dtype_outlives_the_judges_memory() -> None:
    given = torch.arange(8, dtype=torch.float32)
    seen = given.view(torch.int32)
    expected = seen.clone()
    results, new = _described([seen, seen[2:]], [given])
    given.zero_()  # on a device this memory is no longer mapped when results are fetched
    assert [result.stretch for result in results] == [1, 2]
    assert torch.equal(new[0], expected)
    assert torch.equal(new[1], expected[2:])


def test_a_result_in_an_arguments_memory_is_told_as_such() -> None:
    given = torch.arange(8, dtype=torch.float32)
    results, new = _described([given[2:]], [given])
    assert (results[0].stretch, results[0].offset, new) == (0, 2, [])
