"""The executor `modal`, as far as it can be tested without an account: everything but containers that start."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

modal = pytest.importorskip("modal")

from jobs import job  # noqa: E402

from torchstone.errors import DeviceUnavailableError, InfrastructureError, TorchstoneError, UsageError  # noqa: E402
from torchstone.executors import ExecutorOptions, fake_record  # noqa: E402
from torchstone.executors import modal_app as app_module  # noqa: E402
from torchstone.executors.modal_app import GPUS, in_container, make_app, make_image, pins, settings_of, versions  # noqa: E402
from torchstone.executors.modal_executor import ModalExecutor, as_ours, import_modal  # noqa: E402
from torchstone.executors.node_judge import Judged, Refused, packed, packed_options, unpacked  # noqa: E402
from torchstone.schema import Agrees, ErrorStatistics, Job, Unjudged, decode, encode, verdict_name  # noqa: E402

RIGHT = Agrees(ErrorStatistics(), 1)
H100 = ExecutorOptions(device="cuda", gpu="H100", judges_per_device=3)


class Call:
    """A call whose answer a function makes when somebody waits for it."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self.cancelled = threading.Event()

    def get(self) -> Any:
        return self._make(self)

    def cancel(self, terminate_containers: bool = False) -> None:
        assert terminate_containers
        self.cancelled.set()


class Client:
    """Deployed functions that answer as a function says, and what they were asked."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.asked: list[tuple[str, ...]] = []
        self.calls: list[Call] = []

    def function(self, name: str) -> Client:
        assert name == "judge_h100"
        return self

    def spawn(self, *texts: str) -> Call:
        self.asked.append(texts)
        self.calls.append(Call(lambda call: self._answer(call, *texts)))
        return self.calls[-1]


def agreeing(call: Call, task: str, expected: str, options: str, jobs: str) -> str:
    listed = decode(jobs, tuple[Job, ...])
    return encode(Judged(tuple(fake_record(each, RIGHT) for each in listed))).decode()


def run(client: Client, jobs: list[Job]) -> list[Any]:
    return list(ModalExecutor(H100, client).run(jobs))


# ---- what is deployed


def test_there_is_one_function_for_each_type_of_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    declared: dict[str, dict[str, Any]] = {}
    original = modal.App.function

    def function(self: Any, **settings: Any) -> Any:
        declared[settings["name"]] = settings
        return original(self, **settings)

    monkeypatch.setattr(modal.App, "function", function)
    make_app(modal)
    assert {name: settings["gpu"] for name, settings in declared.items()} == {
        "judge_t4": "T4",
        "judge_l4": "L4",
        "judge_a100": "A100-80GB",
        "judge_h100": "H100!",
        "judge_h200": "H200",
        "judge_b200": "B200",
    }


def test_containers_have_no_network_no_second_try_and_one_candidate() -> None:
    settings = settings_of("H100", 5)
    assert settings["block_network"]
    assert settings["restrict_modal_access"]
    assert settings["single_use_containers"]
    assert settings["_experimental_restrict_output"], "an answer is never unpickled"
    assert (settings["retries"], settings["max_containers"]) == (0, 5)


def test_the_image_has_exactly_the_versions_of_this_machine() -> None:
    assert all("==" in pin and "+" not in pin for pin in pins())
    assert f"torch=={versions().torch}" in pins()
    assert make_image(modal) is not None
    assert app_module.BASE_IMAGE.startswith("nvidia/cuda:")


def test_the_function_judges_where_it_is_called_locally(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    original = modal.App.function

    def declare(self: Any, **settings: Any) -> Any:
        declaring = original(self, **settings)
        return lambda body: made.append(declaring(body))

    monkeypatch.setattr(modal.App, "function", declare)
    make_app(modal, ("T4",))
    (function,) = made
    jobs = [job("right"), job("crashes")]
    options = packed_options(ExecutorOptions(device="cpu", results="copied", node="Modal T4"))
    answer = unpacked(function.local("judge", encode(versions()).decode(), options, packed(jobs)))
    assert isinstance(answer, Judged)
    assert [verdict_name(record.verdict) for record in answer.records] == ["agrees", "crashed"]
    assert {record.isolation.results for record in answer.records} == {"copied"}
    assert {record.node for record in answer.records} == {"Modal T4"}
    assert decode(function.local("describe"), dict)["software"]["torchstone"] == versions().torchstone


def test_a_container_with_other_versions_refuses() -> None:
    old = encode(msgspec.structs.replace(versions(), torchstone="0.0.1")).decode()
    answer = unpacked(in_container("judge", old, packed_options(ExecutorOptions()), packed([])))
    assert isinstance(answer, Refused)
    assert answer.error == "UsageError"
    assert "this machine has 0.0.1" in answer.message
    assert "torchstone deploy modal" in answer.message


# ---- what is called


def test_jobs_go_as_text_and_records_come_as_text() -> None:
    client = Client(agreeing)
    jobs = [job("right", number) for number in range(10)]
    records = run(client, jobs)
    assert Counter(record.job_key for record in records) == Counter(each.key for each in jobs)
    assert all(isinstance(text, str) for texts in client.asked for text in texts)
    (options,) = {texts[2] for texts in client.asked}
    assert decode(options, ExecutorOptions).results == "copied"


def test_a_container_that_fails_is_tried_again_and_then_given_up() -> None:
    failures = iter([modal.exception.InternalFailure("preempted"), modal.exception.FunctionTimeoutError("late")])

    def answer(call: Call, *texts: str) -> str:
        error = next(failures, None)
        if error is not None:
            raise error
        return agreeing(call, *texts)

    (record,) = run(Client(answer), [job("right")])
    assert (record.attempts, verdict_name(record.verdict)) == (3, "agrees")

    def always(call: Call, *texts: str) -> str:
        raise modal.exception.RemoteError("container failed")

    client = Client(always)
    (record,) = run(client, [job("right")])
    assert isinstance(record.verdict, Unjudged)
    assert "Modal: RemoteError: container failed" in record.verdict.reason
    assert len(client.asked) == 3


def test_an_answer_that_is_no_text_is_a_fault() -> None:
    (record,) = run(Client(lambda call, *texts: {"type": "judged"}), [job("right")])
    assert isinstance(record.verdict, Unjudged)
    assert "answered with dict, not with text" in record.verdict.reason


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        ("AuthError", DeviceUnavailableError, "modal token new"),
        ("PermissionDeniedError", DeviceUnavailableError, "modal token new"),
        ("NotFoundError", UsageError, "Run 'torchstone deploy modal'"),
        ("VersionError", UsageError, "Update the package modal"),
        ("InvalidError", UsageError, "Update the package modal"),
        ("FunctionTimeoutError", InfrastructureError, "FunctionTimeoutError"),
        ("RemoteError", InfrastructureError, "RemoteError"),
        ("ConnectionError", InfrastructureError, "ConnectionError"),
        ("InternalFailure", InfrastructureError, "InternalFailure"),
        ("ResourceExhaustedError", InfrastructureError, "ResourceExhaustedError"),
        ("OutputExpiredError", InfrastructureError, "OutputExpiredError"),
    ],
)
def test_errors_of_modal_become_ours(error: str, kind: type[TorchstoneError], told: str) -> None:
    ours = as_ours(getattr(modal.exception, error)("why"), "H100")
    assert type(ours) is kind
    assert told in str(ours)


def test_a_mistake_of_the_user_ends_the_run_at_once() -> None:
    def answer(call: Call, *texts: str) -> str:
        raise modal.exception.NotFoundError("no such app")

    client = Client(answer)
    with pytest.raises(UsageError, match="no function judge_h100 in app torchstone"):
        run(client, [job("right")])
    assert len(client.asked) == 1


def test_no_more_containers_work_at_once_than_were_asked_for() -> None:
    lock, counts = threading.Lock(), [0, 0]

    def answer(call: Call, *texts: str) -> str:
        with lock:
            counts[0] += 1
            counts[1] = max(counts)
        time.sleep(0.02)
        with lock:
            counts[0] -= 1
        return agreeing(call, *texts)

    run(Client(answer), [job("right", number) for number in range(12)])
    assert counts[1] == 3


def test_closing_cancels_the_calls_and_their_containers() -> None:
    def answer(call: Call, *texts: str) -> str:
        if len(client.calls) < 3:
            return agreeing(call, *texts)
        call.cancelled.wait(10)
        raise modal.exception.InputCancellation

    client = Client(answer)
    records: Iterator[Any] = ModalExecutor(H100, client).run([job("right", number) for number in range(3)])
    next(records)
    records.close()  # type: ignore[attr-defined]
    assert client.calls[-1].cancelled.wait(5)


# ---- before a run


def test_a_container_describes_itself_for_the_manifest() -> None:
    client = Client(lambda call, task: in_container(task))
    site = ModalExecutor.survey(ExecutorOptions(device="auto", gpu="h100"), client)
    assert site.device == "cuda"
    assert [node.name for node in site.nodes] == ["Modal H100"]
    assert client.asked == [("describe",)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (ExecutorOptions(device="cpu", gpu="H100"), "device 'cpu' is not for Modal"),
        (ExecutorOptions(device="cuda"), "needs a GPU type. Name one with --gpu: T4, L4, A100, H100, H200, B200"),
        (ExecutorOptions(device="cuda", gpu="H10"), "GPU type 'H10'"),
    ],
)
def test_what_modal_cannot_do_is_refused_before_anything_starts(options: ExecutorOptions, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        ModalExecutor.survey(options, Client(agreeing))
    assert told in str(refused.value)


def test_without_an_account_the_program_says_how_to_get_in(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    program = [sys.executable, "-m", "torchstone"]
    for command in (["deploy", "modal", "--gpu", "T4"], ["run", "--executor", "modal", "--gpu", "T4"]):
        done = subprocess.run(
            [*program, *command], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=60, check=False
        )
        assert done.returncode == 3, done.stderr
        assert "modal token new" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_dry_run_of_deploy_shows_all_and_sends_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torchstone", "deploy", "modal", "--dry-run", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    told = json.loads(done.stdout)
    assert told["deployed"] is False
    assert set(told["functions"].values()) == set(GPUS.values())


def test_the_package_is_imported_only_when_needed() -> None:
    assert import_modal() is modal
