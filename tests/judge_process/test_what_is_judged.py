"""What a job is judged on: stated shapes or others near them, with NaN and infinities or without. One judge for all."""

from __future__ import annotations

import pytest

import torchstone
from torchstone.api import as_implementation
from torchstone.executors import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.schema import Job, Limits, NonFiniteInputs, Record, Shapes, explain, verdict_name

RELU = "aten.relu.default"
CASE = torchstone.Case("tests", RELU, (torchstone.Tensor((33, 65), "float32", torchstone.Normal()),))
FOR_ONE_SHAPE = """
def kernel(x):
    assert x.shape == (33, 65) and x.is_contiguous(), (tuple(x.shape), x.stride())
    return x.clamp(min=0)
"""
BY_A_PRODUCT = "def kernel(x):\n    return x * (x > 0)\n"


def job(text: str, shapes: Shapes = "near", non_finite: NonFiniteInputs = "check") -> Job:
    implementation = as_implementation(text, RELU, "kernel")
    return Job(CASE, implementation, "quick", measured=False, shapes=shapes, non_finite=non_finite)


JOBS = {
    "one shape, near": job(FOR_ONE_SHAPE),
    "one shape, stated": job(FOR_ONE_SHAPE, shapes="stated"),
    "product, check": job(BY_A_PRODUCT, shapes="stated"),
    "product, ignore": job(BY_A_PRODUCT, non_finite="ignore"),
}


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    options = ExecutorOptions("cpu", "best", Limits(), 1, "tests")
    found = {record.job_key: record for record in LocalExecutor(options).run(list(JOBS.values()))}
    return {name: found[job.key] for name, job in JOBS.items()}


def test_a_kernel_made_for_one_shape_agrees_on_stated_shapes_alone(records: dict[str, Record]) -> None:
    stated, near = records["one shape, stated"], records["one shape, near"]
    assert verdict_name(stated.verdict) == "agrees", explain(stated.verdict)
    assert verdict_name(near.verdict) == "crashed"
    assert (stated.shapes, near.shapes) == ("stated", "near")


def test_non_finite_inputs_are_named_and_can_be_left_out(records: dict[str, Record]) -> None:
    checked, ignored = records["product, check"], records["product, ignore"]
    assert verdict_name(checked.verdict) == "disagrees"
    assert "non-finite inputs" in explain(checked.verdict)
    assert verdict_name(ignored.verdict) == "agrees", explain(ignored.verdict)
