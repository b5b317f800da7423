"""The evaluator, rollouts and their adapters: with a fake executor for what they promise, and once for real."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest

from gym.kernels import CHEATING, RELU, RIGHT, WRONG, reply
from torchstone.api.run_now import run_now
from torchstone.errors import (
    DeviceUnavailableError,
    InfrastructureError,
    IsolationUnavailableError,
    MissingExtraError,
    TorchstoneError,
    UsageError,
)
from torchstone.executors import FakeExecutor, Site
from torchstone.gym import (
    BackendBenchConfig,
    CodeEvaluator,
    CompletionReward,
    Evaluator,
    EvaluatorConfig,
    KernelEnvironment,
    Rollout,
    eval_code,
    run_code,
    tasks,
)
from torchstone.gym.config import Gpu, configured
from torchstone.gym.tasks import tasks_of
from torchstone.runs import devices
from torchstone.schema import Agrees, Cheated, Disagrees, ErrorStatistics, Job, Unjudged, Verdict

AGREES = Agrees(ErrorStatistics(), 3)
DISAGREES = Disagrees("check", "values", "at [0]: got 1, expected 2")
CHEATED = Cheated("check", "reply", "bytes on the reply pipe")


def by_text(job: Job) -> Verdict:
    """A verdict that the kernel's own text names."""
    text = str(job.implementation)
    if "machine fails" in text:
        return Unjudged("the judge died")
    return CHEATED if "descriptor" in text else DISAGREES if "self + 1" in text else AGREES


def fake(decide: Any = by_text, **fields: Any) -> Evaluator:
    return Evaluator(executor=FakeExecutor(decide), device="cpu", ops=("relu",), **fields)


PRINTING = """def relu_kernel_impl(self):
    print(self.double().nan_to_num(0, 0, 0).sum().item())
    return torch.where(self < 0, 0, self)
"""


def numbered(number: int) -> str:
    return reply(f"# {number}\n{RIGHT}")


def test_surrogates_in_a_reply_are_joined_or_replaced() -> None:
    with fake() as evaluator:
        found = evaluator.turn_now(reply("# \ud83d\ude00 \ud83d\n" + RIGHT), "relu")
        again = run_now(evaluator.result_of("# \ud83d\n" + RIGHT, "relu"))
    assert (found.verdict, again.verdict) == ("agrees", "agrees")
    assert (
        json.loads(json.dumps(found.to_dict(), ensure_ascii=False).encode())["code"] == "# \U0001f600 \ufffd\n" + RIGHT
    )
    assert again.code == "# \ufffd\n" + RIGHT


# ---- configuration


def test_one_object_configures_everything_and_other_environments_names_are_the_same_objects() -> None:
    assert BackendBenchConfig is EvaluatorConfig
    assert CodeEvaluator is Evaluator
    assert EvaluatorConfig().gpu == "local"
    assert not Evaluator(BackendBenchConfig(gpu="local")).is_modal
    assert Evaluator(gpu="H100").is_modal
    again = configured(None, json.loads('{"ops": ["relu"], "reward": {"cheating": -2}, "split": "eval"}'))
    assert (again.ops, again.reward.cheating, again.split) == (("relu",), -2, "eval")


def test_names_may_be_one_text() -> None:
    given = {"ops": "relu, add", "dtypes": "float32"}
    for config in (configured(None, given), EvaluatorConfig(**given)):  # type: ignore[arg-type]
        assert (config.ops, config.dtypes) == (("relu", "add"), ("float32",))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"gpu": "H800"}, "gpu is 'H800'; expected one of: local, T4, L4, A100, H100, H200, B200"),
        ({"feedback_loop": "always"}, "expected one of: until_correct, until_max_turns, none"),
        ({"split": "test"}, "expected one of: train, eval, all"),
        ({"num_turns": 0}, "it must be 1 or more"),
        ({"num_turns": "three"}, "num_turns is 'three'. Expected int, got str."),
        ({"ops": 5}, "ops is 5. Expected list | null, got int."),
        ({"op": ["relu"]}, "Did you mean 'ops'"),
        ({"language": "tritn"}, "Did you mean 'triton'"),
        ({"reward": {"cheat": -1}}, "reward is {'cheat': -1}. Object contains unknown field cheat."),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused_in_one_line(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        Evaluator(**fields)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_two_ways_to_judge_one_kernel_refuse_the_others_gpu() -> None:
    with pytest.raises(UsageError, match="Use eval_code"):
        run_code(RIGHT, "relu", gpu="H100")
    with pytest.raises(UsageError, match="or use run_code"):
        eval_code(RIGHT, "relu")


@pytest.mark.parametrize("fields", [{"executor": "ray"}, {"executor": "ray", "gpu": "H100"}])
@pytest.mark.parametrize("judge", [run_code, eval_code])
def test_both_refuse_another_executor_by_its_name(judge: Any, fields: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"executor is 'ray'\. Leave executor out, or use"):
        judge(RIGHT, "relu", **fields)


def test_a_gpu_at_modal_needs_its_executor_and_the_refusal_names_what_is_missing() -> None:
    with pytest.raises(TorchstoneError, match=r"(?i)modal") as refused:
        _ = Evaluator(gpu="H100").judge
    assert "\n" not in str(refused.value)
    task = next(iter(tasks_of(EvaluatorConfig(gpu="H100", ops=("relu",)), Site("cuda"))))
    assert "on a CUDA GPU (NVIDIA H100)" in task.prompt
    assert "Triton" in task.prompt


@pytest.mark.parametrize("gpu", get_args(Gpu)[1:])
def test_without_the_package_of_modal_one_line_names_the_extra_before_anything_starts(
    gpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "modal", None)
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **more: pytest.fail("a process was started"))
    expected = "Modal needs its package. Install it: pip install 'torchstone[modal]'."
    with Evaluator(gpu=gpu, ops=("relu",)) as evaluator:
        for ask in (lambda: evaluator.tasks, lambda: evaluator.turn_now(reply(RIGHT), "relu")):
            with pytest.raises(MissingExtraError) as refused:
                ask()
            assert str(refused.value) == expected
    with pytest.raises(MissingExtraError, match=r"torchstone\[modal\]"):
        eval_code(RIGHT, "relu", gpu=gpu)


def test_on_a_machine_without_a_gpu_local_is_the_cpu_and_cuda_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = "no NVIDIA driver was found"
    monkeypatch.setattr(devices, "_cuda_obstacle", lambda: problem)
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **more: pytest.fail("a process was started"))
    with Evaluator(gpu="local", ops=("relu",)) as evaluator:
        assert evaluator.judge.device == "cpu"
        assert "All tensors are on the CPU" in evaluator.task("relu").prompt
    with Evaluator(device="cuda", ops=("relu",)) as evaluator:
        for ask in (lambda: evaluator.tasks, lambda: evaluator.turn_now(reply(RIGHT), "relu")):
            with pytest.raises(DeviceUnavailableError) as refused:
                ask()
            assert problem in str(refused.value)
            assert "\n" not in str(refused.value)


def test_an_operator_that_the_suite_lacks_and_a_split_without_cases_are_named() -> None:
    with fake() as evaluator, pytest.raises(UsageError, match="unknown operator 'softplus'"):
        evaluator.turn_now(numbered(0), "softplus")
    with pytest.raises(UsageError, match="Did you mean 'relu'"):
        _ = Evaluator(device="cpu", ops=("relo",)).tasks


# ---- turns


def test_a_reply_has_the_reward_of_its_kernel_and_feedback() -> None:
    with fake() as evaluator:
        right, wrong, cheat, nothing = evaluator.turns_now(
            [(reply(text), "relu") for text in (RIGHT, WRONG, CHEATING)] + [("I cannot.", "relu")]
        )
    assert (right.reward, right.verdict, right.right) == (0.3, "agrees", True)
    assert (wrong.reward, wrong.verdict, wrong.right) == (0.0, "disagrees", False)
    assert "0 of 4 cases agree" in wrong.feedback
    assert (cheat.reward, cheat.verdict, cheat.guards) == (-1.0, "cheated", ("reply",))
    assert (nothing.reward, nothing.verdict, nothing.code) == (0.0, "no_code", None)
    assert "no code block" in nothing.feedback
    assert json.loads(json.dumps(cheat.to_dict()))["reward"] == -1.0


@pytest.mark.parametrize("kind", [IsolationUnavailableError, DeviceUnavailableError])
def test_what_every_kernel_would_meet_is_an_error_and_no_missing_reward(kind: type[InfrastructureError]) -> None:
    def decide(job: Job) -> Verdict:
        raise kind("the layer network is missing.")

    with fake(decide) as evaluator, pytest.raises(kind, match="the layer network is missing"):
        evaluator.turn_now(numbered(0), "relu")


def test_a_machine_that_fails_gives_no_reward_and_no_error() -> None:
    def decide(job: Job) -> Verdict:
        raise InfrastructureError("no device.")

    with fake(decide) as evaluator:
        with pytest.warns(RuntimeWarning, match=r"not judged, and its reward is None: no device\.") as warned:
            result, _ = evaluator.turns_now([(numbered(0), "relu"), (numbered(1), "relu")])
        evaluator.turn_now(numbered(2), "relu")  # says nothing more
        assert len(warned) == 1
        assert (result.reward, result.verdict) == (None, "unjudged")
        assert "no device" in result.feedback
    unjudged = "is unjudged, and its reward is None: the judge died"
    with fake() as evaluator, pytest.warns(RuntimeWarning, match=unjudged):
        assert evaluator.turn_now(numbered(0).replace("# 0", "# machine fails"), "relu").reward is None


def test_identical_kernels_in_flight_are_judged_once_and_the_queue_is_bounded() -> None:
    judged: Counter[str] = Counter()
    go = threading.Event()

    def decide(job: Job) -> Verdict:
        go.wait(10)
        judged[job.key] += 1
        return AGREES

    async def together(evaluator: Evaluator) -> list[float | None]:
        asked = [asyncio.create_task(evaluator.turn(numbered(number % 3), "relu")) for number in range(30)]
        await asyncio.sleep(0.3)
        assert evaluator.judge.in_flight <= 12
        go.set()
        return [each.reward for each in await asyncio.gather(*asked)]

    with fake(decide, queue_size=12) as evaluator:
        assert asyncio.run(together(evaluator)) == [0.3] * 30
        assert len(judged) == 3 * len(evaluator.task("relu").cases)


def test_a_cancelled_rollout_leaves_the_others_alone() -> None:
    async def together(evaluator: Evaluator) -> list[Any]:
        asked = [asyncio.create_task(evaluator.turn(numbered(number), "relu")) for number in range(8)]
        await asyncio.sleep(0)
        for each in asked[::2]:
            each.cancel()
        return await asyncio.gather(*asked, return_exceptions=True)

    with fake(queue_size=2) as evaluator:
        results = asyncio.run(together(evaluator))
    assert all(isinstance(each, asyncio.CancelledError) for each in results[::2])
    assert [each.reward for each in results[1::2]] == [0.3] * 4


def test_verdicts_are_kept_in_training_and_never_in_evaluation(tmp_path: Path) -> None:
    for split, expected in (("train", True), ("eval", False)):
        with fake(split=split, verdict_cache=tmp_path / split) as evaluator:
            evaluator.turn_now(numbered(0), "relu")
            assert evaluator.turn_now(numbered(0), "relu").from_cache is expected
        assert (tmp_path / split).exists() is expected


def test_a_line_that_looks_like_a_path_is_code(tmp_path: Path) -> None:
    seen: list[str] = []

    def decide(job: Job) -> Verdict:
        seen.append(str(job.implementation))
        return DISAGREES

    path = tmp_path / "secret.py"
    path.write_text("SECRET = 1")
    with fake(decide) as evaluator:
        run_now(evaluator.result_of(str(path), "relu"))
    assert seen
    assert "SECRET" not in seen[0]


@pytest.mark.parametrize(
    ("asked", "code", "language"),
    [
        ("cuda", "at::Tensor relu_kernel_impl(const at::Tensor& self) { return self; }", "cuda"),
        ("cuda", "import torch\n" + RIGHT, "python"),
        ("cpp", "#include <ATen/ATen.h>\nat::Tensor relu_kernel_impl(at::Tensor self) { return self; }", "cpp"),
        ("triton", "@triton.jit\ndef f(x): tl.load(x)\n" + RIGHT, "triton"),
        ("pytorch", RIGHT, "python"),
    ],
)
def test_a_kernel_is_judged_in_the_language_it_is_written_in_or_else_in_the_one_asked_for(
    asked: str, code: str, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "require_runnable", lambda *given, **options: None)  # as on a machine with a GPU
    seen: set[str] = set()

    def decide(job: Job) -> Verdict:
        seen.add(job.implementation.language)
        return AGREES

    with fake(decide, language=asked) as evaluator:
        assert evaluator.turn_now(f"```\n{code}\n```", "relu").right
    assert seen == {language}


def test_a_language_that_does_not_run_on_the_device_is_refused_before_anything_is_judged() -> None:
    with fake(language="cuda") as evaluator, pytest.raises(UsageError, match="Use language pytorch or"):
        evaluator.turn_now("```\nnothing\n```", "relu")


def test_evaluation_and_training_are_judged_on_different_cases() -> None:
    with fake(split="train") as train, fake(split="eval") as evaluation, fake(split="all") as both:
        keys = [{case.key for case in each.task("relu").cases} for each in (train, evaluation, both)]
    assert not keys[0] & keys[1]
    assert keys[0] | keys[1] == keys[2]


# ---- rollouts


def rewards_of(evaluator: Evaluator, *texts: str) -> tuple[list[float | None], bool, float | None]:
    rollout = Rollout(evaluator, "relu")
    for text in texts:
        run_now(rollout.answer(reply(text)))
    return [result.reward for result in rollout.results], rollout.is_done, rollout.reward


def test_every_turn_of_a_rollout_is_judged_the_last_too() -> None:
    with fake(num_turns=3) as evaluator:
        assert rewards_of(evaluator, WRONG, CHEATING, RIGHT) == ([0.0, -1.0, 0.3], True, 0.3)
        assert rewards_of(evaluator, RIGHT, WRONG) == ([0.3, 0.0], False, 0.3)
    with fake(num_turns=2, rollout_reward="last") as evaluator:
        assert rewards_of(evaluator, RIGHT, WRONG) == ([0.3, 0.0], True, 0.0)
    with fake(num_turns=1) as evaluator:
        assert rewards_of(evaluator, RIGHT) == ([0.3], True, 0.3)


@pytest.mark.filterwarnings("ignore:a kernel of .* is unjudged:RuntimeWarning")
def test_the_feedback_loop_decides_when_a_rollout_is_over() -> None:
    with fake(num_turns=3, feedback_loop="until_correct") as evaluator:
        assert rewards_of(evaluator, WRONG, RIGHT) == ([0.0, 0.3], True, 0.3)
    with fake(num_turns=3, feedback_loop="none") as evaluator:
        assert rewards_of(evaluator, WRONG) == ([0.0], True, 0.0)
    with fake(num_turns=3) as evaluator:
        assert rewards_of(evaluator, "# machine fails\n" + RIGHT) == ([None], True, None)
        rollout = Rollout(evaluator, "relu")
        assert rollout.reward is None
        for _ in range(3):
            run_now(rollout.answer("nothing"))
        with pytest.raises(UsageError, match="this rollout is over"):
            run_now(rollout.answer("nothing"))


@pytest.mark.filterwarnings("ignore:a kernel of .* is unjudged:RuntimeWarning")
def test_reset_and_step_follow_gymnasium() -> None:
    with fake(num_turns=2, feedback_loop="until_correct") as evaluator:
        environment, beside = KernelEnvironment(evaluator), KernelEnvironment(evaluator)
        with pytest.raises(UsageError, match="Call reset first"):
            environment.step("x")
        with pytest.raises(UsageError, match="unknown option"):
            environment.reset(options={"op": "relu"})
        prompt, about = environment.reset(seed=3, options={"operator": "relu"})
        beside.reset(seed=3)
        assert "relu_kernel_impl" in prompt
        assert about["operator"] == RELU
        feedback, reward, terminated, truncated, info = environment.step(reply(WRONG))
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert "0 of 4 cases agree" in feedback
        assert info["verdict"] == "disagrees"
        assert environment.step(reply(RIGHT))[1:4] == (0.3, True, False)
        beside.step(reply(WRONG))
        assert beside.step(reply(WRONG))[1:4] == (0.0, False, True)
        environment.reset()
        assert environment.step("# machine fails\n" + reply("# machine fails\n" + RIGHT))[1:4] == (None, False, True)


@pytest.mark.filterwarnings("ignore:a kernel of .* is unjudged:RuntimeWarning")
def test_a_trainer_gets_one_reward_for_each_completion_of_a_batch() -> None:
    with fake() as evaluator:
        reward = CompletionReward(evaluator)
        assert reward(reply(RIGHT), "relu") == 0.3
        chat = [{"role": "assistant", "content": reply(CHEATING)}]
        failing = reply("# machine fails\n" + RIGHT)
        found = reward.trl(["p"] * 3, [reply(WRONG), chat, failing], operator=["relu", RELU, "relu"], step=[1, 2, 3])
        assert found == [0.0, -1.0, None]
        with pytest.raises(UsageError, match="2 prompts, 1 completions, 1 operators"):
            reward.trl(["p", "q"], ["c"], operator=["relu"])
        with pytest.raises(UsageError, match="int, not text"):
            reward([{"role": "assistant", "content": 3}], "relu")

    async def inside() -> float | None:
        with fake() as other:
            return CompletionReward(other)(reply(RIGHT), "relu")

    assert asyncio.run(inside()) == 0.3, "also where a loop runs already, as in a notebook"


def test_a_closed_evaluator_says_so() -> None:
    evaluator = fake()
    evaluator.close()
    with pytest.raises(UsageError, match="this Evaluator is closed"):
        evaluator.turn_now(numbered(0), "relu")


# ---- for real


def test_a_real_sandbox_judges_a_right_a_wrong_and_a_cheating_kernel_and_pytorch_itself() -> None:
    with Evaluator(device="cpu", ops=("relu",), measured=False) as evaluator:
        right, wrong, cheat = evaluator.turns_now([(reply(text), "relu") for text in (RIGHT, WRONG, CHEATING)])
        reference = run_now(evaluator.evaluate_reference("relu"))
        printed = [run_now(evaluator.evaluate(PRINTING, "relu")) for _ in range(2)]
    assert (right.verdict, right.reward) == ("agrees", 0.3), right.feedback
    assert right.added_imports == ("import torch",)
    assert wrong.verdict == "disagrees"
    assert wrong.reward is not None
    assert 0 <= wrong.reward < 0.3
    assert (cheat.verdict, cheat.reward) == ("cheated", -1.0)
    assert reference.agrees
    first, second = ({record.case.key: record.log_tail for record in each.records} for each in printed)
    large = max(evaluator.task("relu").cases, key=lambda case: len(case.label)).key
    assert first[large] != second[large], "values are drawn again for each judgement"
