"""Which attempt comes next, and which earlier ones its author sees."""

from __future__ import annotations

import pytest

from torchstone.errors import UsageError
from torchstone.generation.attempt_messages import Shown, evolving, refining
from torchstone.generation.strategies import Ask, Goal, best_of, strategy_named
from torchstone.prompting import LANGUAGES
from torchstone.schema.generation import Attempt, Judged, NoCode, Outcome, ProviderFailed, Strategy

GOAL = Goal(5)


def judged(right: bool, low: float | None = None, correctness: float = 0.5) -> Judged:
    share = 1.0 if right else correctness
    return Judged("agrees" if right else "disagrees", {}, "file", right, share, low, low, low)


def attempts(*outcomes: Outcome) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(operator="aten.relu.default", folder="relu", number=number, outcome=outcome)
        for number, outcome in enumerate(outcomes, start=1)
    )


def next_asks(name: Strategy, *outcomes: Outcome, running: tuple[int, ...] = (), goal: Goal = GOAL) -> tuple[Ask, ...]:
    return strategy_named(name).next_asks(attempts(*outcomes), running, goal)


WRONG, RIGHT = judged(False), judged(True)


def test_refining_goes_on_from_the_last_two_and_the_best_until_a_kernel_is_right() -> None:
    assert next_asks("refine") == (Ask(1),)
    assert next_asks("refine", running=(1,)) == ()
    assert next_asks("refine", WRONG) == (Ask(2, (1,)),)
    assert next_asks("refine", WRONG, NoCode("none"), ProviderFailed("timeout", "")) == (Ask(4, (1, 2)),)
    best = judged(False, correctness=0.9)
    assert next_asks("refine", best, WRONG, WRONG) == (Ask(4, (1, 2, 3)),)
    assert next_asks("refine", WRONG, RIGHT) == ()
    assert next_asks("refine", *[WRONG] * 5) == ()


def test_a_target_keeps_refining_until_the_lower_end_reaches_it() -> None:
    goal = Goal(5, target_speedup=1.5)
    assert next_asks("refine", judged(True, 1.4), goal=goal) == (Ask(2, (1,)),)
    assert next_asks("refine", judged(True, 1.5), goal=goal) == ()
    assert next_asks("refine", judged(True, None), goal=goal) == (Ask(2, (1,)),)


def test_best_of_n_asks_for_all_at_once_and_stops_for_nothing() -> None:
    assert next_asks("best-of-n") == tuple(Ask(number) for number in range(1, 6))
    assert next_asks("best-of-n", RIGHT, running=(3,)) == (Ask(2), Ask(4), Ask(5))


def test_evolution_begins_with_three_and_then_joins_the_two_best() -> None:
    assert next_asks("evolve") == (Ask(1), Ask(2), Ask(3))
    slow, fast = judged(True, 0.5), judged(True, 2.0)
    assert next_asks("evolve", fast, WRONG, slow) == (Ask(4, (1, 3)), Ask(5, (1, 3)))
    assert next_asks("evolve", fast, WRONG, slow, goal=Goal(5, 1.5)) == ()
    assert next_asks("evolve", fast, running=(2, 3)) == ()  # the first three are waited for
    assert next_asks("evolve", fast, WRONG, slow, running=(4,)) == (Ask(5, (1, 3)),)
    assert next_asks("evolve", fast, WRONG, slow, running=(4, 5, 6), goal=Goal(9)) == ()


def test_the_best_is_right_then_fastest_by_the_lower_end() -> None:
    assert best_of(attempts(judged(False, correctness=0.9), judged(True, 0.5), judged(True, 0.8), WRONG)) is not None
    found = best_of(attempts(judged(False, correctness=0.9), judged(True, 0.5), judged(True, 0.8), WRONG))
    assert found is not None
    assert found.number == 3
    assert best_of(attempts(NoCode("none"))) is None


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown strategy 'refin'"):
        strategy_named("refin")


def test_conversations_show_code_and_feedback_and_never_an_empty_reply() -> None:
    language = LANGUAGES["triton"]
    shown = [Shown(1, "x = 1\n", "prose ```python```", "wrong: 3"), Shown(2, None, "", "no code")]
    messages = refining("the prompt", shown, language)
    assert [message.role for message in messages] == ["user", "assistant", "user", "assistant", "user"]
    assert messages[1].text == "```python\nx = 1\n```"
    assert messages[2].text.startswith("wrong: 3")
    assert messages[3].text == "(empty reply)"
    (message,) = evolving("the prompt", shown[:1], language)
    assert message.text.startswith("the prompt\n\n# Best attempts so far\n\n## Attempt 1\n```python\nx = 1\n```")
    assert evolving("the prompt", (), language)[0].text == "the prompt"
