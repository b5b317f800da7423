"""What the service answers, over the protocol but without a process: one warm judge for all tests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

import anyio
from mcp import Client
from mcp.types import CallToolResult

from feedback.test_feedback import ALLOWED, structs_in
from made_records import AGREES, case
from serving.kernels import RELU, RELU_THAT_HANGS, RELU_WRONG_ON_NAN
from serving.test_mcp_program import fields_of, text_of, wait_until
from torchstone import errors
from torchstone.api import Judge, as_implementation
from torchstone.cli import main
from torchstone.executors import FakeExecutor, FakeSession
from torchstone.feedback import FeedbackInfo, feedback_of
from torchstone.schema import Job, Verdict
from torchstone.serving import Explanation, GivenKernel, JobAnswer, KernelService, ProfileAnswer, ServiceOptions
from torchstone.serving.jobs import MOST_JOBS, JudgingJob, KernelOnCases
from torchstone.serving.mcp_server import server_for


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelService]:
    options = ServiceOptions(device="cpu", profile_dir=tmp_path_factory.mktemp("profiles"))
    with KernelService(options) as made:
        yield made


def call(service: KernelService, tool: str, **arguments: Any) -> CallToolResult:
    async def ask() -> CallToolResult:
        async with Client(server_for(service)) as client:
            return await client.call_tool(tool, arguments)

    return anyio.run(ask)


def test_every_tool_and_parameter_is_described(service: KernelService) -> None:
    async def ask() -> Any:
        async with Client(server_for(service)) as client:
            return (await client.list_tools()).tools

    tools = anyio.run(ask)
    assert [tool.name for tool in tools] == [
        "list_operators", "list_cases", "check_kernel", "measure_kernel", "start_job", "job_progress", "cancel_job",
        "explain_record", "profile_kernel",
    ]  # fmt: skip
    assert all(tool.description and len(tool.description) < 200 for tool in tools)


def test_operators_and_cases_are_listed(service: KernelService) -> None:
    operators = call(service, "list_operators", contains="relu")
    assert fields_of(operators)["operators"][0] == {"operator": "aten.relu.default", "cases": 6, "timed_cases": 1}
    cases = fields_of(call(service, "list_cases", operator="relu"))["cases"]
    assert [case["timed"] for case in cases].count(True) == 1
    assert any("offset=3" in case["arguments"] for case in cases)


def test_an_answer_holds_the_fields_of_feedback_and_names_of_records_and_nothing_else() -> None:
    own = {
        "JobAnswer": {
            "job", "state", "done_cases", "total_cases", "elapsed_seconds", "seconds_left", "wrong_cases", "error",
            "kernels",
        },
        "KernelAnswer": {"operator", "where", "feedback", "records"},
        "RecordName": {"record", "operator", "arguments", "right"},
        "Explanation": {"record", "operator", "arguments", "feedback"},
        "ProfileAnswer": {
            "operator", "arguments", "profiler", "status", "sandboxed", "folder", "work", "notice",
        },
    }  # fmt: skip
    told = (JobAnswer, Explanation, ProfileAnswer)
    found = {kind.__name__: set(kind.__struct_fields__) for each in told for kind in structs_in(each)}
    assert found == {**ALLOWED, **own}


def test_a_job_tells_how_far_it_is_and_then_what_came_of_each_kernel(service: KernelService) -> None:
    given = [{"operator": "relu", "source": RELU}, {"operator": "relu", "source": RELU_WRONG_ON_NAN}]
    started = fields_of(call(service, "start_job", kernels=given, purpose="check", effort="quick"))
    assert (started["state"], started["total_cases"], started["kernels"]) == ("running", 12, [])
    ended = call(service, "job_progress", job=started["job"], wait_seconds=60)
    fields = fields_of(ended)
    assert (fields["state"], fields["done_cases"]) == ("finished", 12)
    right, wrong = fields["kernels"]
    assert right["feedback"]["right"]
    assert not wrong["feedback"]["right"]
    assert fields["wrong_cases"] == sum(not record["right"] for record in wrong["records"])
    job = service.job(started["job"])
    records = [record for record, source in job.records if source is not None and "where" in source.files[0].text]
    assert msgspec.convert(wrong["feedback"], FeedbackInfo) == feedback_of(records)


def test_a_judgement_that_takes_long_becomes_a_job_that_can_be_cancelled(service: KernelService) -> None:
    begun = time.monotonic()
    hanging = {"operator": "relu", "source": RELU_THAT_HANGS, "limit_seconds": 2}
    answer = fields_of(call(service, "check_kernel", **hanging, wait_seconds=0.3))
    assert time.monotonic() - begun < 10
    assert answer["state"] == "running"
    cancelled = fields_of(call(service, "cancel_job", job=answer["job"]))
    assert cancelled["state"] == "cancelled"
    again = fields_of(call(service, "check_kernel", operator="relu", source=RELU, wait_seconds=100))
    assert again["kernels"][0]["feedback"]["right"]


def test_a_client_that_gives_up_withdraws_its_kernel(service: KernelService) -> None:
    async def ask() -> None:
        async with Client(server_for(service)) as client:
            with anyio.move_on_after(0.5):
                hanging = {"operator": "relu", "source": RELU_THAT_HANGS, "limit_seconds": 1}
                await client.call_tool("check_kernel", hanging)

    anyio.run(ask)
    assert wait_until(lambda: next(iter(service.jobs())).answer().state == "cancelled")


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("check_kernel", {"operator": "rleu", "source": RELU}, "Did you mean 'relu'?"),
        ("check_kernel", {"operator": "relu"}, "give either the kernel's source or its path"),
        ("check_kernel", {"operator": "relu", "source": RELU, "path": "relu.py"}, "not both"),
        ("check_kernel", {"operator": "relu", "path": "/nowhere/relu.py"}, "cannot be read"),
        ("check_kernel", {"operator": "relu", "source": RELU, "effort": "huge"}, "effort"),
        ("measure_kernel", {"operator": "expand", "source": RELU}, "no case of expand is timed"),
        ("start_job", {"kernels": []}, "a job takes 1 to 64"),
        ("start_job", {"kernels": [{"source": RELU}]}, "a kernel of the job is not valid"),
        ("job_progress", {"job": "none"}, "there is no job 'none'"),
        ("explain_record", {"record": "ffffffff"}, "there is no record 'ffffffff'"),
        ("explain_record", {"record": "f"}, "too short"),
        ("explain_record", {"record": "ffffffff", "run_folder": "nowhere"}, "nowhere"),
        ("list_operators", {"suite": "smoek"}, "Did you mean 'smoke'?"),
        ("profile_kernel", {"operator": "relu", "source": RELU, "profiler": "nsys"}, "--allow-unsandboxed-profilers"),
        ("profile_kernel", {"operator": "relu", "source": RELU, "profiler": "ncu"}, "outside the sandbox"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_an_error_in_one_line(
    service: KernelService, tool: str, arguments: dict[str, Any], told: str
) -> None:
    answer = call(service, tool, **arguments)
    assert answer.is_error
    assert told in text_of(answer)
    assert "Traceback" not in text_of(answer)


def test_the_sandboxed_profiler_may_be_used_on_any_kernel(service: KernelService) -> None:
    answer = call(service, "profile_kernel", operator="relu", source=RELU)
    fields = fields_of(answer)
    assert (fields["profiler"], fields["status"]) == ("torch", "profiled")
    assert "aten::clamp" in text_of(answer)
    assert Path(fields["folder"], "profile.json").exists()


def test_a_server_that_allows_it_asks_the_other_profilers(tmp_path: Path) -> None:
    options = ServiceOptions(device="cpu", profile_dir=tmp_path, allow_unsandboxed_profilers=True)
    with KernelService(options) as allowing:
        answer = allowing.profile(GivenKernel("relu", source=RELU), profiler="ncu")
    assert answer.status in ("absent", "unavailable")  # a CPU has nothing for it to see


def test_a_record_of_a_run_folder_is_explained(
    service: KernelService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kernels" / "relu").mkdir(parents=True)
    (tmp_path / "kernels" / "relu" / "relu.py").write_text(RELU_WRONG_ON_NAN)
    asked = [
        "run",
        "--backend",
        "directory",
        "--kernels-dir",
        str(tmp_path / "kernels"),
        "--ops",
        "relu",
        "--no-measure",
    ]
    where = ["--device", "cpu", "--effort", "quick", "--output-dir", str(tmp_path / "runs"), "--json"]
    assert main([*asked, *where]) == 1
    run = json.loads(capsys.readouterr().out)
    record = next(each for each in run["failures"] if each["case"] == "T([7, 129], f16)")
    answer = call(service, "explain_record", record=record["job_key"][:8], run_folder=run["run_folder"])
    assert "expected NaN, where self = NaN" in text_of(answer)
    _require_that_a_prefix_of_two_is_refused(service, Path(run["run_folder"]), [f["job_key"] for f in run["failures"]])


def _require_that_a_prefix_of_two_is_refused(service: KernelService, folder: Path, keys: list[str]) -> None:
    first, second = "abcd1", "abcd1" + keys[1]
    journal = folder / "records.jsonl"
    journal.write_text(journal.read_text().replace(keys[0], first).replace(keys[1], second))
    refused = call(service, "explain_record", record="abcd", run_folder=str(folder))
    assert refused.is_error
    assert "'abcd' fits 2 records: " in text_of(refused)
    assert all(f"{key} (aten.relu.default, T([" in text_of(refused) for key in (first, second))
    assert "Give more characters of the key." in text_of(refused)
    for given, meant in ((first, first), ("abcd1" + keys[1][0], second)):
        assert service.explain(given, str(folder)).record == meant


def test_texts_keep_to_the_tokens_that_the_server_allows(tmp_path: Path) -> None:
    with KernelService(ServiceOptions(device="cpu", feedback_tokens=100)) as short:
        job = short.start([GivenKernel("relu", source=RELU_WRONG_ON_NAN)], "check", effort="quick")
        assert wait_until(lambda: job.is_over, 60)
        answer = job.answer()
    text = answer.to_text(100)
    assert len(text) < len(answer.to_text(None))
    assert "cut to the allowed length" in text


class BrokenExecutor(FakeExecutor):
    """Fails in a way that no one foresaw."""

    def open(self) -> FakeSession:
        raise OSError("no more processes")


def test_a_job_fails_if_its_kernels_cannot_be_handed_over() -> None:
    with Judge(device="cpu", executor=BrokenExecutor(lambda job: AGREES)) as judge:
        job = _started(judge)
        assert wait_until(lambda: job.is_over)
    assert job.answer().state == "failed"
    assert job.answer().error == "the kernels cannot be handed to the judge (OSError: no more processes)."


def test_a_job_fails_if_its_judge_is_closed() -> None:
    judging, closed = threading.Event(), threading.Event()

    def decide(job: Job) -> Verdict:
        judging.set()
        closed.wait(5)
        return AGREES

    with Judge(device="cpu", executor=FakeExecutor(decide)) as judge:
        job = _started(judge)
        assert judging.wait(5)
        threading.Timer(0.1, closed.set).start()
    assert wait_until(lambda: job.is_over)
    assert (job.answer().state, job.answer().done_cases) == ("failed", 0)
    assert job.answer().error == "the judge was closed before it had judged every case."


def _started(judge: Judge) -> JudgingJob:
    one = case()
    kernel = KernelOnCases(as_implementation(RELU, one.operator), (one,), "source text")
    job = JudgingJob([kernel], "check", {})
    job.start(judge)
    return job


def test_the_oldest_jobs_are_forgotten_once_they_have_ended(service: KernelService) -> None:
    first = service.start([GivenKernel("relu", source=RELU)], "check", effort="quick")
    first.cancel()
    for _ in range(MOST_JOBS):
        service.start([GivenKernel("relu", source=RELU)], "check", effort="quick").cancel()
    with pytest.raises(errors.UsageError, match="there is no job"):
        service.job(first.key)
