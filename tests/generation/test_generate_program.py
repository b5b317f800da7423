"""`torchstone generate` as people run it: real SDKs, servers on loopback, real judging, one process."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from generation.model_server import model_server
from generation.scripted_model import RIGHT, entry_in, improving
from generation.test_gradients import DIFFERENTIABLE
from generation.test_problems import PROBLEM, SOLUTION
from torchstone.backends import BackendOptions
from torchstone.backends.directory import DirectoryBackend
from torchstone.generation import ask_with_retries, read_generation, records_of
from torchstone.runs import read_run
from torchstone.schema import Cheated, decode, encode
from torchstone.schema.generation import BestAttempt, Exchange, Judged

KEY = "sk-test-0123456789abcdefSECRET"
SERVERS = {
    "anthropic": ("claude-scripted", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ""),
    "openai": ("scripted-1", "OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
}


def torchstone(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The program, with no keys but those given."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "OPENAI"))}
    return subprocess.run(
        [sys.executable, "-m", "torchstone", *arguments],
        env={**inherited, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def keys(provider: str, url: str) -> dict[str, str]:
    _, key, base, path = SERVERS[provider]
    return {key: KEY, base: url + path}


def files_with(text: str, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


@pytest.mark.parametrize(("provider", "streams"), [("anthropic", True), ("openai", False)])
def test_a_model_is_told_the_truth_until_its_fourth_kernel_is_right(
    provider: str, streams: bool, tmp_path: Path
) -> None:
    options = ["--suite", "smoke", "--ops", "relu", "--dsl", "pytorch", "--device", "cpu", "--topn", "2"]
    options += ["--model", SERVERS[provider][0], "--output-dir", str(tmp_path), "--price", "3,15,0.3"]
    faults = {2: "500"}  # a careless server, which tells the key in its error
    with model_server(improving, faults.get) as server:
        more = [] if streams else ["--no-stream"]
        done = torchstone("generate", *options, *more, environment=keys(provider, server.url))
        assert done.returncode == 0, done.stderr
        assert server.keys == {KEY}
        assert all(body.get("stream", False) == streams for body in server.bodies)
        prompts = json.dumps(server.bodies)
    run = _only_run(tmp_path)
    _require_four_honest_attempts(run)
    _require_the_files(run)
    for where in (run, tmp_path):
        assert files_with(KEY, where) == []
    assert KEY not in done.stdout + done.stderr + prompts


def _only_run(folder: Path) -> Path:
    (run,) = folder.iterdir()
    assert re.fullmatch(r"run_\d{8}_\d{6}", run.name)
    return run


def _require_four_honest_attempts(run: Path) -> None:
    stored = read_generation(run)
    assert stored.run.max_attempts == 5
    assert [attempt.number for attempt in stored.attempts] == [1, 2, 3, 4]
    outcomes = [attempt.outcome for attempt in stored.attempts]
    assert all(isinstance(outcome, Judged) for outcome in outcomes)
    assert [outcome.verdict for outcome in outcomes] == ["crashed", "disagrees", "cheated", "agrees"]
    assert [attempt.right for attempt in stored.attempts] == [False, False, False, True]
    assert [attempt.requests for attempt in stored.attempts] == [1, 2, 1, 1]
    usage = stored.attempts[0].usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens) == (120, 50, 20)
    assert usage.cost_usd == pytest.approx((100 * 3 + 20 * 0.3 + 50 * 15) / 1e6)
    asked = _questions(run)
    assert [len(messages) for messages in asked[:3]] == [1, 3, 5]  # later ones see the last two and the best
    assert "SyntaxError" in asked[1][-1]
    assert "'(' was never closed" in asked[1][-1]
    assert "0.25" in asked[2][-1] or "differs" in asked[2][-1] or "expected" in asked[2][-1]
    assert "result or time did not come from this call" in asked[3][-1]
    records = records_of(run, outcomes[2].records_file)
    guards = {record.verdict.guard for record in records if isinstance(record.verdict, Cheated)}
    assert guards
    assert not any(guard in asked[3][-1] for guard in guards)


def _questions(run: Path) -> list[list[str]]:
    lines = (run / "relu" / "transcript.jsonl").read_bytes().splitlines()
    return [[message.text for message in decode(line, Exchange).messages] for line in lines]


def _require_the_files(run: Path) -> None:
    for number, part in ((1, "# version 1"), (4, "torch.zeros_like")):
        assert part in (run / "relu" / f"relu_attempt_{number}.py").read_text()
    best = decode((run / "relu" / "best.json").read_bytes(), BestAttempt)
    assert (best.file, best.number, best.right) == ("relu_attempt_4.py", 4, True)
    summary = (run / "OVERALL_SUMMARY.txt").read_text()
    assert "Operators: 1, with a right kernel: 1" in summary
    assert re.search(r"aten\.relu\.default +relu +4 +4 +right", summary)
    assert "model: " in (run / "metadata.txt").read_text()
    assert f"--kernels-dir {run}" in (run / "README.md").read_text()
    page = (run / "relu" / "transcript.md").read_text()
    assert "## Attempt 3: cheated" in page


def test_run_generates_and_then_judges_the_best(tmp_path: Path) -> None:
    with model_server(improving) as server:
        options = ["--suite", "smoke", "--ops", "relu", "--device", "cpu", "--topn", "2"]
        options += ["--output-dir", str(tmp_path / "runs")]
        options += ["--kernels-dir", str(tmp_path / "kernels"), "--run-id", "mine", "--json"]
        model = ["--backend", "llm", "--model", "claude-scripted", "--dsl", "pytorch", "--llm-max-attempts", "4"]
        done = torchstone("run", *options, *model, environment=keys("anthropic", server.url))
        asked = len(server.bodies)
    assert done.returncode == 0, done.stderr
    assert "circumstances differ" not in done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["summary"]["counts"] == {"agrees": 2}
    assert asked == 4
    generated = tmp_path / "kernels" / "mine"
    assert read_generation(generated).attempts[-1].right

    # The folder's name is no run's, and the backend 'directory' takes its best attempt all the same.
    (generated / "relu" / "relu_attempt_9.py").write_text("relu_kernel_impl = None\n")
    kernel = DirectoryBackend(BackendOptions(tmp_path / "kernels")).implementation("aten.relu.default")
    assert kernel is not None
    assert kernel.reference.where == "mine/relu/relu_attempt_4.py"


def test_run_generates_only_for_the_cases_that_it_judges(tmp_path: Path) -> None:
    def script(messages: list[dict[str, str]]) -> str:
        return f"```python\n{RIGHT.format(entry=entry_in(messages))}```"

    options = ["--suite", "smoke", "--ops", "relu,add", "-k", "relu", "--topn", "1"]
    assert _generated_and_judged(script, options, tmp_path) == {"agrees": 1}


def test_a_run_that_is_interrupted_while_it_generates_goes_on_by_the_command_that_it_prints(tmp_path: Path) -> None:
    def script(messages: list[dict[str, str]]) -> str:
        return f"```python\n{RIGHT.format(entry=entry_in(messages))}```"

    options = ["--ops", "relu", "--topn", "1", "--device", "cpu", "--effort", "thorough", "--no-measure"]
    model = ["--backend", "llm", "--model", "claude-scripted", "--dsl", "pytorch", "--llm-max-attempts", "2"]
    with model_server(script, delay_seconds=1.5) as server:
        environment = {**os.environ, **keys("anthropic", server.url)}
        started = [sys.executable, "-m", "torchstone", "run", *options, *model, "--run-id", "l3"]
        first = subprocess.Popen(started, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
        while not server.bodies:
            assert first.poll() is None
            time.sleep(0.02)
        first.send_signal(signal.SIGINT)
        _, errors = first.communicate(timeout=60)
        assert first.returncode == 130
        command = "torchstone run --resume --run-id l3"
        assert errors.splitlines()[-1] == f"interrupted; go on with: {command}"
        server.delay_seconds = 0
        again = [sys.executable, "-m", *command.split(), "--json"]
        done = subprocess.run(again, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["counts"] == {"agrees": 1}
    assert "circumstances differ" not in done.stderr
    stored = read_run(tmp_path / "torchstone_runs" / "l3")
    (record,) = stored.records
    assert stored.manifest.configuration["effort"] == "thorough"
    assert record.implementation.where == "relu/relu_attempt_1.py"
    assert record.measurement is None
    kernels = tmp_path / "generated_kernels" / "l3"
    judging = f"--suite smoke --ops relu --device cpu --backend directory --kernels-dir {kernels}`"
    assert judging in (kernels / "README.md").read_text()


def test_run_asks_no_model_for_a_run_that_exists(tmp_path: Path) -> None:
    (tmp_path / "runs" / "l3").mkdir(parents=True)
    where = ["--output-dir", str(tmp_path / "runs"), "--kernels-dir", str(tmp_path / "kernels"), "--run-id", "l3"]
    code, told = _in_process(["run", "--ops", "relu", "--backend", "llm", "--model", "scripted-1", *where])
    assert code == 2
    assert f"run folder {tmp_path / 'runs' / 'l3'} exists" in told
    assert not (tmp_path / "kernels").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--executor", "ray"], "--backend llm judges attempts on this machine, and --executor is ray"),
        (["--executor", "modal", "--gpu", "H100"], "and --executor is modal. Run 'torchstone generate' first"),
        (["--overhead-dominated"], "--overhead-dominated"),
        (["-k", "no_such_word"], "fits -k 'no_such_word'"),
    ],
)
def test_run_asks_no_model_where_the_options_cannot_be_honoured(
    options: list[str], message: str, tmp_path: Path
) -> None:
    where = ["--output-dir", str(tmp_path / "runs"), "--kernels-dir", str(tmp_path / "kernels")]
    model = ["--backend", "llm", "--model", "scripted-1", "--base-url", "http://127.0.0.1:1/v1", "--dsl", "pytorch"]
    code, told = _in_process(["run", "--device", "cpu", *where, *model, *options])
    assert code == 2
    assert message in told
    assert not (tmp_path / "kernels").exists()


def test_what_is_missing_is_one_line_before_anything_starts(tmp_path: Path) -> None:
    where = ["--output-dir", str(tmp_path / "none"), "--device", "cpu", "--ops", "relu"]
    model = ["--model", "claude-x", "--dsl", "pytorch"]
    refused = {
        "ANTHROPIC_API_KEY is not set": model,
        "no model is named": ["--dsl", "pytorch"],
        "OPENAI_API_KEY is not set": ["--model", "gpt-x", "--dsl", "pytorch"],
        "unknown provider 'antropic'. Did you mean 'anthropic'": [*model, "--provider", "antropic"],
        "--budget-usd needs the price of the model": [*model, "--budget-usd", "1"],
        "kernels in CUDA C++ do not run on the CPU": ["--model", "claude-x", "--dsl", "cuda"],
        "does not exist": ["--replay", str(tmp_path / "nothing"), "--dsl", "pytorch"],
        "Use --dsl pytorch or --dsl cpp, or --device cuda. Besides: ANTHROPIC": [
            "--model",
            "claude-x",
            "--dsl",
            "cuda",
        ],
        "Use --dsl pytorch or --dsl cpp, or --device cuda, or TRITON_INTERPRET=1": [
            "--replay",
            str(tmp_path / "nothing"),
        ],
        "Triton's interpreter. Besides: ": ["--replay", str(tmp_path / "nothing")],
    }
    for message, options in refused.items():
        done = _in_process(["generate", *where, *options])
        assert done[0] == 2, (message, done)
        assert message in done[1]
        assert done[1].count("\n") == 1
    assert not (tmp_path / "none").exists()


def test_an_operator_without_a_recorded_reply_is_refused_with_what_is_recorded(tmp_path: Path) -> None:
    transcript = tmp_path / "earlier" / "relu" / "transcript.jsonl"
    transcript.parent.mkdir(parents=True)
    reply = "```python\ndef relu_kernel_impl(x):\n    return x.clamp(min=0)\n```"
    exchange = Exchange(operator="aten.relu.default", number=1, model="m", messages=(), reply=reply, replied_unix_ns=0)
    transcript.write_bytes(encode(exchange) + b"\n")
    options = ["--replay", str(tmp_path / "earlier"), "--dsl", "pytorch", "--device", "cpu"]
    options += ["--output-dir", str(tmp_path / "new"), "--topn", "1", "--max-attempts", "1"]

    refused = _in_process(["generate", "--ops", "relu,add", *options])
    assert refused[0] == 2
    assert "earlier holds no reply for aten.add.Tensor" in refused[1]
    assert "Recorded: aten.relu.default (attempts 1)." in refused[1]
    assert not (tmp_path / "new").exists()

    done = torchstone("generate", *options)  # without --ops: what is recorded
    assert done.returncode == 0, done.stderr
    assert "1 of 1 operators have a right kernel" in done.stdout


def test_a_server_that_cannot_be_reached_is_one_line_with_its_address_and_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask_with_retries, "_FIRST_WAIT_SECONDS", 0.001)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        options = ["--ops", "relu", "--device", "cpu", "--dsl", "pytorch", "--topn", "1", "--model", "scripted-1"]
        options += ["--base-url", address, "--output-dir", str(tmp_path / "runs")]
        for command in (["generate"], ["run", "--backend", "llm", "--kernels-dir", str(tmp_path / "kernels")]):
            code, told = _in_process([*command, *options])
            assert code == 3, told
            (line,) = [line for line in told.splitlines() if line.startswith("error: ")]
            assert f"the model's server cannot be reached: {address}: " in line
            assert f"{address}: Connection refused (6 tries in 0 s)" in line
            assert "Start the server or correct its address (--base-url)" in line
            assert "torchstone generate --resume --run-id" in line


def _in_process(arguments: list[str]) -> tuple[int, str]:
    """The same program in this process: it ends before it starts anything."""
    import contextlib
    import io

    from torchstone.cli import main

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(io.StringIO()) as errors:
        for name in (*os.environ,):
            if name.startswith(("ANTHROPIC", "OPENAI")):
                patch.delenv(name)
        return main(arguments), errors.getvalue()


@pytest.mark.parametrize("extra", ["anthropic", "openai"])
def test_a_missing_sdk_names_its_extra(extra: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, extra, None)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    import contextlib
    import io

    from torchstone.cli import main

    with contextlib.redirect_stderr(io.StringIO()) as errors:
        options = ["--model", SERVERS[extra][0], "--dsl", "pytorch", "--output-dir", str(tmp_path / "none")]
        assert main(["generate", "--ops", "relu", *options]) == 2
    assert errors.getvalue().endswith(f"needs its SDK: pip install 'torchstone[{extra}]'.\n")


@pytest.mark.slow
def test_run_generates_gradients_and_then_judges_the_best(tmp_path: Path) -> None:
    def script(messages: list[dict[str, str]]) -> str:
        assert "# Gradient" in messages[0]["content"]
        return f"```python\n{DIFFERENTIABLE.format(condition='x <= 0')}```"

    options = ["--suite", "smoke", "--ops", "relu", "--dtype", "float32", "--topn", "1", "--mode", "bwd"]
    assert _generated_and_judged(script, options, tmp_path) == {"agrees": 1}


def test_run_generates_solutions_of_problems_and_then_judges_the_best(tmp_path: Path) -> None:
    def script(messages: list[dict[str, str]]) -> str:
        assert PROBLEM.strip() in messages[0]["content"]
        return f"```python\n{SOLUTION}```"

    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "1_Scaled_ReLU.py").write_text(PROBLEM)
    options = ["--suite", "kernelbench", "--source", str(tmp_path / "level1")]
    assert _generated_and_judged(script, options, tmp_path) == {"agrees": 1}


def _generated_and_judged(
    script: Callable[[list[dict[str, str]]], str], options: list[str], folder: Path
) -> dict[str, int]:
    """The counts of `torchstone run --backend llm`."""
    where = [
        "--device",
        "cpu",
        "--output-dir",
        str(folder / "runs"),
        "--kernels-dir",
        str(folder / "kernels"),
        "--json",
    ]
    model = ["--backend", "llm", "--model", "claude-scripted", "--dsl", "pytorch", "--llm-max-attempts", "2"]
    with model_server(script) as server:
        done = torchstone("run", *options, *where, *model, environment=keys("anthropic", server.url))
        asked = len(server.bodies)
    assert done.returncode == 0, done.stderr
    assert asked == 1
    counts: dict[str, int] = json.loads(done.stdout)["summary"]["counts"]
    return counts
