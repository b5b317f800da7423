"""Runs a baseline and an optimized benchmark, or one alone, from load to teardown; both live at once and take turns.

Each of the two is a side. If both do not fit in memory together, they run one after the other.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from torchstone.benchmarks import BenchmarkConfig, BenchmarkMode
from torchstone.benchmarks.config import merge
from torchstone.errors import DeviceUnavailableError
from torchstone.executors.devices import Device, find_devices, visible_uuids
from torchstone.harness.alternating_blocks import take_turns
from torchstone.harness.benchmark_process_messages import Done, Load, Setup, Source, Validate, Warmup, WarmupReply
from torchstone.harness.pair_comparison import choose_clock, compare_outputs, compare_sides, sides_on_another_clock
from torchstone.harness.results import Comparison, OutputComparison, Side
from torchstone.harness.side_run import Layers, SideRun
from torchstone.harness.side_transports import Transport
from torchstone.judge_process.measuring_lane import MeasuringLane

MakeTransport = Callable[[], Transport]


class SideOrder(msgspec.Struct, frozen=True):
    """One side: where its benchmark is, and a function that starts its process."""

    side: Side
    source: Source | None
    """None: the transport holds the benchmark object."""
    start: MakeTransport


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """Device, seed and settings that both sides share."""

    device: str
    seed: int
    config: BenchmarkConfig = BenchmarkConfig()
    overrides: BenchmarkConfig = BenchmarkConfig()
    lane_folder: Path | None = None


class _TooLargeTogetherError(Exception):
    """One side ran out of memory while the other was set up, too."""


class Session:
    """Runs the sides of one order. `sides` are those that have run, in the order given."""

    def __init__(self, orders: Sequence[SideOrder], circumstances: Circumstances) -> None:
        self._orders = orders
        self._around = circumstances
        self._device = _device(circumstances.device)
        self._layers = Layers(circumstances.config, circumstances.overrides, circumstances.seed)
        self._random = random.Random()
        self.sides: list[SideRun] = []
        self.taken: Literal["interleaved", "in sequence"] = "interleaved"
        self.notes: list[str] = []
        self.outputs: OutputComparison | None = None
        self._modes_differ = False
        """Whether the sides ask for different timers. Known from a joint load, also when they run in sequence."""
        self._by_host = False
        """Whether a side that has run needs the host's clock, so that the other uses it, too."""

    def run(self) -> None:
        """Run all stages of all sides. No benchmark process is left running; a benchmark's thread may be."""
        with contextlib.ExitStack() as stack:
            lane = stack.enter_context(contextlib.closing(MeasuringLane(self._device.name, self._around.lane_folder)))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="torchstone-pair-")))
            try:
                with self._started(self._orders) as self.sides:
                    self._run_together(self.sides, lane, folder)
            except _TooLargeTogetherError as error:
                self.taken = "in sequence"
                self.notes.append(f"{error}: the sides ran one after the other, so drift between them is not cancelled")
                self._run_in_sequence(lane, folder)
            self._compare_outputs(folder)

    @contextlib.contextmanager
    def _started(self, orders: Sequence[SideOrder]) -> Iterator[list[SideRun]]:
        sides: list[SideRun] = []
        try:
            for order in orders:
                started = order.start()
                sides.append(SideRun(order.side, started, self._layers, self._around.device))
            yield sides
        finally:
            for side in sides:
                side.end()

    def _run_in_sequence(self, lane: MeasuringLane, folder: Path) -> None:
        self.sides = [self._run_alone(order, lane, folder) for order in self._orders]
        others = sides_on_another_clock(self.sides)
        if not others or any(side.has_failed for side in self.sides):
            return
        names = " and ".join(side.side for side in others)
        self.notes.append(f"the {names} side was timed again, by the wall clock, as the other side has to be")
        self._by_host = True
        pairs = zip(self._orders, self.sides, strict=True)
        self.sides = [self._run_alone(order, lane, folder) if side in others else side for order, side in pairs]

    def _run_alone(self, order: SideOrder, lane: MeasuringLane, folder: Path) -> SideRun:
        with self._started([order]) as sides:
            self._run_together(sides, lane, folder)
        (side,) = sides
        return side

    def _run_together(self, sides: Sequence[SideRun], lane: MeasuringLane, folder: Path) -> None:
        self._load(sides)
        with lane.shared():
            for side in sides:
                self._set_up(side)
                self._check_memory(side, sides)
            for side in sides:
                self._warm_up(side, folder)
                self._check_memory(side, sides)
            if self._device.kind == "cuda":
                choose_clock(sides, self._by_host)
            with lane.exclusive():
                take_turns(sides, self._random)
            for side in sides:
                self._check_memory(side, sides)
            for side in sides:
                if not side.has_failed:
                    side.ask("validation", Validate(), Done)
                side.tear_down()

    def _load(self, sides: Sequence[SideRun]) -> None:
        before = merge(self._around.config, self._around.overrides)
        measuring = self._measuring_cores(before.threads)
        others = tuple(sorted(os.sched_getaffinity(0) - set(measuring)))
        for order, side in zip(self._orders_of(sides), sides, strict=True):
            request = Load(
                order.source,
                {**os.environ, **device_variables(self._device)},
                str(Path.cwd()),
                self._around.device,
                self._around.seed if before.seed is None else before.seed,
                others if measuring else (),
                before.deterministic,
            )
            side.load(request)
        present = [side for side in sides if not side.has_failed]
        for side in present:
            self._check_mode(side)
        self._modes_differ = self._modes_differ or len({side.settings.mode for side in present}) > 1
        if self._modes_differ:
            for side in present:
                side.change(
                    msgspec.structs.replace(side.settings, mode=BenchmarkMode.CUSTOM),
                    "the sides ask for different timers; both are timed by the harness's own",
                )
        if len({side.seed for side in present}) > 1:
            self.notes.append("the sides are configured with different seeds")

    def _orders_of(self, sides: Sequence[SideRun]) -> list[SideOrder]:
        by_side = {order.side: order for order in self._orders}
        return [by_side[side.side] for side in sides]

    def _check_mode(self, side: SideRun) -> None:
        """If Triton's timer cannot be used: fail if the command line asked for it, else use another and note that."""
        if side.settings.mode is not BenchmarkMode.TRITON:
            return
        if self._device.kind == "cuda" and importlib.util.find_spec("triton") is not None:
            return
        reason = "mode triton needs a CUDA device and the package triton"
        if side.is_override("mode"):
            side.fail("load", f"{reason}; use --timer custom or pytorch")
            side.end()
            return
        side.change(msgspec.structs.replace(side.settings, mode=BenchmarkMode.CUSTOM), f"{reason}; custom was used")

    def _set_up(self, side: SideRun) -> None:
        side.ask("setup", Setup(side.settings, side.seed), Done)

    def _warm_up(self, side: SideRun, folder: Path) -> None:
        if side.has_failed:
            return
        request = Warmup(
            side.settings.warmup, self._measuring_cores(side.settings.threads), str(folder / f"{side.side}.npz")
        )
        warmed = side.ask("warmup", request, WarmupReply)
        if warmed is not None:
            side.take_warm_up(warmed)

    def _measuring_cores(self, threads: int) -> tuple[int, ...]:
        """Cores for timing on a CPU, the same for both sides since cores differ in speed; empty on CUDA."""
        if self._device.kind != "cpu":
            return ()
        return tuple(sorted(os.sched_getaffinity(0))[-threads:])

    def _check_memory(self, side: SideRun, sides: Sequence[SideRun]) -> None:
        others = [each for each in sides if each is not side and each.is_alive and each.spent_seconds("setup")]
        if side.out_of_memory and others:
            raise _TooLargeTogetherError(f"out of memory while both sides were alive ({side.side}: {side.errors[0]})")

    def _compare_outputs(self, folder: Path) -> None:
        if len(self.sides) != 2:
            return
        baseline, optimized = self.sides
        for side in self.sides:
            offered = side.measured.outputs
            if offered is not None and offered.note:
                side.notes.append(offered.note)
        files = [folder / f"{side.side}.npz" for side in self.sides]
        self.outputs = compare_outputs(baseline.measured.outputs, optimized.measured.outputs, files[0], files[1])
        if self.outputs is not None and not self.outputs.agrees:
            optimized.fail("validation", f"wrong output: {self.outputs.message}")

    def comparison(self, name: str, threshold_pct: float) -> Comparison:
        """The comparison of the two sides that have run."""
        baseline, optimized = self.sides
        return compare_sides(name, baseline, optimized, self.outputs, threshold_pct, self.taken, self.notes)


def device_variables(device: Device) -> dict[str, str]:
    """Variables with which a side sees the chosen device first, then the others, for benchmarks that need several."""
    if device.uuid is None:
        return {"CUDA_VISIBLE_DEVICES": ""}
    others = [uuid for uuid in visible_uuids(os.environ) if uuid != device.uuid]
    return {"CUDA_VISIBLE_DEVICES": ",".join((device.uuid, *others))}


def _device(label: str) -> Device:
    found = find_devices(label)
    if not found:
        raise DeviceUnavailableError(f"device '{label}' is not here.")
    return found[0]
