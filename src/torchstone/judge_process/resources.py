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
    calls_to_tell,
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
_DEVICE_PARTS, _DEVICE_PARTS_FOR_JUDGE = 64, 8
"""A block's arguments and results may take one part in so many of a device's memory. A judge that measures takes half
a dozen parts, and one that waits for that takes three: so with many judges parts are smaller."""
_USUAL_CACHE_BYTES = 1 << 20
"""Of a core, where the system does not tell."""
_DOUBTFUL_PERCENT = 110.0
"""Noise of a time passes the limit by less."""
_MOST_LOADS = 48
"""Of a package's operators in one process: what they leave behind (caches, compiled code) must not pile up."""
_KEPT_RESULTS_EVERY = 24
"""Of a candidate's later jobs that are not timed, one in so many."""
_QUIET_SECONDS = 300e-6
"""A quiet device answers in some tens of microseconds; one that another process keeps busy, after a time slice."""
_QUIET_ANSWERS = 3
_KEPT_BYTES = 512 << 20
"""What a judge may keep of a device's memory between jobs, and while others measure."""


class JobOutcome:
    """What a trial brought to light besides the verdict."""

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
        """``judges`` share the device with this one, itself counted. ``ledger``: where memory is reserved, if it is."""
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
        """Whether a candidate has ever stood here: what this machine cannot do since may be its doing."""
        self._own_workers: dict[Literal["reference", "shim"], PausableWorker] = {}
        self.profiled: set[str] = set()
        """Candidates whose device kernels have been looked at."""
        self._looked_at: set[str] = set()
        """Candidates whose results were kept, and looked at again after later calls."""
        self.variants_passed: Counter[tuple[str, bool]] = Counter()
        """How many hidden ones, by candidate and whether they had more than one element."""
        self._calls_to_tell: dict[str, int] = {}
        self.reference_call_ns: dict[str, int] = {}
        """About how long a call of the reference takes, by case and way of calling: so that blocks are long enough."""
        self.failed_loads = RememberedLoadFailures()
        self.builds = KeptBuilds()
        """What candidates have compiled, for later workers of theirs."""
        self.models = SandboxedReferenceModels(lambda: pool.take_own(_most_model_bytes(device)), device)
        """Runs problem files for the judge."""
        memory = CudaMemory(device) if device.type == "cuda" else None
        self.memory = JobMemory(ledger, memory, self._empty_memory)
        """What the job in hand has reserved."""
        self.shortage = MemoryShortage(memory, self._may_others_hold_memory, lambda: len(self._own_workers))
        """Whose fault it is when the device lacks memory."""
        self.signs_of_life = 0
        """Grows with every command to a candidate."""

    @cached_property
    def peak_bytes_per_second(self) -> float:
        """Measured once per judge, when it is first asked for."""
        return peak_bandwidth(self.device)

    def sweep_caches(self) -> None:
        """Drive out of the device's cache what lies in it, by reading twice as much."""
        self._sweeping.amax()

    @cached_property
    def _sweeping(self) -> torch.Tensor:
        return torch.zeros(max(1, 2 * self.cache_bytes // 4), dtype=torch.int32, device=self.device)

    @property
    def arena_bytes(self) -> int:
        """What arguments and results of a block may take. On a device they exist several times, in every party's
        memory and in the judge's.
        """
        if self.device.type == "cuda":
            total = torch.cuda.get_device_properties(self.device).total_memory
            return int(total // max(_DEVICE_PARTS, _DEVICE_PARTS_FOR_JUDGE * self._judges))
        return _HOST_ARENA_BYTES

    @property
    def ample_bytes(self) -> int:
        """What they may take if that is a handful of calls."""
        return 4 * self.arena_bytes if self.device.type == "cuda" else self.arena_bytes

    @property
    def cache_bytes(self) -> int:
        """The largest cache of the device, or the one of each core."""
        if self.device.type == "cuda":
            return int(torch.cuda.get_device_properties(self.device).L2_cache_size)
        try:
            kibibytes = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text().strip().removesuffix("K")
            return int(kibibytes) << 10
        except (OSError, ValueError):
            return _USUAL_CACHE_BYTES

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
        """Whether somebody else has the lane, or the memory."""
        return self.lane.waits or self.memory.waits

    @property
    def waited_seconds(self) -> float:
        """For the lane and for memory, since the beginning."""
        return self.lane.waited_seconds + self.memory.waited_seconds

    @property
    def shares_device(self) -> bool:
        """Whether other judges of the run use the same device."""
        return self._judges > 1

    def make_way(self) -> None:
        """Let a judge that waits to measure do so. Nothing that this judge has started may run meanwhile.

        This judge also frees the device memory that it keeps: the other may wait because it lacked memory.
        """
        self.pool.settle()
        self.free_memory()
        self.lane.make_way()

    def free_memory(self) -> None:
        """Give back memory of the device that holds nothing, if it is much and not reserved. Taking it back is slow."""
        if self.device.type != "cuda":
            return
        kept_bytes = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        if kept_bytes > max(_KEPT_BYTES, self.memory.reserved_bytes):
            torch.cuda.empty_cache()

    def is_quiet(self) -> bool:
        """Whether the device answers at once, again and again: nobody's work is under way on it."""
        if self.device.type == "cpu":
            return True
        for _ in range(_QUIET_ANSWERS):
            torch.cuda.synchronize(self.device)
            began = time.perf_counter()
            self._speck.add_(1)
            torch.cuda.synchronize(self.device)
            if time.perf_counter() - began > _QUIET_SECONDS:
                return False
        return True

    @cached_property
    def _speck(self) -> torch.Tensor:
        return torch.zeros(1, device=self.device)

    def work_of(self, expected: Expected) -> Work:
        """What its case must do at least. Counted once per case."""
        case = expected.call.case
        if case.key not in self._work:
            self._work[case.key] = work_of(case, expected.new_tensors)
        return self._work[case.key]

    def preparable_share(self, reference: Reference) -> float:
        """How much of what its calls move could be written beforehand. Looked at once per case."""
        key = reference.case.key
        if key not in self._preparable:
            self._preparable[key] = preparable_share(reference)
        return self._preparable[key]

    def reference_peak_bytes(self, case: schema.Case) -> int | None:
        """The memory that torch's own operator needs for it beyond its arguments; None: not known.

        Watched once per case. If memory was lacking, again when it is next asked for: a candidate may have held it.
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
        """Measure what is not known yet of the device, before any candidate can use it: on a GPU it might not rest."""
        if self._ceilings.knows(work.dtype):
            return
        if self.device.type == "cuda":
            self.dismiss_candidate()
        self.pool.settle()
        with self.lane.exclusive(), suppress(RuntimeError):  # too little memory left: it goes without
            self._ceilings.get(work.dtype)

    def speed_of_light(self, work: Work, calls: int, cache: schema.Cache) -> schema.SpeedOfLight | None:
        """What the device allows for one of this many calls in a row, each on memory of its own; None: not known."""
        if not self._ceilings.knows(work.dtype):
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

    def doubt_ceilings(self, measurement: schema.Measurement) -> None:
        """torch's own kernel, which no candidate touches, clearly beyond the limit: the ceilings are too low."""
        reached = timing(measurement).attainment
        if reached is not None and reached.reference_percent > _DOUBTFUL_PERCENT:
            self._ceilings.doubt()

    def calls_to_tell(self, expected: Expected) -> int:
        """How many calls of its case must be checked before luck is out of the question. Found once per case."""
        key = schema.content_key(expected.call.case)
        if key not in self._calls_to_tell:
            self._calls_to_tell[key] = calls_to_tell(expected)
        return self._calls_to_tell[key]

    def has_loaded(self, implementation: schema.Implementation) -> bool:
        """Whether the worker that stands here would serve for this candidate."""
        return self._candidate_worker is not None and _may_serve(self._candidate_worker, implementation)

    def worker_for(self, implementation: schema.Implementation) -> tuple[PausableWorker, bool]:
        """The worker for this candidate, and whether it is new.

        It has this candidate loaded, or had others of its package, or is new, perhaps without its device.
        """
        if self._candidate_worker is not None and self.has_loaded(implementation):
            return self._candidate_worker, False
        self.dismiss_candidate()
        worker = self.pool.take(with_device=False)
        self._candidate_worker = worker
        self.has_had_candidates = True
        self.pool.refill()
        return worker, True

    def looks_at_kept_results(self, key: str) -> bool:
        """Whether results of this candidate are kept and looked at again: in its first job here, and some later ones.

        How memory is handed out is the candidate's way, not that of a case.
        """
        first = key not in self._looked_at
        self._looked_at.add(key)
        return first or secrets.randbelow(_KEPT_RESULTS_EVERY) == 0

    def dismiss_candidate(self) -> None:
        """End the candidate's worker: nothing of it may reach another candidate, or the next case after a crash."""
        if self._candidate_worker is not None:
            self._candidate_worker.kill()
            self._candidate_worker = None

    def own_worker(self, party: Literal["reference", "shim"]) -> PausableWorker:
        """A worker in which we ourselves are timed, in the same sandbox as the candidate.

        One for each party: a process that is called twice as often as another is quicker to wake.
        """
        if party not in self._own_workers:
            self._own_workers[party] = self.pool.take_own()
        return self._own_workers[party]

    def without_candidate_if_needed(self, require: Callable[[], None]) -> None:
        """Look for memory; if it is too little, again without a candidate of an earlier job, which may hold some."""
        try:
            require()
        except ReferenceFailure:
            if self._candidate_worker is None:
                raise
            self.dismiss_candidate()
            require()

    def plan_memory(self, case: schema.Case, buffers_bytes: int) -> None:
        """Where memory is watched, say what this case needs. Before its candidate is loaded."""
        if self.shortage.is_watched:
            self.shortage.plan(buffers_bytes, self.reference_peak_bytes(case) or 0)

    def _may_others_hold_memory(self) -> bool:
        return self._judges > 1 or self._candidate_worker is not None or not self.memory.is_everything

    def _empty_memory(self) -> None:
        """Nothing of an earlier job is left in memory, neither here nor in workers."""
        self.dismiss_candidate()
        self.dismiss_own_workers()
        self.models.close()
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def watch_memory(self) -> None:
        """From now on see what the candidate holds. Nothing of this judge's workers is left on the device."""
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
    """What a problem's own model may take of the machine's memory: a large one is there three times on the CPU."""
    return host_bytes() // 2 if device.type == "cpu" else 0


def _may_serve(worker: PausableWorker, implementation: schema.Implementation) -> bool:
    if worker.candidate_key == implementation.key:
        return True
    same = bool(implementation.package) and worker.package == implementation.package
    return same and worker.candidate_key is not None and worker.loads < _MOST_LOADS
