"""Many calls at once must be judged as each of them alone is."""

from __future__ import annotations

import msgspec
import pytest
import torch

from torchstone import model_operators
from torchstone.chain import Chain
from torchstone.chain_arithmetic import Links
from torchstone.judging import Agreement, Mismatch, Reference, Series, UncapturableError, draw_calls, plant_some
from torchstone.judging.call_batch import can_be_captured
from torchstone.judging.plans import PLANS
from torchstone.schema import (
    Booleans,
    Case,
    Integers,
    Normal,
    Scalar,
    Sequence,
    SortedIntegers,
    SourceFile,
    SourceFiles,
    Tensor,
    Uniform,
)

CPU = torch.device("cpu")
RELU = Case("test", "aten.relu.default", (Tensor((33, 65), "float32", Normal()),))
INPLACE = Case("test", "aten.relu_.default", (Tensor((33, 65), "float32", Normal()),))
SOFTMAX = Case("test", "aten._softmax.default", (Tensor((8, 40), "float32", Normal()), Scalar(-1), Scalar(False)))
CLONE = Case("test", "aten.clone.default", (Tensor((8, 40), "float32", Normal(specials=True)),))
SUM = Case("test", "aten.sum.dim_IntList", (Tensor((8, 400), "float32", Normal()), Sequence((Scalar(1),))))
CALLS = 5


def made(case: Case) -> Series:
    reference = Reference(case, CPU)
    reference.expect_many(draw_calls(case, 1, 1, CPU), with_bounds=True)[
        0
    ].values()  # learns the scale, as a trial does
    series = Series(reference, CALLS)
    series.draw(20)
    return series


def outputs_of(series: Series) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What torch gives for each call by itself, stacked, and the storages as they are afterwards."""
    results, after = [], []
    for call in series.calls():
        storages = [tensor.storage.clone() for tensor in call.tensors]
        views = [s.as_strided(t.view.shape, t.view.stride()) for s, t in zip(storages, call.tensors, strict=True)]
        results.append(series.reference.evaluator.call_on_arithmetic_device(views, series.reference.case))
        after.append(storages)
    stacked = [torch.stack([result[leaf] for result in results]) for leaf in range(len(results[0]))]
    return stacked, [torch.stack(list(column)) for column in zip(*after, strict=True)]


def test_calls_that_another_process_makes_are_not_recorded_as_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda", 0)
    problem = msgspec.structs.replace(RELU, model=SourceFiles((SourceFile("1_Relu.py", "class Model: pass"),), "Model"))
    assert can_be_captured(RELU, cuda)
    assert not can_be_captured(RELU, CPU)
    assert can_be_captured(problem, cuda)
    monkeypatch.setattr(model_operators, "_host", object())
    assert can_be_captured(RELU, cuda)
    assert not can_be_captured(problem, cuda)


@pytest.mark.parametrize("case", [RELU, INPLACE, SOFTMAX, CLONE, SUM], ids=lambda case: str(case.operator))
def test_right_calls_agree(case: Case) -> None:
    series = made(case)
    assert isinstance(series.compare(*outputs_of(series)), Agreement)


@pytest.mark.parametrize("case", [RELU, INPLACE, SOFTMAX, SUM], ids=lambda case: str(case.operator))
@pytest.mark.parametrize("wrong", range(CALLS))
def test_a_single_wrong_element_of_any_call_is_found(case: Case, wrong: int) -> None:
    series = made(case)
    outputs, after = outputs_of(series)
    outputs[0][wrong].view(-1)[-1] += 1.0
    if case is INPLACE:
        after[0][wrong].view(-1)[-1] += 1.0
    found = series.compare(outputs, after)
    assert isinstance(found, Mismatch)
    assert found.call == wrong


def test_a_changed_argument_is_found() -> None:
    series = made(RELU)
    outputs, after = outputs_of(series)
    after[0][3, 7] += 1.0
    found = series.compare(outputs, after)
    assert isinstance(found, Mismatch)
    assert (found.reason, found.call) == ("mutation", 3)


def test_a_lost_sign_of_zero_is_found_where_values_are_only_moved() -> None:
    series = made(CLONE)
    outputs, after = outputs_of(series)
    outputs[0][2, 0, 0], series.storages[0][2, 0], after[0][2, 0] = 0.0, -0.0, -0.0
    series._expected.tensors[next(iter(series._expected.tensors))][2, 0, 0] = -0.0
    assert isinstance(series.compare(outputs, after), Mismatch)


def test_drawing_again_gives_other_values_and_the_seed_gives_the_same() -> None:
    series = made(RELU)
    first = series.storages[0].clone()
    series.draw(21)
    assert not torch.equal(series.storages[0], first)
    again = draw_calls(RELU, 20, CALLS, CPU)
    assert all(torch.equal(call.tensors[0].storage, row) for call, row in zip(again, first, strict=True))


def test_random_operators_are_not_taken_together() -> None:
    case = Case("test", "aten.rand_like.default", (Tensor((64, 64), "float32", Normal()),))
    with pytest.raises(UncapturableError):
        Series(Reference(case, CPU), CALLS)


class TestChains:
    def test_arguments_follow_from_results_as_the_worker_makes_them(self) -> None:
        """Between the calls, one by one, and afterwards, all at once: the same."""
        series = made(RELU)
        chain = series.chain(7)
        assert chain is not None
        series.draw_unevaluated(30)
        drawn = series.storages[0].clone()
        links, arguments, results = Links(chain, CPU), drawn.clone(), []
        for index in range(CALLS):
            results.append(torch.relu(arguments[index].view(33, 65)))
            if index + 1 < CALLS:
                links.move_next_arguments([results[-1]], [arguments[index + 1].view(33, 65)])
        series.follow(chain, [torch.stack(results)])
        assert torch.equal(series.storages[0], arguments)
        assert not torch.equal(arguments[1:], drawn[1:])
        assert isinstance(series.compare([torch.stack(results)], [arguments]), Agreement)

    def test_results_that_do_not_wait_for_each_other_are_wrong(self) -> None:
        series = made(RELU)
        chain = series.chain(7)
        assert chain is not None
        series.draw_unevaluated(30)
        drawn = series.storages[0].clone()
        together = torch.relu(drawn).view(CALLS, 33, 65)
        series.follow(chain, [together])
        found = series.compare([together], [drawn])
        assert isinstance(found, Mismatch)
        assert found.call == 1

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
    def test_every_element_is_moved_by_its_own_and_stays_in_its_range_in_any_dtype(self, dtype: str) -> None:
        case = Case("test", "aten.acosh.default", (Tensor((1000,), dtype, Uniform(1.0, 3.0)),))
        series = made(case)
        chain = series.chain(3)
        assert chain is not None
        for value in (1.0, 2.0, 3.0):
            argument = torch.full((1000,), value, dtype=getattr(torch, dtype))
            Links(chain, CPU).move_next_arguments([torch.randn(10)], [argument])
            assert argument.unique().numel() > 30
            assert bool(((argument >= 1.0) & (argument <= 3.0)).all())

    def test_signs_and_powers_are_not_known_beforehand(self) -> None:
        """With factors alone those of all calls would follow from what was drawn."""
        series = made(RELU)
        chain = series.chain(3)
        assert chain is not None
        argument = torch.cat([torch.full((1000,), 0.2), torch.full((1145,), -0.2)])
        before = argument.clone()
        Links(chain, CPU).move_next_arguments([torch.randn(10)], [argument])
        turned = (argument.sign() != before.sign()).double().mean()
        assert 0.1 < turned < 0.6

    @pytest.mark.parametrize(
        ("dtype", "fill"), [("int32", Integers(-4, 9)), ("uint8", Integers(0, 100)), ("bool", Booleans(0.9))]
    )
    def test_whole_numbers_and_flags_go_around_their_range(self, dtype: str, fill: Integers | Booleans) -> None:
        case = Case("test", "aten.clone.default", (Tensor((64, 64), dtype, fill),))
        series = made(case)
        chain = series.chain(1)
        assert chain is not None
        series.draw_unevaluated(30)
        drawn, arguments = series.storages[0].clone(), series.storages[0].clone()
        links = Links(chain, CPU)
        for index in range(CALLS - 1):
            links.move_next_arguments([arguments[index].clone()], [arguments[index + 1].view(64, 64)])
        series.follow(chain, [arguments.view(CALLS, 64, 64).clone()])
        assert torch.equal(series.storages[0], arguments)
        assert float((arguments[1:] != drawn[1:]).double().mean()) > 0.3
        low, high = (fill.low, fill.high) if isinstance(fill, Integers) else (0, 2)
        assert bool(((arguments >= low) & (arguments < high)).all())

    def test_numbers_without_room_are_not_moved(self) -> None:
        for dtype, fill in (("int8", Integers(-100, 100)), ("int32", Integers(3, 4)), ("int64", SortedIntegers(0, 99))):
            assert made(Case("test", "aten.clone.default", (Tensor((64,), dtype, fill),))).chain(1) is None


MATRIX = Tensor((8, 8), "float32", Normal())


def chain_of(operator: str, *args: Tensor | Sequence) -> Chain | None:
    return Series(Reference(Case("tests", operator, args), CPU), 3).chain(1)


def places(chain: Chain | None) -> list[int] | None:
    return None if chain is None else [moved.position for moved in chain.arguments]


def test_all_results_and_all_arguments_of_a_gradient_hang_together() -> None:
    case = Case("tests", "torchstone_grad.mul.Tensor", (Sequence((MATRIX,)), MATRIX, MATRIX))
    series = Series(Reference(case, CPU), 3)
    series.draw(7)
    chain = series.chain(1)
    assert chain is not None
    assert places(chain) == [0, 1, 2]
    links, drawn = Links(chain, CPU), [storage.clone() for storage in series.storages]
    results = [torch.randn(3, 8, 8) for _ in range(3)]
    for index in range(2):
        links.move_next_arguments([result[index] for result in results], [each[index + 1].view(8, 8) for each in drawn])
    series.follow(chain, results)
    assert all(map(torch.equal, series.storages, drawn))
    changed = [*results[:2], results[2] + 1]
    assert not any(
        map(torch.equal, links.recomputed_arguments(changed, drawn), links.recomputed_arguments(results, drawn))
    )


def test_all_floating_arguments_wait_or_none_does() -> None:
    """What depends on the others alone could be done for all calls at once, like the products beside an addend."""
    batch = Tensor((8, 8, 8), "float32", Normal())
    positive = Tensor((8, 8, 8), "float32", Uniform(0.5, 2.0))
    narrow = Tensor((8, 8, 8), "float32", Uniform(100.0, 101.0))
    assert places(chain_of("aten.addbmm.default", MATRIX, batch, positive)) == [0, 1, 2]
    assert chain_of("aten.addbmm.default", MATRIX, batch, narrow) is None


def test_indices_wait_like_everything_else() -> None:
    weights = Tensor((16, 4), "float32", Normal())
    indices, in_order = (Tensor((9,), "int64", fill) for fill in (Integers(0, 16), SortedIntegers(0, 16)))
    assert places(chain_of("aten.embedding.default", weights, indices)) == [0, 1]
    assert chain_of("aten.embedding.default", weights, in_order) is None


def test_a_gradient_is_not_chained_by_how_much_its_results_count_alone() -> None:
    whole = Tensor((8, 8), "float32", Uniform(100.0, 101.0))
    assert chain_of("torchstone_grad.sqrt.default", Sequence((MATRIX,)), whole) is None


def test_planted_values_among_a_series_are_held_against_what_is_wrong_on_them() -> None:
    series = made(SOFTMAX)
    series.draw_planted(7, [PLANS.named("hundreds")])
    assert isinstance(series.compare(*outputs_of(series)), Agreement)
    outputs, after = outputs_of(series)
    raw = torch.stack([call.args[0] for call in series.calls()]).exp()
    outputs[0] = raw / raw.sum(-1, keepdim=True)
    found = series.compare(outputs, after)
    assert isinstance(found, Mismatch)
    assert series.calls()[found.call].planted == "hundreds"
    series.draw(8)
    assert not any(call.planted for call in series.calls())


def test_of_large_calls_few_are_planted() -> None:
    large = Case("test", "aten.relu.default", (Tensor((512, 512), "float32", Normal()),))
    for case, count in ((SOFTMAX, 8), (large, 2)):
        plans = [PLANS.named("hundreds"), PLANS.named("numbers")]
        planted = [call.planted for call in plant_some(draw_calls(case, 3, 40, CPU), plans)]
        assert sum(map(bool, planted)) == count
