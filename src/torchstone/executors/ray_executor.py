"""Executor `ray`: an actor for each GPU or group of CPU cores of a Ray cluster, each with one or more judges.

The driver plans and sends jobs; it needs no device. Actors start and end with their nodes: a lost job is tried again on
another one (``remote_session.py``). Several runs share a cluster by slots (``slot_ledger.py``).
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec

from torchstone.errors import DeviceUnavailableError, InfrastructureError, MissingExtraError, UsageError
from torchstone.executors.base import ExecutorOptions, Session, run_in
from torchstone.executors.judge_site import Site, differences, exposed_to_ray, require_alike, require_one_type
from torchstone.executors.node_judge import NodeJudge, ask_here, described, packed_options
from torchstone.executors.ray_slots import Slot, find_slots, no_slot
from torchstone.executors.remote_session import RemoteJudge, RemoteSession
from torchstone.executors.slot_ledger import SlotLedger
from torchstone.executors.versions import software
from torchstone.schema import Job, Node, Record, decode

_NAMESPACE = "torchstone"
_LEDGER = "torchstone-slots"
_CONNECT_SECONDS = 10.0
_SURVEY_SECONDS = 120.0
"""Longest wait for each node's description: a new node starts a Python process first."""
_START_SECONDS = 300.0
"""Longest time until an actor is ready: it may wait for a GPU that other programs of the cluster use."""
_POLL_SECONDS = 1.0
"""Time between two polls of the slot ledger."""
_KEEP_SECONDS = 15.0
"""An actor without a job for this long gives up its slot, while other actors of the run still have jobs."""
_REST_SECONDS = 10.0
"""A slot whose actor was lost is used again after this time, so that its jobs go to other slots first."""


class RayExecutor:
    """Judges on the nodes of a Ray cluster (extra `ray`)."""

    def __init__(self, options: ExecutorOptions) -> None:
        self._options = options
        self._tell: Callable[[str], None] = lambda message: None

    @staticmethod
    def survey(options: ExecutorOptions) -> Site:
        """Request a description of every node. Raises if the nodes cannot judge together."""
        ray = connect(options.address)
        device = _device_on(ray, options)
        options = msgspec.structs.replace(options, device=device)
        slots = find_slots(ray.nodes(), options)
        if not slots:
            raise DeviceUnavailableError(no_slot(ray.nodes(), options))
        nodes = _described(ray, slots, device.partition(":")[0])
        require_alike(nodes, software())
        if device == "cuda":
            require_one_type(nodes, options.gpu)
        ask = partial(_ask, ray, slots[0], device)
        return Site(device, nodes, ask, exposed_to_ray(nodes) if options.isolation == "best" else ())

    def report_to(self, tell: Callable[[str], None]) -> None:
        """Call this function with a message when nodes join or leave, or jobs are lost."""
        self._tell = tell

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        """Judge every job. Closing the iterator ends every actor."""
        listed = tuple(jobs)
        if listed:
            yield from run_in(self.open(), listed)

    def open(self) -> Session:
        """Open a session. Its actors start when there is work, and stay."""
        return RemoteSession(RayFleet(connect(self._options.address), self._options, self._tell), self._options)


def connect(address: str) -> Any:
    """Import the module `ray`, connect it to the cluster, and return it."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("--executor ray needs Ray. Install it: pip install 'torchstone[ray]'.") from error
    if ray.is_initialized():
        _require_cluster(address, ray.get_runtime_context().gcs_address)
    else:
        try:
            _require_listener(address)
            ray.init(address=address, namespace=_NAMESPACE, log_to_driver=False, configure_logging=False)
        except (OSError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InfrastructureError(
                f"no Ray cluster answers at '{address}' ({reason}). Start one with 'ray start --head', or name another."
            ) from error
    return ray


def _require_cluster(address: str, connected: str) -> None:
    """Raise if the program is connected to another cluster than the requested one. ``auto`` accepts any cluster."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or "://" in host:  # auto, or the address of a proxy
        return
    own_host, _, own_port = connected.rpartition(":")
    if port != own_port or not _is_same_host(host, own_host):
        raise UsageError(
            f"Ray address '{address}' is asked for, and this program is connected to the cluster at '{connected}'. "
            "Use that address or 'auto', or call ray.shutdown() first."
        )


def _is_same_host(host: str, other: str) -> bool:
    """Whether two host names share an address, or both belong to this machine."""
    found, others = _addresses(host), _addresses(other)
    return bool(found & others) or (any(map(_is_here, found)) and any(map(_is_here, others)))


def _addresses(host: str) -> set[str]:
    try:
        return {str(each[4][0]) for each in socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)}
    except OSError:
        return {host}


def _is_here(address: str) -> bool:
    """Whether a server of this machine could listen on the address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as unused:
            unused.bind((address, 0))
            return True
    except OSError:
        return False


def _require_listener(address: str) -> None:
    """Raise OSError at once if no server listens at the address: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "://" not in host:
        with socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS):
            pass


def _device_on(ray: Any, options: ExecutorOptions) -> str:
    """The kind of device to judge on, ``cpu`` or ``cuda``. Ray chooses which of a node's GPUs a judge gets."""
    if options.device not in ("auto", "cpu", "cuda"):
        raise UsageError(
            f"device '{options.device}' has no meaning on a cluster. Use auto, cpu or cuda, and --gpu TYPE."
        )
    if options.device != "auto":
        return options.device
    if options.gpu:
        return "cuda"
    as_gpus = msgspec.structs.replace(options, device="cuda")
    return "cuda" if find_slots(ray.nodes(), as_gpus) else "cpu"


def _described(ray: Any, slots: Sequence[Slot], device_type: str) -> tuple[Node, ...]:
    """The description of each node, which the node makes itself."""
    first = list({slot.node_id: slot for slot in slots}.values())
    task = ray.remote(num_cpus=0, max_retries=1)(described)
    asked = [task.options(scheduling_strategy=_scheduled_on(slot)).remote(device_type) for slot in first]
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
    """Run a module of Torchstone on the node of a slot; return what it prints."""
    resources = dict(slot.resources) if device == "cuda" else {"num_cpus": 0}
    task = ray.remote(max_retries=0, **resources)(ask_here)
    try:
        return str(ray.get(task.options(scheduling_strategy=_scheduled_on(slot)).remote(module, text)))
    except Exception as error:
        raise InfrastructureError(f"node {slot.node_name} could not prepare the cases ({_reason(error)}).") from error


def _scheduled_on(slot: Slot) -> Any:
    """Ray's scheduling strategy for the node of a slot."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id=slot.node_id, soft=False)


def _reason(error: BaseException) -> str:
    """The last line of Ray's error message, which has a whole traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    return f"{type(error).__name__}: {lines[-1][:300]}"


class RayJudge:
    """Handle on one actor, for the session."""

    def __init__(self, ray: Any, slot: Slot, options: ExecutorOptions) -> None:
        self._ray = ray
        self.slot = slot
        self.name = f"{slot.node_name}, slot {slot.number}"
        self.width = options.judges_per_device
        self.started_at = time.monotonic()
        self.in_hand = 0
        self._idle_since = self.started_at
        self.admitted = False
        """Whether its node was found to have the same versions as the others."""
        own = msgspec.structs.replace(options, node=slot.node_name)
        if options.device == "cpu":
            own = msgspec.structs.replace(own, slots=slot.of, slot=slot.number)
        actor = ray.remote(
            max_restarts=0,  # the fleet replaces lost actors
            max_task_retries=0,  # a lost job may be the cause: the session counts attempts
            max_concurrency=self.width + 1,
            scheduling_strategy=_scheduled_on(slot),
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
        """Whether it has a job, or had one less than ``_KEEP_SECONDS`` ago."""
        return self.in_hand > 0 or now - self._idle_since < _KEEP_SECONDS

    def end(self) -> None:
        """Kill the actor. That closes the pipes to its judges, so these end, and every worker with its judge."""
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
        """Starting and ready judges, by slot."""
        self._ready: list[RayJudge] = []
        self._rests: dict[str, float] = {}
        """By slot: time of the monotonic clock before which it is not used again, because its actor was lost."""
        self._refused: dict[str, str] = {}
        """Nodes that cannot judge, with the reason."""
        self._hosts: dict[str, str] | None = None
        self._last_fault = ""
        self._poll_at = 0.0
        self._known_ledger: Any = None

    def judges(self, wanted: int) -> Sequence[RemoteJudge]:
        now = time.monotonic()
        if now >= self._poll_at:
            self._poll_at = now + _POLL_SECONDS
            self._update_judges(wanted)
        self._admit_started(now)
        return self._ready

    def lost(self, judge: RemoteJudge, why: str) -> None:
        assert isinstance(judge, RayJudge)
        self._last_fault = why
        if self._judges.get(judge.slot.key) is judge:
            self._end(judge)
            self._rests[judge.slot.key] = time.monotonic() + _REST_SECONDS
            self._tell(f"{why}; its job is tried again")
        self._poll_at = 0.0

    def obstacle(self) -> str:
        told = [self._last_fault, *self._refused.values()]
        return "; ".join(filter(None, told)) or "no slot of the cluster is free"

    def close(self) -> None:
        for judge in tuple(self._judges.values()):
            self._end(judge)
        with contextlib.suppress(Exception):
            self._ray.get(self._ledger().poll.remote(self._run, [], [], 0), timeout=2.0)

    # ---- slots

    def _update_judges(self, wanted: int) -> None:
        """Find the slots that this run may use; start judges on new ones, and end judges on others."""
        slots = {slot.key: slot for slot in self._usable_slots()}
        for key in self._judges.keys() - slots.keys():  # its node is gone; its running jobs will raise errors
            if not self._judges[key].in_hand:
                self._end(self._judges[key])
        now = time.monotonic()
        needed = -(-wanted // self._options.judges_per_device) if wanted >= 0 else 0
        # Judges without work stay for a while unless another run needs their slots: a start takes seconds.
        kept = sum(not wanted or judge.is_kept(now) for judge in self._judges.values()) if wanted >= 0 else 0
        count = max(needed, kept)
        granted = set(self._granted(list(slots), count))
        for key, judge in list(self._judges.items()):
            if key in slots and key not in granted:
                if judge in self._ready:
                    self._ready.remove(judge)  # it gets no more jobs: the slot is granted to another run
                if not judge.in_hand:
                    self._end(judge)
        for key in granted - self._judges.keys():
            self._judges[key] = RayJudge(self._ray, slots[key], self._options)

    def _usable_slots(self) -> list[Slot]:
        """Slots of nodes that can judge, without those that are paused. Reports nodes that joined or left."""
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
        """The slots that the ledger grants. Without an answer these are the slots that the run holds."""
        held = sorted(self._judges, key=lambda key: not self._judges[key].admitted)  # ready judges are given up last
        try:
            asked = self._ledger().poll.remote(self._run, slots, held, max(0, wanted))
            return list(self._ray.get(asked, timeout=5.0))
        except Exception:  # noqa: BLE001 - the run that started the ledger has ended: the next poll starts another
            self._known_ledger = None
            return held

    def _ledger(self) -> Any:
        """The slot ledger, an actor that the first run starts. It ends when that run drops its handle."""
        if self._known_ledger is None:
            actor = self._ray.remote(num_cpus=0, max_restarts=0)(SlotLedger)
            self._known_ledger = actor.options(name=_LEDGER, namespace=_NAMESPACE, get_if_exists=True).remote()
        return self._known_ledger

    # ---- actors

    def _admit_started(self, now: float) -> None:
        """Admit the actors that have described their machine; give up those that did not start in time."""
        for judge in [one for one in self._judges.values() if not one.admitted]:
            if judge.description.done():
                self._admit(judge)
            elif now - judge.started_at > _START_SECONDS:
                self.lost(judge, f"{judge.name}: the actor did not start within {_START_SECONDS:g} s")

    def _admit(self, judge: RayJudge) -> None:
        """Make a started judge ready, unless its node has other versions."""
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
            self._end(judge)
            return
        judge.admitted = True
        self._ready.append(judge)

    def _end(self, judge: RayJudge) -> None:
        judge.end()
        self._judges.pop(judge.slot.key, None)
        if judge in self._ready:
            self._ready.remove(judge)
