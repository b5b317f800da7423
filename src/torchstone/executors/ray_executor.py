"""A Ray cluster: one actor for each GPU or group of CPU cores, which owns a judge like that of this machine.

The driver plans and feeds; it needs no device. Actors come and go with their nodes: a lost job is tried again on
another one (``remote_session.py``). Several runs share a cluster by slots (``slot_ledger.py``).
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import msgspec

from torchstone.errors import DeviceUnavailableError, InfrastructureError, MissingExtraError, UsageError
from torchstone.executors.base import ExecutorOptions, Session, run_in
from torchstone.executors.node_judge import NodeJudge, ask_here, described, packed_options
from torchstone.executors.remote_session import RemoteJudge, RemoteSession
from torchstone.executors.site import Site, differences, require_alike, require_one_type
from torchstone.executors.slot_ledger import SlotLedger
from torchstone.executors.versions import software
from torchstone.schema import Job, Node, Record, decode

_NAMESPACE = "torchstone"
_LEDGER = "torchstone-slots"
_CONNECT_SECONDS = 10.0
_SURVEY_SECONDS = 120.0
"""For the answers of all nodes: one that is new starts a Python process first."""
_START_SECONDS = 300.0
"""For an actor to be ready: it may wait for a GPU that other programs of the cluster use."""
_POLL_SECONDS = 1.0
_KEEP_SECONDS = 15.0
"""An actor without a job for this long gives its slot back, while others of the run still have some."""
_REST_SECONDS = 10.0
"""A slot whose actor was lost is tried again after this time, so that its jobs go elsewhere first."""
_TYPE_PREFIX = "accelerator_type:"
"""Of the resource by which Ray names the type of a node's GPUs."""


class RayExecutor:
    """Judges on the nodes of a Ray cluster (extra `ray`)."""

    def __init__(self, options: ExecutorOptions) -> None:
        self._options = options
        self._tell: Callable[[str], None] = lambda message: None

    @staticmethod
    def survey(options: ExecutorOptions) -> Site:
        """Ask every node what it is; raises where nodes cannot judge together."""
        ray = connect(options.address)
        device = _device_on(ray, options)
        slots = find_slots(ray.nodes(), msgspec.structs.replace(options, device=device))
        if not slots:
            raise DeviceUnavailableError(_no_slot(device, options.gpu))
        nodes = _described(ray, slots)
        require_alike(nodes, software())
        if device == "cuda":
            require_one_type(nodes, options.gpu)
        return Site(device, nodes, lambda module, text: _ask(ray, slots[0], device, module, text))

    def report_to(self, tell: Callable[[str], None]) -> None:
        """Who wants to know which nodes come and go."""
        self._tell = tell

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        """Judge every job. Closing the iterator ends every actor."""
        listed = tuple(jobs)
        if listed:
            yield from run_in(self.open(), listed)

    def open(self) -> Session:
        """Actors that start when there is work, and stay."""
        return RemoteSession(RayFleet(connect(self._options.address), self._options, self._tell), self._options)


def connect(address: str) -> Any:
    """The module `ray`, connected to the cluster."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("--executor ray needs Ray. Install it: pip install 'torchstone[ray]'.") from error
    if not ray.is_initialized():
        try:
            _require_listener(address)
            ray.init(address=address, namespace=_NAMESPACE, log_to_driver=False, configure_logging=False)
        except (OSError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InfrastructureError(
                f"no Ray cluster answers at '{address}' ({reason}). Start one with 'ray start --head', or name another."
            ) from error
    return ray


def _require_listener(address: str) -> None:
    """Raise at once where nobody listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "://" not in host:
        with socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS):
            pass


class Slot(NamedTuple):
    """A place for one judge: a GPU, or a group of cores."""

    key: str
    """``<node>/<number>``."""
    node_id: str
    host: str
    number: int
    """Among the slots of its node."""
    of: int
    resources: tuple[tuple[str, float], ...]
    """What its actor asks of Ray, as options of an actor."""

    @property
    def node_name(self) -> str:
        """As records name it. Several nodes of Ray may run on one machine."""
        return f"{self.host} (Ray {self.node_id[:8]})"


def find_slots(nodes: Sequence[Any], options: ExecutorOptions) -> list[Slot]:
    """The slots of the nodes that live, one node after another in turn."""
    found = [_slots_of(node, options) for node in nodes if node["Alive"]]
    return [slot for slots in itertools.zip_longest(*found) for slot in slots if slot is not None]


def _slots_of(node: Any, options: ExecutorOptions) -> list[Slot]:
    resources = node.get("Resources", {})
    if options.gpu and not _has_type(resources, options.gpu):
        return []
    cores = resources.get("CPU", 0.0)
    wanted: dict[str, float] = {"num_cpus": (1 + options.threads) * options.judges_per_device}
    if options.device == "cpu":
        count = int(cores // wanted["num_cpus"])
    else:
        count, wanted = int(resources.get("GPU", 0.0)), {"num_gpus": 1, "num_cpus": 0}
    host, node_id = node.get("NodeManagerHostname") or node["NodeID"][:8], node["NodeID"]
    options_of_actor = tuple(wanted.items())
    return [Slot(f"{node_id}/{n}", node_id, host, n, count, options_of_actor) for n in range(count)]


def _has_type(resources: Iterable[str], gpu: str) -> bool:
    """Ray says ``H100`` or ``A100-80G``; a name matches its beginning."""
    names = (name.removeprefix(_TYPE_PREFIX) for name in resources if name.startswith(_TYPE_PREFIX))
    return any(name.lower().startswith(gpu.lower()) for name in names)


def _no_slot(device: str, gpu: str) -> str:
    if device == "cpu":
        return "no node of the Ray cluster has a free group of CPU cores. Add a node, or ask for fewer --threads."
    of_type = f" of type {gpu}" if gpu else ""
    return f"no node of the Ray cluster has a GPU{of_type}. Add one, or run with --device cpu."


def _device_on(ray: Any, options: ExecutorOptions) -> str:
    """``cpu`` or ``cuda``: which of a node's GPUs a judge gets is Ray's affair."""
    if options.device not in ("auto", "cpu", "cuda"):
        raise UsageError(
            f"device '{options.device}' has no meaning on a cluster. Use auto, cpu or cuda, and --gpu TYPE."
        )
    if options.device != "auto":
        return options.device
    as_gpus = msgspec.structs.replace(options, device="cuda")
    return "cuda" if find_slots(ray.nodes(), as_gpus) else "cpu"


def _described(ray: Any, slots: Sequence[Slot]) -> tuple[Node, ...]:
    """Each node once, as it describes itself."""
    first = list({slot.node_id: slot for slot in slots}.values())
    task = ray.remote(num_cpus=0, max_retries=1)(described)
    asked = [task.options(scheduling_strategy=_on(slot)).remote() for slot in first]
    answers: list[Node] = []
    for slot, reference in zip(first, asked, strict=True):
        try:
            answers.append(decode(ray.get(reference, timeout=_SURVEY_SECONDS), Node))
        except Exception as error:
            raise InfrastructureError(
                f"node {slot.node_name} cannot judge ({_reason(error)}). Install the same Torchstone on every node."
            ) from error
    return tuple(sorted(answers, key=lambda node: node.name))


def _ask(ray: Any, slot: Slot, device: str, module: str, text: str) -> str:
    resources = dict(slot.resources) if device == "cuda" else {"num_cpus": 0}
    task = ray.remote(max_retries=0, **resources)(ask_here)
    try:
        return str(ray.get(task.options(scheduling_strategy=_on(slot)).remote(module, text)))
    except Exception as error:
        raise InfrastructureError(f"node {slot.node_name} could not prepare the cases ({_reason(error)}).") from error


def _on(slot: Slot) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id=slot.node_id, soft=False)


def _reason(error: BaseException) -> str:
    """The last line of an error of Ray's, which holds a whole traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    return f"{type(error).__name__}: {lines[-1][:300]}"


class RayJudge:
    """One actor, as the session sees it."""

    def __init__(self, ray: Any, slot: Slot, options: ExecutorOptions) -> None:
        self._ray = ray
        self.slot = slot
        self.name = f"{slot.node_name}, slot {slot.number}"
        self.width = options.judges_per_device
        self.started_at = time.monotonic()
        self.in_hand = 0
        self._idle_since = self.started_at
        self.admitted = False
        """Whether its node has been found to be like the others."""
        own = msgspec.structs.replace(options, node=slot.node_name)
        if options.device == "cpu":
            own = msgspec.structs.replace(own, slots=slot.of, slot=slot.number)
        actor = ray.remote(
            max_restarts=0,  # who replaces it, and where, is the fleet's affair
            max_task_retries=0,  # a job that was lost may be the cause: the session counts
            max_concurrency=self.width + 1,
            scheduling_strategy=_on(slot),
            **dict(slot.resources),
        )(NodeJudge)
        self._actor = actor.remote(packed_options(own))
        self.description: Future[str] = self._actor.describe.remote().future()

    def judge(self, jobs: str) -> Future[str]:
        self.in_hand += 1
        answer: Future[str] = self._actor.judge.remote(jobs).future()
        answer.add_done_callback(self._answered)
        return answer

    def _answered(self, done: Future[str]) -> None:
        self.in_hand -= 1
        self._idle_since = time.monotonic()

    def is_kept(self, now: float) -> bool:
        """Whether it is busy, or was not long ago."""
        return self.in_hand > 0 or now - self._idle_since < _KEEP_SECONDS

    def end(self) -> None:
        """Kill the actor. Its judge ends with the pipe that the actor held, and every worker with the judge."""
        with contextlib.suppress(Exception):
            self._ray.kill(self._actor, no_restart=True)


class RayFleet:
    """The actors of one run. See `Fleet`."""

    most_jobs = 1

    def __init__(self, ray: Any, options: ExecutorOptions, tell: Callable[[str], None]) -> None:
        self._ray, self._options, self._tell = ray, options, tell
        self._run = secrets.token_hex(8)
        self._here = software()
        self._first: Node | None = None
        self._judges: dict[str, RayJudge] = {}
        """By slot: starting or ready."""
        self._ready: list[RayJudge] = []
        self._rests: dict[str, float] = {}
        self._refused: dict[str, str] = {}
        """Nodes that cannot judge, and why."""
        self._hosts: dict[str, str] | None = None
        self._last_fault = ""
        self._poll_at = 0.0
        self._known_ledger: Any = None

    def judges(self, wanted: int) -> Sequence[RemoteJudge]:
        now = time.monotonic()
        if now >= self._poll_at:
            self._poll_at = now + _POLL_SECONDS
            self._look(wanted)
        self._welcome(now)
        return self._ready

    def lost(self, judge: RemoteJudge, why: str) -> None:
        assert isinstance(judge, RayJudge)
        self._last_fault = why
        if self._judges.get(judge.slot.key) is judge:
            self._let_go(judge)
            self._rests[judge.slot.key] = time.monotonic() + _REST_SECONDS
            self._tell(f"{why}; its job is tried again")
        self._poll_at = 0.0

    def obstacle(self) -> str:
        told = [self._last_fault, *self._refused.values()]
        return "; ".join(filter(None, told)) or "no slot of the cluster is free"

    def close(self) -> None:
        for judge in tuple(self._judges.values()):
            self._let_go(judge)
        with contextlib.suppress(Exception):
            self._ray.get(self._ledger().poll.remote(self._run, [], [], 0), timeout=2.0)

    # ---- slots

    def _look(self, wanted: int) -> None:
        """Which slots there are, and which of them this run may use."""
        slots = {slot.key: slot for slot in self._usable_slots()}
        for key in self._judges.keys() - slots.keys():  # its node is gone; what it had in hand will say so
            if not self._judges[key].in_hand:
                self._let_go(self._judges[key])
        now = time.monotonic()
        needed = -(-wanted // self._options.judges_per_device) if wanted >= 0 else 0
        # Without work they stay for a while, unless another run needs them: to start one takes seconds.
        kept = sum(not wanted or judge.is_kept(now) for judge in self._judges.values()) if wanted >= 0 else 0
        count = max(needed, kept)
        granted = set(self._granted(list(slots), count))
        for key, judge in list(self._judges.items()):
            if key in slots and key not in granted:
                if judge in self._ready:
                    self._ready.remove(judge)  # no more jobs: another run has a right to its slot
                if not judge.in_hand:
                    self._let_go(judge)
        for key in granted - self._judges.keys():
            self._judges[key] = RayJudge(self._ray, slots[key], self._options)

    def _usable_slots(self) -> list[Slot]:
        now = time.monotonic()
        found = find_slots(self._ray.nodes(), self._options)
        hosts = {slot.node_id: slot.node_name for slot in found}
        if self._hosts is not None:
            for node_id in hosts.keys() - self._hosts.keys():
                self._tell(f"node {hosts[node_id]} joined")
            for node_id in self._hosts.keys() - hosts.keys():
                self._tell(f"node {self._hosts[node_id]} is gone")
        self._hosts = hosts
        return [s for s in found if s.node_id not in self._refused and self._rests.get(s.key, 0.0) <= now]

    def _granted(self, slots: list[str], wanted: int) -> list[str]:
        """What the ledger grants; without an answer everything stays as it is."""
        held = sorted(self._judges, key=lambda key: not self._judges[key].admitted)  # what works is given up last
        try:
            asked = self._ledger().poll.remote(self._run, slots, held, max(0, wanted))
            return list(self._ray.get(asked, timeout=5.0))
        except Exception:  # noqa: BLE001 - the run that had started it has ended: the next question starts another
            self._known_ledger = None
            return held

    def _ledger(self) -> Any:
        """Whichever run came first starts it. It lives as long as that run has this handle."""
        if self._known_ledger is None:
            actor = self._ray.remote(num_cpus=0, max_restarts=0)(SlotLedger)
            self._known_ledger = actor.options(name=_LEDGER, namespace=_NAMESPACE, get_if_exists=True).remote()
        return self._known_ledger

    # ---- actors

    def _welcome(self, now: float) -> None:
        """Actors that have said what machine they are on."""
        for judge in [one for one in self._judges.values() if not one.admitted]:
            if judge.description.done():
                self._admit(judge)
            elif now - judge.started_at > _START_SECONDS:
                self.lost(judge, f"{judge.name}: the actor did not start within {_START_SECONDS:g} s")

    def _admit(self, judge: RayJudge) -> None:
        error = judge.description.exception()
        if error is not None:
            self.lost(judge, f"{judge.name}: the actor did not start ({_reason(error)})")
            return
        node = decode(judge.description.result(), Node)
        self._first = self._first or node
        problems = differences(node, self._here, self._first)
        if problems:
            self._refused[judge.slot.node_id] = problems[0]
            self._tell(f"node {judge.slot.node_name} is left out: {'; '.join(problems)}")
            self._let_go(judge)
            return
        judge.admitted = True
        self._ready.append(judge)

    def _let_go(self, judge: RayJudge) -> None:
        judge.end()
        self._judges.pop(judge.slot.key, None)
        if judge in self._ready:
            self._ready.remove(judge)
