"""Asking: what the SDKs make of a server's faults, retries, the server's limits, budgets, and no secrets."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from generation.model_server import model_server
from torchstone import registry
from torchstone.errors import UsageError
from torchstone.generation.ask_with_retries import REMOVED, Answer, Asker, AskingLimits, NoAnswerError
from torchstone.generation.budget import Budget, BudgetSpentError
from torchstone.generation.prices import Price, parse_price, read_prices
from torchstone.generation.providers import ModelRequest, ProviderError, ProviderOptions, Reply, ScriptedProvider
from torchstone.schema.generation import Message, Usage

T = TypeVar("T")
KEY = "sk-secret-123456"
REQUEST = ModelRequest("aten.relu.default", 1, (Message("user", "write"),))
EVERY_WAY = [("anthropic", True), ("anthropic", False), ("openai", True), ("openai", False)]


def now(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def provider(name: str, url: str, *, streams: bool = True, timeout_seconds: float = 5.0) -> Any:
    options = ProviderOptions(
        model="claude-scripted",
        base_url=url if name == "anthropic" else f"{url}/v1",
        stream=streams,
        timeout_seconds=timeout_seconds,
        environment={"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY},
    )
    return registry.providers.factory(name)(options)


async def ask_once(asked: Any) -> Reply:
    try:
        return await asked.reply(REQUEST)
    finally:
        await asked.aclose()


@pytest.mark.parametrize(("name", "streams"), EVERY_WAY)
def test_a_reply_comes_whole_with_its_tokens(name: str, streams: bool) -> None:
    with model_server(lambda messages: "the reply, é and ✓, " * 20) as server:
        reply = now(ask_once(provider(name, server.url, streams=streams)))
    assert reply.text == "the reply, é and ✓, " * 20
    assert reply.usage == Usage(120, 50, 20)
    assert reply.stop_reason in ("end_turn", "stop")


@pytest.mark.parametrize(("name", "streams"), EVERY_WAY)
@pytest.mark.parametrize(
    ("fault", "reasons"),
    [
        ("429", {"rate_limit"}),
        ("500", {"overloaded"}),
        ("529", {"overloaded"}),
        ("400", {"refused"}),
        ("401", {"refused"}),
        ("cut", {"connection"}),
        ("cut-clean", {"connection"}),
        ("garbage", {"garbage", "connection"}),
        ("hang", {"timeout"}),
    ],
)
def test_every_fault_is_told_as_what_it_is(name: str, streams: bool, fault: str, reasons: set[str]) -> None:
    async def ask(asked: Any) -> Answer:
        asker = Asker(asked, AskingLimits(retries=0, timeout_seconds=0.5 if fault == "hang" else 10), Budget())
        try:
            return await asker.ask(REQUEST)
        finally:
            await asker.close()

    serving = model_server(lambda messages: "the reply " * 50, lambda number: fault, retry_after="7")
    with serving as server, pytest.raises(NoAnswerError) as caught:
        now(ask(provider(name, server.url, streams=streams)))
    failure = caught.value.failure
    assert failure.reason in reasons
    assert failure.ends_the_run == (fault == "401")
    assert failure.retry_after_seconds == (7.0 if fault in ("429", "500", "529") else None)
    assert KEY not in str(caught.value)
    if fault in ("400", "401", "429", "500", "529"):
        assert f"no luck with key {REMOVED}" in str(caught.value)


class Failing:
    """Fails in given ways, then answers."""

    secrets = (KEY,)

    def __init__(self, *failures: ProviderError) -> None:
        self._failures = list(failures)
        self.times: list[float] = []

    async def reply(self, request: ModelRequest) -> Reply:
        self.times.append(time.monotonic())
        if self._failures:
            raise self._failures.pop(0)
        return Reply(f"my key is {KEY}", Usage(10, 5))


def test_waits_double_and_are_bounded_and_secrets_do_not_come_back() -> None:
    waits: list[float] = []

    async def no_sleep(seconds: float) -> None:
        waits.append(seconds)

    async def ask() -> Answer:
        failures = [ProviderError("overloaded", "busy") for _ in range(8)]
        return await Asker(Failing(*failures), AskingLimits(retries=8), Budget(), no_sleep).ask(REQUEST)

    answer = now(ask())
    assert answer.requests == 9
    assert answer.reply.text == f"my key is {REMOVED}"
    assert all(2**number / 2 <= wait <= 2**number for number, wait in enumerate(waits[:6]))
    assert max(waits) <= 60


@pytest.mark.parametrize("streams", [True, False])
def test_surrogates_in_a_reply_are_joined_or_replaced(streams: bool) -> None:
    async def ask(asked: Any) -> Answer:
        asker = Asker(asked, AskingLimits(), Budget())
        try:
            return await asker.ask(REQUEST)
        finally:
            await asker.close()

    with model_server(lambda messages: "a pair \ud83d\ude00, a half \ud83d.") as server:
        answer = now(ask(provider("openai", server.url, streams=streams)))
    assert answer.reply.text == "a pair \U0001f600, a half \ufffd."


@pytest.mark.parametrize("key", ["x", "none", "test", "EMPTY"])
def test_a_placeholder_for_a_key_is_not_removed_from_replies(key: str) -> None:
    text = "EMPTY = None  # test: x is none of them"
    asked = ScriptedProvider(lambda request: text)
    asked.secrets = (key,)  # type: ignore[attr-defined]
    assert now(Asker(asked, AskingLimits(), Budget()).ask(REQUEST)).reply.text == text


def test_a_limit_of_the_server_holds_for_every_request() -> None:
    limited = Failing(ProviderError("rate_limit", "slow down", retry_after_seconds=0.3))

    async def ask() -> None:
        asker = Asker(limited, AskingLimits(concurrency=1), Budget())
        await asyncio.gather(*(asker.ask(REQUEST) for _ in range(3)))

    now(ask())
    first, *others = limited.times
    assert len(others) == 3
    assert min(others) - first >= 0.29


def test_what_cannot_pass_is_not_tried_again_and_unknown_errors_end_as_garbage() -> None:
    for failure, tries in (
        (ProviderError("refused", "no"), 1),
        (ProviderError("rate_limit", "x", retry_after_seconds=9e4), 1),
    ):
        asked = Failing(*[failure] * 5)
        with pytest.raises(NoAnswerError):
            now(Asker(asked, AskingLimits(), Budget()).ask(REQUEST))
        assert len(asked.times) == tries

    def broken(request: ModelRequest) -> str:
        raise AttributeError("'NoneType' object has no attribute 'content'")

    with pytest.raises(NoAnswerError) as caught:
        now(Asker(ScriptedProvider(broken), AskingLimits(retries=0), Budget()).ask(REQUEST))
    assert caught.value.failure.reason == "garbage"


def test_a_budget_is_never_exceeded_however_many_ask_at_once() -> None:
    price = Price(10.0, 100.0)
    script = ScriptedProvider(lambda request: Reply("x", Usage(20, 1000)), 0.01)
    budget = Budget(usd=0.45, price=price, max_output_tokens=1000)

    async def ask() -> list[object]:
        asker = Asker(script, AskingLimits(concurrency=50), budget)
        return await asyncio.gather(*(asker.ask(REQUEST) for _ in range(50)), return_exceptions=True)

    answers = now(ask())
    assert sum(isinstance(answer, Answer) for answer in answers) == 4
    refused = [answer for answer in answers if isinstance(answer, BudgetSpentError)]
    assert len(refused) == 46
    assert "of $0.4500 are spent, and the next request may cost" in str(refused[0])
    assert budget.spent.cost_usd == pytest.approx(4 * 0.1002)


def test_a_budget_of_tokens_counts_what_was_used_before_and_what_broken_replies_used() -> None:
    budget = Budget(tokens=980, max_output_tokens=100, spent=Usage(700, 60))
    broken = ProviderError("connection", "cut", usage=Usage(50, 60))

    async def ask() -> None:
        await Asker(Failing(broken), AskingLimits(retries=1), budget, lambda seconds: asyncio.sleep(0)).ask(REQUEST)

    with pytest.raises(BudgetSpentError, match="870 of 980 tokens are used, and the next request may take 118"):
        now(ask())


@pytest.mark.parametrize(("name", "streams"), EVERY_WAY)
@pytest.mark.parametrize(
    ("fault", "is_charged"),
    [("hang", True), ("cut", True), ("garbage", True), ("504", True), ("429", False), ("500", False), ("400", False)],
)
def test_a_request_that_was_sent_counts_as_its_worst_case_if_nobody_says_what_it_used(
    name: str, streams: bool, fault: str, is_charged: bool
) -> None:
    budget = Budget(tokens=10_000, max_output_tokens=1000)

    async def ask(asked: Any) -> None:
        limits = AskingLimits(retries=1, timeout_seconds=0.2 if fault == "hang" else 10)
        asker = Asker(asked, limits, budget, lambda seconds: asyncio.sleep(0))
        try:
            with pytest.raises(NoAnswerError):
                await asker.ask(REQUEST)
        finally:
            await asker.close()

    with model_server(lambda messages: "the reply " * 50, lambda number: fault) as server:
        now(ask(provider(name, server.url, streams=streams)))
    assert budget.spent == (Usage(36, 2000) if is_charged else Usage())  # of two tries


def test_a_request_that_was_never_sent_costs_nothing_and_a_cancelled_one_its_worst_case() -> None:
    budget = Budget(tokens=10_000, max_output_tokens=1000)

    async def ask(url: str, seconds: float) -> None:
        asker = Asker(provider("openai", url), AskingLimits(retries=0), budget)
        try:
            await asyncio.wait_for(asker.ask(REQUEST), seconds)
        finally:
            await asker.close()

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and nobody listens
        with pytest.raises(NoAnswerError):
            now(ask(f"http://127.0.0.1:{unused.getsockname()[1]}", 10.0))
    assert budget.spent == Usage()
    with model_server(lambda messages: "", lambda number: "hang") as server, pytest.raises(TimeoutError):
        now(ask(server.url, 0.3))
    assert budget.spent == Usage(18, 1000)


@pytest.mark.parametrize("streams", [True, False])
def test_a_whole_reply_whose_tokens_nobody_counts_is_estimated_by_its_text(streams: bool) -> None:
    budget = Budget(tokens=10_000, max_output_tokens=1000)

    async def ask(asked: Any) -> Answer:
        asker = Asker(asked, AskingLimits(), budget)
        try:
            return await asker.ask(REQUEST)
        finally:
            await asker.close()

    with model_server(lambda messages: "the reply " * 50, lambda number: "uncounted") as server:
        answer = now(ask(provider("openai", server.url, streams=streams)))
    assert answer.reply.usage == budget.spent == Usage(18, 200)


def test_what_is_used_and_on_its_way_is_written_before_a_request_is_sent() -> None:
    kept: list[Usage] = []
    budget = Budget(max_output_tokens=1000, spent=Usage(1, 2), keep=kept.append)
    now(Asker(Failing(), AskingLimits(), budget).ask(REQUEST))
    assert kept == [Usage(19, 1002), Usage(11, 7)]


def test_prices_come_from_an_option_or_a_file(tmp_path: Any) -> None:
    assert parse_price("3,15").cost_usd(Usage(1_000_000, 100_000, 500_000)) == pytest.approx(4.5)
    assert parse_price("3,15,0.3").cost_usd(Usage(1_000_000, 100_000, 500_000)) == pytest.approx(3.15)
    (tmp_path / "prices.json").write_text('{"m": {"input": 1, "output": 2}}')
    (tmp_path / "prices.toml").write_text("[m]\ninput = 1\noutput = 2\n")
    assert read_prices(tmp_path / "prices.json") == read_prices(tmp_path / "prices.toml") == {"m": Price(1, 2)}
    for wrong in ("3", "a,b", "-1,2", "1,2,3,4", "nan,1", ""):
        with pytest.raises(UsageError, match="is not a price"):
            parse_price(wrong)
    (tmp_path / "bad.json").write_text('{"m": {"in": 1}}')
    with pytest.raises(UsageError, match="is not a table of prices"):
        read_prices(tmp_path / "bad.json")
