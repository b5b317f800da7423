"""CUDA sources: they compile for every architecture without spills, and what was compiled is found again. No GPU."""

from __future__ import annotations

import hashlib
import importlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("torch")

from torchstone.atomic_files import cache_folder
from torchstone.kernels import compiled_cache, cuda_compilers
from torchstone.kernels.compile_and_launch_cuda import CudaKernel
from torchstone.kernels.cuda_compilers import Compiled, Compiler
from torchstone.kernels.cuda_launch_geometry import plan_rows
from torchstone.kernels.cuda_resources import ARCHITECTURES, resources_of, variants

needs_nvrtc = pytest.mark.skipif(cuda_compilers.nvrtc_compiler() is None, reason="no NVRTC (extra 'cuda')")
needs_nvcc = pytest.mark.skipif(cuda_compilers.nvcc_compiler() is None, reason="nvcc is not on PATH")

SOURCE = 'extern "C" __global__ void fill(float* x) { x[threadIdx.x] = VALUE; }\n'


class CountingCompiler:
    """A real compiler, and how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0
        self._real = cuda_compilers.compiler()
        self.as_compiler = Compiler(self._real.version, self._compile)

    def _compile(self, source: str, architecture: str, options: Sequence[str]) -> Compiled:
        self.calls += 1
        return self._real.compile(source, architecture, options)


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountingCompiler:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return CountingCompiler()


def entries() -> list[Path]:
    folder = cache_folder(compiled_cache.FOLDER)
    assert folder is not None
    return sorted(folder.iterdir())


# ---- the kernels


def kernels_in_files() -> set[CudaKernel]:
    """All that the kernel files define, but for `add_columns`, which the fused file has in common with another."""
    folder = Path(cuda_compilers.__file__).parent
    names = [f"cuda.{path.stem}.{path.stem}" for path in folder.glob("cuda/*/*.py")] + ["fused.layer_norm_gelu_cuda"]
    modules = [importlib.import_module(f"torchstone.kernels.{name}") for name in names]
    found = {item for module in modules for item in vars(module).values() if isinstance(item, CudaKernel)}
    assert len(names) == 10
    return found - {modules[-1]._add_columns}


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_variant_compiles_without_spills(architecture: str) -> None:
    found = [resources_of(variant, architecture) for variant in variants()]
    assert [item for item in found if item.spill_bytes or not 0 < item.registers <= 255] == []


@needs_nvrtc
def test_every_kernel_compiles_without_spills() -> None:
    """One variant of each kernel; the architectures take turns."""
    largest = {variant.kernel: variant for variant in variants() if "float32" in variant.name}
    assert set(largest) == kernels_in_files()
    found = [
        resources_of(variant, ARCHITECTURES[place % len(ARCHITECTURES)])
        for place, variant in enumerate(largest.values())
    ]
    assert [item for item in found if item.spill_bytes or not 0 < item.registers <= 255] == []


@needs_nvcc
def test_nvcc_compiles_the_same_sources() -> None:
    by = cuda_compilers.nvcc_compiler()
    assert by is not None
    variant = next(variant for variant in variants() if variant.name.startswith("native_layer_norm short_rows"))
    done = by.compile(variant.kernel.text(variant.constants), "sm_90", ())
    assert done.cubin.startswith(b"\x7fELF")
    assert "registers" in done.log


@needs_nvrtc
def test_a_source_with_an_error_is_quoted() -> None:
    with pytest.raises(cuda_compilers.CompilationError, match=r"sm_90.*no_such_name"):
        cuda_compilers.compiler().compile("__global__ void f() { no_such_name; }", "sm_90", ())


@pytest.mark.parametrize(
    ("columns", "vec"), [(1, 1), (7, 1), (8, 8), (127, 1), (128, 4), (1026, 2), (4096, 8), (16384, 4)]
)
def test_threads_cover_a_row_once(columns: int, vec: int) -> None:
    plan = plan_rows(columns, vec, 16, 1024)
    assert plan is not None
    assert plan.LANES & (plan.LANES - 1) == 0
    assert plan.THREADS % plan.LANES == 0
    assert plan.THREADS % 32 == 0
    assert plan.LANES <= 32 or plan.THREADS == plan.LANES
    assert plan.LANES * plan.PACKS * vec >= columns
    assert plan.LANES * (plan.PACKS - 1) * vec < columns


def test_rows_that_do_not_fit_have_no_plan() -> None:
    assert plan_rows(16385, 1, 16, 1024) is None


# ---- what is kept


@needs_nvrtc
def test_the_second_time_nothing_is_compiled(counting: CountingCompiler) -> None:
    source = CudaKernel("fill", SOURCE).text({"VALUE": 1})
    first = compiled_cache.cubin(source, "sm_90", by=counting.as_compiler)
    assert compiled_cache.cubin(source, "sm_90", by=counting.as_compiler) == first
    assert counting.calls == 1
    assert first.startswith(b"\x7fELF")


@needs_nvrtc
def test_another_source_architecture_option_or_compiler_is_another_entry(counting: CountingCompiler) -> None:
    by = counting.as_compiler
    one, two = (CudaKernel("fill", SOURCE).text({"VALUE": value}) for value in (1, 2))
    compiled_cache.cubin(one, "sm_90", by=by)
    compiled_cache.cubin(two, "sm_90", by=by)
    compiled_cache.cubin(one, "sm_80", by=by)
    compiled_cache.cubin(one, "sm_90", ("--fmad=false",), by=by)
    compiled_cache.cubin(one, "sm_90", by=Compiler("another", by.compile))
    assert counting.calls == 5
    assert len(entries()) == 5


@needs_nvrtc
@pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 4096])
def test_a_damaged_entry_is_compiled_again(counting: CountingCompiler, damage: bytes) -> None:
    source = CudaKernel("fill", SOURCE).text({"VALUE": 1})
    wanted = compiled_cache.cubin(source, "sm_90", by=counting.as_compiler)
    (path,) = entries()
    path.write_bytes(damage)
    assert compiled_cache.cubin(source, "sm_90", by=counting.as_compiler) == wanted
    assert counting.calls == 2
    assert path.read_bytes() == hashlib.sha256(wanted).digest() + wanted


@needs_nvrtc
def test_a_folder_that_cannot_be_used_is_no_obstacle(
    counting: CountingCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    source = CudaKernel("fill", SOURCE).text({"VALUE": 1})
    assert compiled_cache.cubin(source, "sm_90", by=counting.as_compiler).startswith(b"\x7fELF")
    assert blocked.read_text() == "not a folder"


# ---- a machine without a compiler


def test_without_a_compiler_the_message_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['cuda'] = None\n"
        "from torchstone.errors import MissingExtraError\n"
        "from torchstone.kernels import cuda_compilers\n"
        "print(cuda_compilers.why_unavailable())\n"
        "try:\n    cuda_compilers.compiler()\n"
        "except MissingExtraError as error:\n    print(error)\n"
    )
    given = {"PATH": "", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=given, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [cuda_compilers.NOT_INSTALLED] * 2, done.stderr
    assert "torchstone[cuda]" in cuda_compilers.NOT_INSTALLED
