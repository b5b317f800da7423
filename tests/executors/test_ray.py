"""The executor `ray` on a cluster of several nodes on this machine: real Ray, real judges."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray")

from jobs import job  # noqa: E402
from ray_nodes import Nodes  # noqa: E402

from torchstone.api import Judge  # noqa: E402
from torchstone.errors import DeviceUnavailableError, InfrastructureError, UsageError  # noqa: E402
from torchstone.executors import ExecutorOptions  # noqa: E402
from torchstone.executors.local import LocalExecutor  # noqa: E402
from torchstone.executors.ray_executor import RayExecutor, RayFleet, connect  # noqa: E402
from torchstone.executors.ray_slots import find_slots, no_slot  # noqa: E402
from torchstone.executors.remote_session import RemoteSession  # noqa: E402
from torchstone.gym import Evaluator  # noqa: E402
from torchstone.schema import Job, Record, verdict_name  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def options(nodes: Nodes, gpu: str = "") -> ExecutorOptions:
    return ExecutorOptions(device="cpu", address=nodes.address, gpu=gpu)


@pytest.fixture
def nodes(request: pytest.FixtureRequest) -> Iterator[Nodes]:
    made = Nodes(getattr(request, "param", 2))
    try:
        yield made
    finally:
        with warnings.catch_warnings():  # what Ray leaves open in this process is its own affair
            warnings.simplefilter("ignore")
            ray.shutdown()
            gc.collect()
        made.close()


def verdicts(records: list[Record]) -> dict[str, str]:
    return {record.job_key: verdict_name(record.verdict) for record in records}


def locally(jobs: list[Job]) -> dict[str, str]:
    return verdicts(list(LocalExecutor(ExecutorOptions(device="cpu")).run(jobs)))


def fleet_of(session: Any) -> RayFleet:
    assert isinstance(session, RemoteSession)
    assert isinstance(session._fleet, RayFleet)
    return session._fleet


def kill_an_actor(session: Any) -> None:
    judges = [one for one in fleet_of(session)._judges.values() if one.in_hand]
    ray.kill(judges[0]._actor, no_restart=True)


def test_a_cluster_judges_like_this_machine_while_an_actor_is_killed(nodes: Nodes, tmp_path: Path) -> None:
    """The small run of CI: the program, a session, `Judge` and a refusal on one cluster, whose start takes longest."""
    kinds = ["crashes", "wrong", "raises", *["right"] * 5]
    jobs = [job(kind, number, before="import time; time.sleep(0.4)") for number, kind in enumerate(kinds)]
    notes: list[str] = []
    executor = RayExecutor(options(nodes))
    executor.report_to(notes.append)
    with pytest.raises(UsageError, match="has no meaning on a cluster"):
        RayExecutor.survey(ExecutorOptions(device="cuda:1", address=nodes.address))
    for asked, told in (
        ({"gpu": "H999"}, "no node of the Ray cluster has a GPU"),
        ({"judges_per_device": 99}, "198 CPU"),
    ):
        with pytest.raises(DeviceUnavailableError, match=told):
            RayExecutor.survey(ExecutorOptions(device="auto", address=nodes.address, **asked))
    site = RayExecutor.survey(options(nodes))
    assert site.device == "cpu"
    assert len(site.nodes) == 2, "the head has no slot"
    found: list[Record] = []
    with executor.open() as session:
        session.submit(jobs)
        session.finish()
        for _, record in session:
            found.append(record)
            if len(found) == 2:
                kill_an_actor(session)
    assert Counter(record.job_key for record in found) == Counter(each.key for each in jobs), "each exactly once"
    assert {verdict_name(r.verdict) for r in found if r.job_key == jobs[0].key} == {"crashed"}
    assert sorted(verdicts(found).values()) == sorted(["crashed", "disagrees", "crashed", *["agrees"] * 5])
    assert max(record.attempts for record in found) <= 2
    assert any("tried again" in note for note in notes), "the fault is told"
    assert all("(Ray " in record.node and record.device_model for record in found)

    command = [sys.executable, "-m", "torchstone", "run", "--executor", "ray", "--ray-address", nodes.address]
    chosen = ["--device", "cpu", "--ops", "relu,add.Tensor", "--no-measure", "--effort", "quick", "--json"]
    program = subprocess.run(
        [*command, *chosen, "--output-dir", str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert program.returncode == 0, program.stderr
    (folder,) = tmp_path.iterdir()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert len(manifest["nodes"]) == 2
    refused = subprocess.run([*command, "--gpu", "H999"], capture_output=True, text=True, timeout=120, check=False)
    assert refused.returncode == 3
    assert "error: no node of the Ray cluster has a GPU. Add one, or run with --device cpu" in refused.stderr
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    assert all("(Ray " in record["node"] for record in records if record.get("kind") == "record")


def test_a_cluster_that_is_not_there_is_named() -> None:
    with pytest.raises(InfrastructureError, match=r"no Ray cluster answers at '127.0.0.1:1'.*ray start --head"):
        RayExecutor.survey(ExecutorOptions(device="cpu", address="127.0.0.1:1"))


@pytest.mark.parametrize("nodes", [0], indirect=True)
def test_another_cluster_than_the_one_that_the_program_uses_is_refused(nodes: Nodes) -> None:
    connect(nodes.address)
    port = nodes.address.rpartition(":")[2]
    for same in ("auto", nodes.address, f"localhost:{port}"):
        connect(same)
    for other in ("127.0.0.1:1", f"192.0.2.1:{port}"):
        with pytest.raises(UsageError, match=rf"'{other}' is asked for, .* at '{nodes.address}'\. Use that address"):
            connect(other)


def test_a_slot_is_a_gpu_or_a_group_of_cores_and_types_choose_nodes() -> None:
    def node(number: int, alive: bool = True, **resources: float) -> dict[str, Any]:
        listed = {"NodeID": str(number) * 40, "Alive": alive, "NodeManagerHostname": f"host{number}"}
        return {**listed, "Resources": {name.replace("_type_", "_type:"): n for name, n in resources.items()}}

    cluster = [
        node(1, CPU=8.0, GPU=2.0, accelerator_type_H100=1.0),
        node(2, CPU=8.0, GPU=1.0, accelerator_type_A100=1.0),
        node(3, CPU=2.0),
        node(4, alive=False, CPU=64.0, GPU=8.0),
    ]

    def hosts(**options: Any) -> list[str]:
        return [slot.host for slot in find_slots(cluster, ExecutorOptions(**options))]

    assert hosts(device="cuda") == ["host1", "host2", "host1"], "in turn, and never a node that is gone"
    assert hosts(device="cuda", gpu="h100") == ["host1", "host1"]
    assert hosts(device="cuda", gpu="T4") == []
    assert Counter(hosts(device="cpu")) == {"host1": 4, "host2": 4, "host3": 1}
    assert Counter(hosts(device="cpu", threads=3)) == {"host1": 2, "host2": 2}
    assert no_slot(cluster, ExecutorOptions(device="cuda", gpu="H999")) == (
        "no node of the Ray cluster has a GPU of type H999. It has: A100 (1), H100 (2). Choose one with --gpu."
    )
    assert "no node of the Ray cluster has a GPU. Add one" in no_slot(cluster[2:], ExecutorOptions(device="cuda"))
    assert no_slot(cluster, ExecutorOptions(device="cpu", judges_per_device=8)) == (
        "a slot with --judges 8 and --threads 1 needs 16 CPU cores on one node of the Ray cluster; its largest node "
        "offers 8. Ask for fewer judges or threads, or add a node."
    )


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [3], indirect=True)
def test_three_hundred_jobs_survive_nodes_and_actors_that_come_and_go(nodes: Nodes) -> None:
    kinds = [("hangs", 40), ("crashes", 12), ("wrong", 7), ("raises", 9)]
    named = [next((kind for kind, every in kinds if n % every == 5), "right") for n in range(300)]
    jobs = [job(kind, number) for number, kind in enumerate(named)]
    expected = locally(jobs)
    found: list[Record] = []
    executor = RayExecutor(options(nodes))
    with executor.open() as session:
        session.submit(jobs)
        session.finish()
        for _, record in session:
            found.append(record)
            if len(found) == 60:
                nodes.remove()
            elif len(found) == 120:
                nodes.add()
            elif len(found) == 180:
                kill_an_actor(session)
    assert Counter(record.job_key for record in found) == Counter(each.key for each in jobs)
    assert verdicts(found) == expected
    assert len({record.node for record in found}) == 4, "the node that joined judged too"
    assert {name: list(expected.values()).count(name) for name in ("timed_out", "crashed")} != {}


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1], indirect=True)
def test_throughput_grows_with_nodes(nodes: Nodes) -> None:
    def seconds(first: int) -> float:
        jobs = [job("right", first + n, before="import time; time.sleep(2)") for n in range(18)]
        began = None
        with RayExecutor(options(nodes)).open() as session:
            session.submit(jobs)
            session.finish()
            for count, _ in enumerate(session, 1):
                if count == 3:
                    began = time.monotonic()  # all judges have started
        assert began is not None
        return time.monotonic() - began

    alone = seconds(0)
    nodes.add()
    nodes.add()
    together = seconds(1000)
    print(f"15 jobs of 2 s: {alone:.1f} s on one node, {together:.1f} s on three")
    assert alone / together > 1.8


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2], indirect=True)
def test_jobs_go_to_nodes_of_the_type_that_was_asked_for(nodes: Nodes) -> None:
    wanted = nodes.add(**{"accelerator_type:H100": 1.0})
    records = list(RayExecutor(options(nodes, gpu="H100")).run([job("right", number) for number in range(6)]))
    assert {record.node.partition("(Ray ")[2][:8] for record in records} == {wanted[:8]}


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2], indirect=True)
def test_two_runs_share_a_cluster(nodes: Nodes) -> None:
    program = (
        "import sys; sys.path[:0] = ['tests/executors']\n"
        "from jobs import job\n"
        "from torchstone.executors import ExecutorOptions\n"
        "from torchstone.executors.ray_executor import RayExecutor\n"
        "options = ExecutorOptions(device='cpu', address=sys.argv[1])\n"
        "jobs = [job('right', int(sys.argv[2]) + n, before='import time; time.sleep(1)') for n in range(20)]\n"
        "for record in RayExecutor(options).run(jobs): print(record.node, flush=True)\n"
    )

    def run(first: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", program, nodes.address, str(first)], stdout=subprocess.PIPE, text=True
        )

    one = run(0)
    assert one.stdout is not None
    one.stdout.readline()  # it has begun, alone on both nodes
    two = run(100)
    assert two.stdout is not None
    two.stdout.readline()
    assert one.poll() is None, "the second run got a slot while the first still has work"
    assert len([*one.stdout, *two.stdout]) == 38
    assert (one.wait(60), two.wait(60)) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2], indirect=True)
def test_a_judge_of_the_python_api_works_on_a_cluster(nodes: Nodes) -> None:
    with Judge(executor="ray", ray_address=nodes.address, device="cpu", effort="quick") as judge:
        found = judge.check("def relu_kernel_impl(x): return x.clamp(min=0)", "aten.relu.default", shapes="stated")
    assert found.correctness == 1.0
    assert all("(Ray " in record.node for record in found.records)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2], indirect=True)
def test_rollouts_are_rewarded_on_a_cluster_from_a_head_without_a_slot(nodes: Nodes) -> None:
    texts = [f"def relu_kernel_impl(x):\n    return x.clamp(min={lower})  # {n}" for n in range(6) for lower in (0, 1)]
    fields: dict[str, Any] = {"executor": "ray", "ray_address": nodes.address, "device": "cpu", "measured": False}
    with Evaluator(ops=("relu",), shapes="stated", **fields) as evaluator:
        assert len(evaluator.judge.site.nodes) == 2
        results = evaluator.turns_now([(f"```python\n{text}\n```", "relu") for text in texts])
        found = asyncio.run(evaluator.evaluate(texts[0], "relu"))
    assert [result.verdict for result in results] == ["agrees", "disagrees"] * 6
    assert [result.reward == 0.3 for result in results] == [True, False] * 6
    assert all("(Ray " in record.node for record in found.records)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2], indirect=True)
def test_an_interrupted_run_on_a_cluster_is_resumed(nodes: Nodes, tmp_path: Path) -> None:
    base = [sys.executable, "-m", "torchstone", "run", "--executor", "ray", "--ray-address", nodes.address]
    more = ["--device", "cpu", "--no-measure", "--effort", "quick", "--shapes", "stated", "--run-id", "r", "-v"]
    command = [*base, *more, "--output-dir", str(tmp_path)]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    journal = tmp_path / "r" / "records.jsonl"
    until = time.monotonic() + 60
    while (not journal.exists() or journal.read_text().count("\n") < 5) and time.monotonic() < until:
        time.sleep(0.1)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    assert first.returncode == 130
    done = journal.read_text().count("\n")
    second = subprocess.run([*command, "--resume", "--json"], capture_output=True, text=True, timeout=300, check=False)
    assert second.returncode == 0, second.stderr
    keys = [json.loads(line)["job_key"] for line in journal.read_text().splitlines() if "job_key" in line]
    assert len(keys) == len(set(keys)) > done // 2
