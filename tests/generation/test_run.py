"""A run of generation with a scripted model and a fake judge: what is kept, what ends it, how it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import re
import shlex
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from torchstone.api import Judge
from torchstone.cli import generate as cli
from torchstone.cli import main
from torchstone.cli.model_options import DSLS, STRATEGIES
from torchstone.errors import InfrastructureError, IsolationUnavailableError, UsageError
from torchstone.executors import FakeExecutor
from torchstone.generation import GenerationRequest, GenerationResult, generate, read_generation
from torchstone.generation.prices import Price
from torchstone.generation.providers import ModelRequest, ProviderError, ProviderOptions, Reply, ScriptedProvider
from torchstone.generation.providers.replay import ReplayProvider
from torchstone.generation.run import GenerationPlan
from torchstone.generation.strategies import STRATEGIES as KNOWN_STRATEGIES
from torchstone.generation.summary import readme_text
from torchstone.prompting import LANGUAGES
from torchstone.schema import Agrees, Deadlines, Disagrees, ErrorStatistics, Job, Limits, SourceFiles, Verdict
from torchstone.schema.generation import Attempt, NoCode, ProviderFailed, Usage

Script = Callable[[ModelRequest], Reply | str]


class Watcher:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Attempt | None] = []
        self.warnings: list[str] = []

    def planned(self, plan: GenerationPlan, folder: Path) -> None:
        self.plan = plan

    def recorded(self, record: Attempt | None) -> None:
        self.told.append(record)

    def warned(self, message: str) -> None:
        self.warnings.append(message)


def kernel(number: int, right: bool) -> str:
    word = "right" if right else "wrong"
    return f"```python\n# {word} {number}\ndef relu_kernel_impl(self):\n    return self\n```"


def decide(job: Job) -> Verdict:
    assert isinstance(job.implementation.origin, SourceFiles)
    if "# right" in job.implementation.origin.files[0].text:
        return Agrees(ErrorStatistics(), 1)
    return Disagrees("check", "values", "output 0 differs")


def carry_out(
    script: Script,
    folder: Path,
    watcher: Watcher | None = None,
    judged: Callable[[Job], Verdict] = decide,
    is_free: bool = True,
    **fields: object,
) -> tuple[GenerationResult, ScriptedProvider]:
    asked = ScriptedProvider(script)
    asked.is_free = is_free
    request = GenerationRequest(
        **{"operators": ("relu",), "dsl": "pytorch", "device": "cpu", "run_id": "mine", "output_dir": folder, **fields}  # type: ignore[arg-type]
    )
    result = generate(
        request,
        watcher or Watcher(),
        provider=asked,
        judge=lambda request, device: Judge(device=device, executor=FakeExecutor(judged)),
        required_layers=frozenset(),
    )
    return result, asked


def test_best_of_n_asks_for_every_attempt_from_the_first_prompt(tmp_path: Path) -> None:
    result, asked = carry_out(
        lambda request: kernel(request.number, request.number == 2), tmp_path, strategy="best-of-n"
    )
    assert len(result.attempts) == 5
    assert {len(request.messages) for request in asked.requests} == {1}
    assert [attempt.right for attempt in sorted(result.attempts, key=lambda each: each.number)] == [False, True] + [
        False
    ] * 3
    assert json.loads((result.folder / "relu" / "best.json").read_text())["number"] == 2


def test_a_notebook_generates_too_and_an_interrupt_ends_the_requests(tmp_path: Path) -> None:
    async def in_a_cell(script: Script, folder: Path) -> GenerationResult:
        return carry_out(script, folder)[0]

    assert asyncio.run(in_a_cell(lambda request: kernel(1, True), tmp_path / "whole")).all_right

    def interrupted(request: ModelRequest) -> str:
        signal.pthread_kill(main, signal.SIGINT)
        return kernel(1, False)

    main = threading.get_ident()
    loop = asyncio.new_event_loop()  # as a notebook runs it: without a handler of its own for SIGINT
    with contextlib.closing(loop), pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(in_a_cell(interrupted, tmp_path / "part"))
    made = len(read_generation(tmp_path / "part" / "mine").attempts)
    assert made < 5
    result, _ = carry_out(lambda request: kernel(2, True), tmp_path / "part", resume=True)
    assert result.all_right


def test_evolution_shows_the_two_best_and_makes_all_attempts(tmp_path: Path) -> None:
    result, asked = carry_out(
        lambda request: kernel(request.number, request.number in (1, 3)), tmp_path, strategy="evolve"
    )
    later = {request.number: request.messages[0].text for request in asked.requests if request.number > 3}
    assert set(later) == {4, 5}
    assert all("# Best attempts so far" in text and "# right " in text for text in later.values())
    assert len(result.attempts) == 5


def test_replies_without_code_are_attempts_and_their_author_reads_why(tmp_path: Path) -> None:
    replies = {1: Reply("No.", stop_reason="end_turn"), 2: Reply("```python\nimport", stop_reason="max_tokens")}
    result, asked = carry_out(lambda request: replies.get(request.number, kernel(3, True)), tmp_path)
    assert [type(attempt.outcome) for attempt in result.attempts[:2]] == [NoCode, NoCode]
    assert "The reply has no code block." in asked.requests[1].messages[-1].text
    assert "The reply reached the limit of its length." in asked.requests[2].messages[-1].text
    assert result.all_right


def test_half_a_surrogate_pair_in_a_reply_or_a_failure_does_not_end_the_run(tmp_path: Path) -> None:
    def script(request: ModelRequest) -> str:
        if request.number == 1:
            raise ProviderError("refused", "HTTP 400: \ud83d")
        return f"\ud83d\n{kernel(2, True)}".replace("# right", "# \ud83d right")

    result, _ = carry_out(script, tmp_path, judged=lambda job: Agrees(ErrorStatistics(), 1))
    assert result.attempts[0].outcome == ProviderFailed("refused", "HTTP 400: \ufffd")
    assert result.all_right
    assert "# \ufffd right" in (result.folder / "relu" / "relu_attempt_2.py").read_text()


def test_what_the_provider_does_not_answer_is_an_attempt_and_a_resumed_run_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(request: ModelRequest) -> str:
        raise ProviderError("refused", "HTTP 400: too long")

    result, _ = carry_out(failing, tmp_path, max_attempts=2)
    assert [attempt.outcome for attempt in result.attempts] == [ProviderFailed("refused", "HTTP 400: too long")] * 2
    watcher = Watcher()
    again, asked = carry_out(lambda request: kernel(1, True), tmp_path, watcher, max_attempts=2, resume=True)
    assert [request.number for request in asked.requests] == [1]
    assert [attempt.right for attempt in again.attempts] == [True]
    assert watcher.told[1:] == [None]  # the second is not needed


def test_a_wrong_key_ends_the_run_and_so_does_a_provider_that_answers_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown_key(request: ModelRequest) -> str:
        raise ProviderError("refused", "HTTP 401: wrong key", ends_the_run=True)

    with pytest.raises(InfrastructureError, match="the provider refuses every request: HTTP 401: wrong key"):
        carry_out(unknown_key, tmp_path / "key")

    def down(request: ModelRequest) -> str:
        raise ProviderError("connection", "Connection refused")

    with pytest.raises(InfrastructureError, match=r"server cannot be reached: Connection refused \(1 try in 0 s\)"):
        carry_out(down, tmp_path / "down", retries=0, max_attempts=20)
    assert len(read_generation(tmp_path / "down" / "mine").attempts) == 1

    def down_later(request: ModelRequest) -> str:
        return kernel(1, False) if request.number == 1 else down(request)

    with pytest.raises(InfrastructureError, match="10 attempts in a row had no answer; the last: Connection refused"):
        carry_out(down_later, tmp_path / "later", retries=0, max_attempts=20)
    assert len(read_generation(tmp_path / "later" / "mine").attempts) == 11

    def slow(request: ModelRequest) -> str:
        raise ProviderError("timeout", "no whole reply within 1 s")

    with pytest.raises(InfrastructureError, match="there is no reply: no whole reply within 1 s"):
        carry_out(slow, tmp_path / "slow", retries=0, max_attempts=2)


def test_the_budget_ends_the_asking_and_what_was_asked_is_judged(tmp_path: Path) -> None:
    watcher = Watcher()
    result, asked = carry_out(
        lambda request: Reply(kernel(request.number, False), Usage(1000, 500)),
        tmp_path,
        watcher,
        budget_tokens=9000,
        max_output_tokens=4000,
    )
    assert 1 <= len(asked.requests) < 5
    assert len(result.attempts) == len(asked.requests)
    assert "of 9000 tokens are used" in result.spent
    assert watcher.warnings[0].startswith("the budget ends:")
    assert "Stopped by the budget" in (result.folder / "OVERALL_SUMMARY.txt").read_text()
    again, more = carry_out(lambda request: "", tmp_path, budget_tokens=9000, max_output_tokens=4000, resume=True)
    assert more.requests == []  # what an earlier part used counts
    assert again.usage.tokens == 1500 * len(asked.requests)


def test_a_resumed_run_knows_what_failed_requests_used(tmp_path: Path) -> None:
    def first_is_lost(request: ModelRequest) -> Reply:
        if request.number == 1:
            raise ProviderError("timeout", "no whole reply within 1 s")
        return Reply(kernel(request.number, False), Usage(1000, 500))

    fields: dict[str, Any] = {"max_output_tokens": 4000, "retries": 0, "is_free": False}
    result, _ = carry_out(first_is_lost, tmp_path, max_attempts=2, **fields)
    assert result.usage.output_tokens == 4500
    limit = result.usage.tokens + 4000  # less than another request's worst case
    again, more = carry_out(lambda request: "", tmp_path, max_attempts=2, budget_tokens=limit, resume=True, **fields)
    assert more.requests == []
    assert again.usage == result.usage


def test_a_run_of_an_older_version_counts_what_its_transcripts_say(tmp_path: Path) -> None:
    first, _ = carry_out(lambda request: Reply(kernel(1, False), Usage(1000, 500)), tmp_path, max_attempts=1)
    (first.folder / "usage.json").unlink()
    again, _ = carry_out(lambda request: "", tmp_path, max_attempts=1, resume=True)
    assert again.usage.tokens == 1500


def test_costs_are_counted_if_the_price_is_known(tmp_path: Path) -> None:
    result, _ = carry_out(lambda request: Reply(kernel(1, True), Usage(1000, 500)), tmp_path, price=Price(2.0, 10.0))
    assert result.usage.cost_usd == pytest.approx(0.007)
    assert "cost: $0.0070" in (result.folder / "OVERALL_SUMMARY.txt").read_text()


def test_a_machine_that_fails_loses_no_reply(tmp_path: Path) -> None:
    def broken(job: Job) -> Verdict:
        raise InfrastructureError("the device is gone")

    with pytest.raises(InfrastructureError, match="the device is gone"):
        carry_out(lambda request: kernel(1, True), tmp_path, judged=broken)
    result, asked = carry_out(lambda request: kernel(9, False), tmp_path, resume=True)
    assert asked.requests == []
    assert result.all_right


def test_a_folder_that_cannot_be_written_is_one_line_that_says_how_to_go_on(tmp_path: Path) -> None:
    def in_the_way(request: ModelRequest) -> str:
        (tmp_path / "mine" / "relu" / "relu_attempt_1.py").mkdir()
        return kernel(1, True)

    with pytest.raises(
        InfrastructureError, match=r"cannot write to .*mine: .* go on with: torchstone generate --resume"
    ):
        carry_out(in_the_way, tmp_path)
    (tmp_path / "mine" / "relu" / "relu_attempt_1.py").rmdir()
    result, asked = carry_out(lambda request: "", tmp_path, resume=True)
    assert result.all_right
    assert asked.requests == []


def test_nothing_of_a_model_runs_where_the_sandbox_does_not_hold(tmp_path: Path) -> None:
    seen: list[str] = []

    def watch(job: Job) -> Verdict:
        seen.append(job.implementation.backend)
        return Agrees(ErrorStatistics(), 1)

    request = GenerationRequest(operators=("relu",), dsl="pytorch", device="cpu", output_dir=tmp_path)
    with pytest.raises(IsolationUnavailableError, match="its layers files, network, processes are missing"):
        generate(
            request,
            Watcher(),
            provider=ScriptedProvider(lambda request: kernel(1, True)),
            judge=lambda request, device: Judge(device=device, executor=FakeExecutor(watch)),
        )
    assert seen == ["aten"]


def test_the_options_of_a_run_are_remembered_and_others_are_refused(tmp_path: Path) -> None:
    carry_out(lambda request: kernel(1, True), tmp_path, strategy="evolve", max_attempts=2)
    with pytest.raises(UsageError, match="strategy was evolve, now refine"):
        carry_out(lambda request: "", tmp_path, resume=True)
    with pytest.raises(UsageError, match=r"exists\. Use --resume"):
        carry_out(lambda request: "", tmp_path)


def test_the_program_goes_on_with_the_options_that_it_was_begun_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(lambda request: kernel(1, True), tmp_path, max_attempts=3, provider="replay", replay=_recording(tmp_path))
    assert main(["generate", "--resume", "--output-dir", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["run_folder"] == str(tmp_path / "mine")
    assert told["right_operators"] == ["aten.relu.default"]
    assert read_generation(tmp_path / "mine").run.max_attempts == 3


def test_the_commands_of_the_readme_mean_this_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path / "my kernels"
    command = ("torchstone", "generate", "--output-dir", str(where))
    fields: dict[str, Any] = {"strategy": "best-of-n", "max_attempts": 2, "command": command}
    result, _ = carry_out(lambda request: kernel(1, True), where, **fields)
    asked: list[GenerationRequest] = []
    monkeypatch.setattr(cli, "generated", lambda request, **more: asked.append(request) or result)

    def ask(readme: str, line: str) -> GenerationRequest:
        (text,) = re.findall(rf"^\d\. {line}.*: `(.*)`$", readme, re.M)
        assert main(shlex.split(text)[1:]) == 0
        return asked.pop()

    readme = (result.folder / "README.md").read_text()
    resumed = ask(readme, "Go on")
    assert (resumed.resume, resumed.run_id, resumed.output_dir, resumed.max_attempts) == (True, "mine", where, 2)
    _require_the_same(ask(readme, "Judge the recorded replies again"), result)
    others = {"mode": "bwd", "source": "my problems", "suite": "kernelbench", "dsl": "triton", "strategy": "refine"}
    of_problems = dataclasses.replace(result, run=msgspec.structs.replace(result.run, **others))
    _require_the_same(
        ask(readme_text(of_problems.run, result.folder, ".py", ""), "Judge the recorded replies again"), of_problems
    )
    assert main(shlex.split(re.findall(r"Scores: `(.*)`", readme)[0])[1:]) == 0
    assert f"command: {shlex.join(command)}\n" in (result.folder / "metadata.txt").read_text()


def _require_the_same(request: GenerationRequest, result: GenerationResult) -> None:
    names = ("suite", "source", "dsl", "mode", "strategy", "max_attempts")
    assert {name: getattr(request, name) for name in names} == {name: getattr(result.run, name) for name in names}
    assert request.replay == result.folder


def test_an_option_that_is_given_again_leaves_the_others_of_its_kind_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = {"deadlines": Deadlines(compile_seconds=7.0), "limits": Limits(processes=7), "price": Price(2.0, 10.0)}
    result, _ = carry_out(lambda request: kernel(1, True), tmp_path, model="m", **begun)
    asked: list[GenerationRequest] = []
    monkeypatch.setattr(cli, "generated", lambda request, **more: asked.append(request) or result)
    (tmp_path / "prices.json").write_text('{"m": {"input": 1, "output": 5}}')
    (tmp_path / "others.json").write_text('{"other": {"input": 1, "output": 5}}')
    for options in (
        ["--load-timeout", "3", "--scratch-limit", "64M", "--prices", str(tmp_path / "prices.json")],
        ["--timeout-multiplier", "2", "--prices", str(tmp_path / "others.json")],
        [],
    ):
        assert main(["generate", "--resume", "--output-dir", str(tmp_path), *options]) == 0
    some, all_of_them, none = asked
    assert some.deadlines == Deadlines(load_seconds=3.0, compile_seconds=7.0)
    assert some.limits == Limits(processes=7, scratch_bytes=64 << 20)
    assert some.price == Price(1.0, 5.0)
    assert all_of_them.deadlines == Deadlines(*(2 * each for each in msgspec.structs.astuple(Deadlines())))
    assert all_of_them.price == none.price == Price(2.0, 10.0)
    assert (none.deadlines, none.limits, none.model) == (begun["deadlines"], begun["limits"], "m")


def _recording(folder: Path) -> Path:
    carry_out(lambda request: kernel(1, True), folder / "earlier")
    return folder / "earlier" / "mine"


def test_an_address_with_a_password_is_refused_because_folders_keep_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="base_url holds a password"):
        carry_out(lambda request: "", tmp_path, base_url="http://me:secret@127.0.0.1:1/v1")
    assert list(tmp_path.iterdir()) == []


def test_a_replay_says_which_reply_is_not_recorded(tmp_path: Path) -> None:
    replay = ReplayProvider(ProviderOptions(replay=_recording(tmp_path)))
    told = r"mine holds no reply for attempt 2 of aten\.relu\.default\. Recorded: aten\.relu\.default \(attempts 1\)\."
    with pytest.raises(ProviderError, match=told):
        asyncio.run(replay.reply(ModelRequest("aten.relu.default", 2, ())))


def test_the_command_line_offers_every_language_and_strategy() -> None:
    assert set(DSLS) == set(LANGUAGES)
    assert set(STRATEGIES) == set(KNOWN_STRATEGIES)
