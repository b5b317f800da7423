"""Holds what all jobs of a judge share: workers, device and lock, memory, what is known of cases and candidates."""

from __future__ import annotations

import gc
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch

from torchstone import schema
from torchstone.calls.torch_errors import is_out_of_memory
from torchstone.judge_process.kept_builds import KeptBuilds
from torchstone.judge_process.large_cases import peak_bytes_of_reference
from torchstone.judge_process.measurement_guards import peak_bandwidth
from torchstone.judge_process.measuring_lane import MeasuringLane
from torchstone.judge_process.memory_blame import CudaMemory, MemoryShortage
from torchstone.judge_process.memory_reservation import JobMemory
from torchstone.judge_process.remembered_load_failures import RememberedLoadFailures
from torchstone.judge_process.sandboxed_reference_models import SandboxedReferenceModels
from torchstone.judging import (
    Expected,
    Reference,
    ReferenceFailure,
    Work,
    calls_needed_against_guessing,
    draw_call,
    preparable_share,
    work_of,
)
from torchstone.measuring import timing
from torchstone.measuring.ceilings import DeviceCeilings
from torchstone.measuring.device_state import DeviceProbe
from torchstone.processes.free_memory import host_bytes
from torchstone.processes.memory_ledger import MemoryLedger
from torchstone.supervisor.pausable_worker import PausableWorker
from torchstone.supervisor.worker_pool import WorkerPool

_HOST_ARENA_BYTES = 64 << 20
_LEAST_DEVICE_PARTS, _DEVICE_PARTS_PER_JUDGE = 64, 8
"""A block's arguments and results may take this part of a device's memory: 1/64, or 1 / (8 * judges) if that is less. A
judge that measures takes half a dozen such parts, and one that waits to measure takes three."""
_DEFAULT_CACHE_BYTES = 1 << 20
"""Cache of a core, if the system does not report it."""
_DOUBTFUL_PERCENT = 110.0
"""Attainment of the reference from which ceilings must be too low. Noise alone exceeds 100 % by less."""
_MOST_LOADS = 48
"""Most operators of a package that one worker loads: their caches and compiled code must not pile up."""
_KEPT_RESULTS_EVERY = 24
"""One of this many later untimed jobs of a candidate keeps results of earlier blocks."""
_IDLE_ANSWER_SECONDS = 300e-6
"""Latency of a busy device. An idle one answers in some tens of microseconds, a busy one after a time slice."""
_IDLE_ANSWERS = 3
_MOST_UNUSED_BYTES = 512 << 20
"""Most unused device memory that a judge keeps between jobs, and while others measure."""


class JobOutcome:
    """What a trial has found besides the verdict."""

    def __init__(self) -> None:
        self.measurement: schema.Measurement | None = None
        self.stage_seconds: dict[str, float] = {}
        self.attribution: schema.Attribution | None = None
        self.layers: tuple[schema.Layer, ...] = ()
        self.held: schema.Holding = "traced"
        self.results: schema.ResultReading = "read"
        self.log_tail = ""


class JudgeResources:
    """What all trials of a judge share: workers, the device and the lock on it (lane)."""

    def __init__(
        self,
        pool: WorkerPool,
        lane: MeasuringLane,
        device: torch.device,
        threads: int,
        probe: DeviceProbe,
        ceilings: DeviceCeilings,
        judges: int = 1,
        ledger: MemoryLedger | None = None,
    ) -> None:
        """``judges``: how many share the device, this one included. ``ledger``: None if memory is not reserved."""
        self.pool = pool
        self.lane = lane
        self.device = device
        self.threads = threads
        self.probe = probe
        self._ceilings = ceilings
        self._judges = judges
        self._work: dict[str, Work] = {}
        self._reference_peaks: dict[str, int | None] = {}
        self._preparable: dict[str, float] = {}
        self._candidate_worker: PausableWorker | None = None
        self.has_had_candidates = False
        """Whether any candidate was ever loaded: it may have caused later failures of this machine."""
        self._own_workers: dict[Literal["reference", "shim"], PausableWorker] = {}
        self.profiled: set[str] = set()
        """Keys of candidates whose device kernels have been profiled."""
        self._candidates_seen: set[str] = set()
        """Keys of candidates that have had a job here, in which results of earlier blocks may have been kept."""
        self.variants_passed: Counter[tuple[str, bool]] = Counter()
        """How many hidden variants a candidate has passed, by its key and by whether a tensor had several elements."""
        self._calls_needed_against_guessing: dict[str, int] = {}
        self.reference_call_ns: dict[str, int] = {}
        """About how long a call of the reference takes, by case and way of calling: decides the length of blocks."""
        self.failed_loads = RememberedLoadFailures()
        self.builds = KeptBuilds()
        """Files that candidates have compiled, for their later workers."""
        self.models = SandboxedReferenceModels(lambda: pool.take_own(_most_model_bytes(device)), device)
        """Runs problem files for the judge."""
        memory = CudaMemory(device) if device.type == "cuda" else None
        self.memory = JobMemory(ledger, memory, self._empty_memory)
        """The memory that the current job has reserved."""
        self.shortage = MemoryShortage(memory, self._may_others_hold_memory, lambda: len(self._own_workers))
        """Decides what is to blame when the device lacks memory."""
        self.signs_of_life = 0
        """Number of commands to candidates so far. Shows that the judge does not hang."""

    @cached_property
    def peak_bytes_per_second(self) -> float:
        """The device's best copy bandwidth. Measured once per judge, at the first use."""
        return peak_bandwidth(self.device)

    def sweep_caches(self) -> None:
        """Empty the device's cache, by reading twice as many other bytes."""
        self._sweep_buffer.amax()

    @cached_property
    def _sweep_buffer(self) -> torch.Tensor:
        return torch.zeros(max(1, 2 * self.cache_bytes // 4), dtype=torch.int32, device=self.device)

    @property
    def arena_bytes(self) -> int:
        """Most bytes of a block's arguments and results. On a device they exist several times, in the memory of every
        party and of the judge.
        """
        if self.device.type == "cuda":
            total = torch.cuda.get_device_properties(self.device).total_memory
            return int(total // max(_LEAST_DEVICE_PARTS, _DEVICE_PARTS_PER_JUDGE * self._judges))
        return _HOST_ARENA_BYTES

    @property
    def ample_bytes(self) -> int:
        """Most bytes of a block's arguments and results if it has only a few calls."""
        return 4 * self.arena_bytes if self.device.type == "cuda" else self.arena_bytes

    @property
    def cache_bytes(self) -> int:
        """Size of the device's L2 cache, or of a core's own."""
        if self.device.type == "cuda":
            return int(torch.cuda.get_device_properties(self.device).L2_cache_size)
        try:
            kibibytes = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text().strip().removesuffix("K")
            return int(kibibytes) << 10
        except (OSError, ValueError):
            return _DEFAULT_CACHE_BYTES

    @contextmanager
    def place_in_lane(self) -> Iterator[None]:
        """A shared place in the lane, held until ordered spares have started if the device is shared.

        Starting them takes the machine's cores, and another judge may be about to measure.
        """
        with self.lane.shared():
            try:
                yield
            finally:
                if self._judges > 1:
                    self.pool.settle()

    @property
    def waits(self) -> bool:
        """Whether this judge waits for the lane or for memory."""
        return self.lane.waits or self.memory.waits

    @property
    def waited_seconds(self) -> float:
        """Total time for which this judge has waited for the lane and for memory."""
        return self.lane.waited_seconds + self.memory.waited_seconds

    @property
    def shares_device(self) -> bool:
        """Whether other judges of the run use the same device."""
        return self._judges > 1

    def make_way(self) -> None:
        """Leave the lane for a judge that waits to measure. Nothing that this judge has started may run meanwhile.

        Also frees device memory that is kept unused: the other judge may wait because it lacked memory.
        """
        self.pool.settle()
        self.free_memory()
        self.lane.make_way()

    def free_memory(self) -> None:
        """Give unused device memory back, if it is much and not reserved. To allocate it again is slow."""
        if self.device.type != "cuda":
            return
        kept_bytes = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        if kept_bytes > max(_MOST_UNUSED_BYTES, self.memory.reserved_bytes):
            torch.cuda.empty_cache()

    def is_quiet(self) -> bool:
        """Whether the device is idle: it answers at once, several times in a row."""
        if self.device.type == "cpu":
            return True
        for _ in range(_IDLE_ANSWERS):
            torch.cuda.synchronize(self.device)
            began = time.perf_counter()
            self._one_element.add_(1)
            torch.cuda.synchronize(self.device)
            if time.perf_counter() - began > _IDLE_ANSWER_SECONDS:
                return False
        return True

    @cached_property
    def _one_element(self) -> torch.Tensor:
        return torch.zeros(1, device=self.device)

    def work_of(self, expected: Expected) -> Work:
        """The least work that a case takes. Counted once per case."""
        case = expected.call.case
        if case.key not in self._work:
            self._work[case.key] = work_of(case, expected.new_tensors)
        return self._work[case.key]

    def preparable_share(self, reference: Reference) -> float:
        """Share of a call's bytes that a kernel could prepare beforehand. Determined once per case."""
        key = reference.case.key
        if key not in self._preparable:
            self._preparable[key] = preparable_share(reference)
        return self._preparable[key]

    def reference_peak_bytes(self, case: schema.Case) -> int | None:
        """Peak memory of torch's own operator beyond the arguments of this case; None: not known.

        Measured once per case; again if memory was lacking, because a candidate may have held it.
        """
        if case.key not in self._reference_peaks:
            call = draw_call(case, 0, self.device)
            try:
                self._reference_peaks[case.key] = peak_bytes_of_reference(call)
            except RuntimeError as error:
                if is_out_of_memory(error):
                    return None
                self._reference_peaks[case.key] = None
        return self._reference_peaks[case.key]

    def know_ceilings(self, work: Work) -> None:
        """Measure missing ceilings of the device. No candidate may be loaded: on a GPU its work may not pause."""
        if self._ceilings.is_measured(work.dtype):
            return
        if self.device.type == "cuda":
            self.dismiss_candidate()
        self.pool.settle()
        with self.lane.exclusive(), suppress(RuntimeError):  # too little memory: there are no ceilings then
            self._ceilings.get(work.dtype)

    def speed_of_light(self, work: Work, calls: int, cache: schema.Cache) -> schema.SpeedOfLight | None:
        """The device's limit for one of this many calls in a row, each on its own memory; None: not known."""
        if not self._ceilings.is_measured(work.dtype):
            return None
        ceilings = self._ceilings.get(work.dtype)
        moved = work.read_bytes, work.written_bytes
        swept = cache == "cold" and self.device.type == "cuda"
        gone_through = max(calls * sum(moved), 2 * self.cache_bytes if swept else 0)
        return schema.SpeedOfLight(
            *moved,
            bytes_per_second=ceilings.bytes_per_second(*moved, work.updated_bytes, gone_through),
            latency_ns=ceilings.latency_ns,
            flops=work.flops,
            flops_counted=work.flops_counted,
            flops_per_second=ceilings.flops_per_second.get(work.dtype or "") if work.flops else None,
            dtype=work.dtype,
            measured_unix_ns=ceilings.measured_unix_ns,
        )

    def discard_exceeded_ceilings(self, measurement: schema.Measurement) -> None:
        """Discard ceilings that are too low: the reference, which no candidate can change, clearly exceeds them."""
        reached = timing(measurement).attainment
        if reached is not None and reached.reference_percent > _DOUBTFUL_PERCENT:
            self._ceilings.request_new_measurement()

    def calls_needed_against_guessing(self, expected: Expected) -> int:
        """How many calls of a case must be checked so that a guess does not pass. Determined once per case."""
        key = schema.content_key(expected.call.case)
        if key not in self._calls_needed_against_guessing:
            self._calls_needed_against_guessing[key] = calls_needed_against_guessing(expected)
        return self._calls_needed_against_guessing[key]

    def has_loaded(self, implementation: schema.Implementation) -> bool:
        """Whether the present worker can serve this candidate: it has it loaded, or others of its package."""
        return self._candidate_worker is not None and _may_serve(self._candidate_worker, implementation)

    def worker_for(self, implementation: schema.Implementation) -> tuple[PausableWorker, bool]:
        """The worker for this candidate, and whether it is new.

        It has this candidate or others of its package loaded, or it is new, perhaps without its device.
        """
        if self._candidate_worker is not None and self.has_loaded(implementation):
            return self._candidate_worker, False
        self.dismiss_candidate()
        worker = self.pool.take(with_device=False)
        self._candidate_worker = worker
        self.has_had_candidates = True
        self.pool.refill()
        return worker, True

    def keeps_results_in_job(self, key: str) -> bool:
        """Whether a job keeps results of earlier blocks: the candidate's first job here, and some later ones.

        That is enough, because how results are allocated is a property of the candidate, not of the case.
        """
        first = key not in self._candidates_seen
        self._candidates_seen.add(key)
        return first or secrets.randbelow(_KEPT_RESULTS_EVERY) == 0

    def dismiss_candidate(self) -> None:
        """End the candidate's worker, so that its state reaches no other candidate, and no case after a crash."""
        if self._candidate_worker is not None:
            self._candidate_worker.kill()
            self._candidate_worker = None

    def own_worker(self, party: Literal["reference", "shim"]) -> PausableWorker:
        """The worker in which the reference or the shim is timed, in the same sandbox as the candidate.

        Each has its own: a process that is called twice as often as another resumes more quickly.
        """
        if party not in self._own_workers:
            self._own_workers[party] = self.pool.take_own()
        return self._own_workers[party]

    def without_candidate_if_needed(self, require: Callable[[], None]) -> None:
        """Call ``require``. If it fails, end the candidate of an earlier job, which may hold memory, and try again."""
        try:
            require()
        except ReferenceFailure:
            if self._candidate_worker is None:
                raise
            self.dismiss_candidate()
            require()

    def plan_memory(self, case: schema.Case, buffers_bytes: int) -> None:
        """Tell the shortage watch what this case needs, before its candidate is loaded."""
        if self.shortage.is_watched:
            self.shortage.plan(buffers_bytes, self.reference_peak_bytes(case) or 0)

    def _may_others_hold_memory(self) -> bool:
        return self._judges > 1 or self._candidate_worker is not None or not self.memory.is_everything

    def _empty_memory(self) -> None:
        """Free all memory of earlier jobs, here and in workers, which are ended."""
        self.dismiss_candidate()
        self.dismiss_own_workers()
        self.models.close()
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def watch_memory(self) -> None:
        """Begin to watch what the candidate holds, after this judge's workers were ended."""
        self._empty_memory()
        self.pool.settle()
        self.shortage.watch()

    def dismiss_own_workers(self) -> None:
        for worker in self._own_workers.values():
            worker.kill()
        self._own_workers.clear()

    def close(self) -> None:
        self.models.close()
        self.dismiss_candidate()
        self.dismiss_own_workers()
        self.builds.close()
        self.pool.close()
        self.lane.close()


def _most_model_bytes(device: torch.device) -> int:
    """Host memory for the worker of a problem's model: half of it on the CPU, where a model exists three times."""
    return host_bytes() // 2 if device.type == "cpu" else 0


def _may_serve(worker: PausableWorker, implementation: schema.Implementation) -> bool:
    if worker.candidate_key == implementation.key:
        return True
    same = bool(implementation.package) and worker.package == implementation.package
    return same and worker.candidate_key is not None and worker.loads < _MOST_LOADS
