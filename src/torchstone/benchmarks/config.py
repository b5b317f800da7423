"""Settings of a benchmark: defaults, and layers that replace single fields.

Later layers win, field by field: defaults, the caller's config, the benchmark's `get_config()`, the command line.
"""

from __future__ import annotations

import enum

import msgspec


class BenchmarkMode(enum.Enum):
    """Which timer takes the samples."""

    CUSTOM = "custom"
    """CUDA events on a GPU, or the host's clock if a call uses other streams; `time.perf_counter_ns` on a CPU."""
    TRITON = "triton"
    """`triton.testing.do_bench`; needs Triton and a GPU."""
    PYTORCH = "pytorch"
    """`torch.utils.benchmark.Timer`, at least `min_run_time_ms` long."""


class BenchmarkDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting with its default. Also the settings in force, after all layers are merged."""

    iterations: int = 100
    """Timed calls of each side. If no layer sets it, calls also go on until `min_run_time_ms` is reached."""
    warmup: int = 10
    """Calls before the timed ones."""
    mode: BenchmarkMode = BenchmarkMode.CUSTOM
    min_run_time_ms: float = 100.0
    """Least total time of the timed calls of a side."""
    percentiles: tuple[float, ...] = ()
    """Percentiles to report besides the usual ones, in percent."""
    seed: int | None = None
    """Seed of random, numpy, torch and CUDA, the same for both sides. None: drawn once per run, and recorded."""
    deterministic: bool = False
    """Ask torch for deterministic algorithms; operators without one raise."""
    threads: int = 1
    """CPU threads of each side where the device is a CPU; both sides then share as many cores."""
    enable_memory_tracking: bool = True
    enable_cleanup: bool = False
    """Cold start: free caches and reset the device's state before each side."""
    enable_profiling: bool = True
    """Profile with torch's profiler after timing. False: no profiler runs, nsys and ncu included."""
    enable_nsys: bool = True
    enable_ncu: bool = True
    enable_nvtx: bool = True
    timeout_multiplier: float = 1.0
    """Factor on every time limit below."""
    load_timeout_seconds: float = 30.0
    setup_timeout_seconds: float = 30.0
    warmup_timeout_seconds: float = 15.0
    measurement_timeout_seconds: float = 15.0
    profiling_timeout_seconds: float = 180.0
    nsys_timeout_seconds: float = 120.0
    ncu_timeout_seconds: float = 180.0
    memory_limit_bytes: int | None = None
    """Host memory that a side's processes may use together. None: three quarters of the machine's or container's."""
    min_devices: int = 1
    """CUDA devices that the benchmark needs; it is skipped where there are fewer. 1 is not checked."""
    min_memory_gb: float = 0.0
    """Device memory in GB that the benchmark needs; on a CPU the machine's memory."""
    min_capability: str = ""
    """Compute capability that the benchmark needs, such as `9.0`."""


class BenchmarkConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One layer of settings, with the fields of `BenchmarkDefaults`. None: this layer leaves the field as it is."""

    iterations: int | None = None
    warmup: int | None = None
    mode: BenchmarkMode | None = None
    min_run_time_ms: float | None = None
    percentiles: tuple[float, ...] | None = None
    seed: int | None = None
    deterministic: bool | None = None
    threads: int | None = None
    enable_memory_tracking: bool | None = None
    enable_cleanup: bool | None = None
    enable_profiling: bool | None = None
    enable_nsys: bool | None = None
    enable_ncu: bool | None = None
    enable_nvtx: bool | None = None
    timeout_multiplier: float | None = None
    load_timeout_seconds: float | None = None
    setup_timeout_seconds: float | None = None
    warmup_timeout_seconds: float | None = None
    measurement_timeout_seconds: float | None = None
    profiling_timeout_seconds: float | None = None
    nsys_timeout_seconds: float | None = None
    ncu_timeout_seconds: float | None = None
    memory_limit_bytes: int | None = None
    min_devices: int | None = None
    min_memory_gb: float | None = None
    min_capability: str | None = None


def merge(*layers: BenchmarkConfig, defaults: BenchmarkDefaults | None = None) -> BenchmarkDefaults:
    """The settings in force: of each field, the last layer that sets it."""
    chosen = {
        name: value
        for layer in layers
        for name in layer.__struct_fields__
        if (value := getattr(layer, name)) is not None
    }
    return msgspec.structs.replace(defaults or BenchmarkDefaults(), **chosen)
