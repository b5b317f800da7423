"""Gradients as cases, and as operators that judge and worker share."""

from __future__ import annotations

import pytest
import torch

from torchstone import gradient_operators, operators
from torchstone.calls.draw_arguments import draw_call
from torchstone.executors.base import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.schema import (
    Agrees,
    Case,
    Disagrees,
    Implementation,
    Integers,
    Job,
    Normal,
    Scalar,
    Sequence,
    SourceFile,
    SourceFiles,
    Tensor,
    forward_operator,
    gradient_operator,
)
from torchstone.suites import CaseQuery, ListedSuite, left_out, names_operator, select_cases
from torchstone.suites.gradient_cases import NoGradient, backward_case
from torchstone.suites.smoke import SmokeSuite

MATRIX = Tensor((3, 4), "float32", Normal())
MUL = Case("tests", "aten.mul.Tensor", (MATRIX, Tensor((4,), "float32", Normal())))
CPU = torch.device("cpu")


def test_the_gradient_of_a_product() -> None:
    case = backward_case(MUL)
    assert case.operator == "torchstone_grad.mul.Tensor"
    assert case.args == (Sequence((MATRIX,)), *MUL.args)
    call = draw_call(case, 7, CPU)
    (cotangent,), left, right = call.args
    product, of_left, of_right = operators.resolve(case.operator)(*call.args)
    torch.testing.assert_close(product, left * right)
    assert not product.requires_grad
    torch.testing.assert_close(of_left, cotangent * right)
    torch.testing.assert_close(of_right, (cotangent * left).sum(0))


def test_results_without_a_derivative_count_for_nothing() -> None:
    case = backward_case(Case("tests", "aten.max.dim", (MATRIX, Scalar(1))))
    assert case.args[0] == Sequence((Tensor((3,), "float32", Normal()), Scalar(None)))
    call = draw_call(case, 5, CPU)
    values, indices, of_self = operators.resolve(case.operator)(*call.args)
    assert (values.dtype, indices.dtype, of_self.shape) == (torch.float32, torch.int64, (3, 4))
    assert torch.equal(indices, call.args[1].argmax(1))


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case("tests", "aten.relu_.default", (MATRIX,)), "writes to its arguments"),
        (Case("tests", "aten.transpose.int", (MATRIX, Scalar(0), Scalar(1))), "returns a view"),
        (Case("tests", "aten.bernoulli.default", (MATRIX,)), "draws random numbers"),
        (Case("tests", "aten.neg.default", (Tensor((3,), "int64", Integers(0, 9)),)), "no argument is floating-point"),
        (Case("tests", "aten.argmax.default", (MATRIX,)), "no result has a derivative"),
    ],
)
def test_what_has_no_gradient_says_why(case: Case, reason: str) -> None:
    with pytest.raises(NoGradient, match=reason):
        backward_case(case)


def test_a_mode_selects_results_gradients_or_both() -> None:
    suite = ListedSuite([MUL, Case("tests", "aten.relu_.default", (MATRIX,))])
    operators_of = {
        mode: [case.operator for case in select_cases("tests", suite, CaseQuery(mode=mode))]
        for mode in ("fwd", "bwd", "fwd+bwd")
    }
    assert operators_of["bwd"] == ["torchstone_grad.mul.Tensor"]
    assert operators_of["fwd+bwd"] == operators_of["fwd"] + operators_of["bwd"]
    assert left_out(suite, CaseQuery(mode="bwd")) == {"no gradient: the operator writes to its arguments": 1}


def test_a_gradient_goes_by_the_name_of_its_operator() -> None:
    assert forward_operator(gradient_operator("aten.mul.Tensor")) == "aten.mul.Tensor"
    for name in ("mul", "mul.Tensor", "aten.mul.Tensor"):
        assert names_operator(name, "torchstone_grad.mul.Tensor")
    assert not names_operator("add", "torchstone_grad.mul.Tensor")


def test_every_case_of_the_smoke_suite_has_a_gradient_that_torch_takes_or_a_reason() -> None:
    cases = select_cases("smoke", SmokeSuite(), CaseQuery(mode="bwd"))
    assert len(cases) > 100
    for case in cases:
        call = draw_call(case, 3, CPU)
        expected = len([t for t in case.args[1:] if isinstance(t, Tensor) and t.dtype.startswith(("float", "bfloat"))])
        forward = operators.resolve(forward_operator(case.operator))(*call.args[1:], **call.kwargs)
        results = operators.flatten_outputs(forward)
        found = operators.resolve(case.operator)(*call.args, **call.kwargs)
        assert len(found) >= len(results) + expected
        torch.testing.assert_close(found[: len(results)], results, rtol=0, atol=0, equal_nan=True)


def test_a_kernel_without_a_gradient_is_told_what_to_do() -> None:
    gradient = gradient_operators.Differentiated(lambda x: x.detach() * 2)
    with pytest.raises(NotImplementedError, match=r"carries no gradient.*torch.autograd.Function"):
        gradient([torch.ones(2)], torch.ones(2))


def test_arguments_that_do_not_matter_have_a_gradient_of_zero() -> None:
    gradient = gradient_operators.Differentiated(lambda x, y: x * 2)
    _, of_x, of_y = gradient([torch.ones(2)], torch.ones(2), torch.ones(3))
    assert (of_x.tolist(), of_y.tolist()) == ([2.0, 2.0], [0.0, 0.0, 0.0])


def test_a_bound_call_is_made_again_on_what_its_arguments_hold_then() -> None:
    cotangent, x = torch.ones(2), torch.ones(2)
    call = gradient_operators.Differentiated(lambda x: x * x).bound(([cotangent], x), {})
    first = call()
    x.fill_(3.0)
    second = call()
    assert [value.tolist() for value in first] == [[1.0, 1.0], [2.0, 2.0]]
    assert [value.tolist() for value in second] == [[9.0, 9.0], [6.0, 6.0]]


def test_gradients_are_tensors_of_their_own() -> None:
    """Autograd has no memory for zeros, and may hand over what it was given."""
    given = torch.full((3,), 2.0)
    for function in (torch.ops.aten.sgn.default, torch.ops.aten.alias.default):
        call = gradient_operators.Differentiated(function).bound(([given], torch.ones(3)), {})
        for results in (call(), call.backward(call.forward(call))):
            assert results[1].untyped_storage().data_ptr() != given.untyped_storage().data_ptr()
            assert results[1].tolist() == ([0.0] * 3 if function is torch.ops.aten.sgn.default else [2.0] * 3)


def test_passes_are_the_same_at_once_and_apart() -> None:
    calls = [
        gradient_operators.Differentiated(lambda x: x * x).bound(
            ([torch.full((2,), 3.0)], torch.full((2,), float(number))), {}
        )
        for number in range(3)
    ]
    at_once = [[leaf.tolist() for leaf in call()] for call in calls]
    forward = [call.forward(calls[number - 1]) for number, call in enumerate(calls)]
    apart = {number: [leaf.tolist() for leaf in calls[number].backward(forward[number])] for number in (1, 2, 0)}
    assert at_once == [apart[number] for number in range(3)] == [[[n * n] * 2, [6 * n] * 2] for n in range(3)]


SKIPS_THE_FORWARD_PASS = """
import torch

class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.new_empty(x.shape[:-1])
    @staticmethod
    def backward(ctx, g):
        return g.unsqueeze(-1).expand(ctx.shape)

def kernel(x, dim, keepdim=False, dtype=None):
    return Sum.apply(x)
"""
ADDS_UP = SKIPS_THE_FORWARD_PASS.replace("x.new_empty(x.shape[:-1])", "x.sum(-1)")


@pytest.mark.adversary
@pytest.mark.parametrize(("text", "verdict"), [(SKIPS_THE_FORWARD_PASS, Disagrees), (ADDS_UP, Agrees)])
def test_a_forward_pass_that_gives_nothing_is_wrong(text: str, verdict: type) -> None:
    case = backward_case(
        Case("tests", "aten.sum.dim_IntList", (MATRIX, Sequence((Scalar(-1),))), jitter=False),
    )
    job = Job(
        case, Implementation("tests", case.operator, SourceFiles((SourceFile("sum.py", text),), "kernel")), "quick"
    )
    (record,) = LocalExecutor(ExecutorOptions(device="cpu")).run([job])
    assert isinstance(record.verdict, verdict), record.verdict
