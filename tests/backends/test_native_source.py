"""C++ and CUDA in kernel folders: which files are taken, how arguments reach a C++ function, and real builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchstone import operators
from torchstone.api import as_implementation
from torchstone.backends import BackendOptions
from torchstone.backends.directory import DirectoryBackend
from torchstone.backends.native_source import declaration_in
from torchstone.executors import ExecutorOptions
from torchstone.executors.local import LocalExecutor
from torchstone.schema import (
    Agrees,
    Case,
    Crashed,
    Implementation,
    Job,
    Normal,
    Record,
    Scalar,
    SourceFile,
    SourceFiles,
    Tensor,
    Unsupported,
)

CPP = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

at::Tensor add__Tensor(const at::Tensor& self, const at::Tensor& other, double alpha) {
  TORCH_CHECK(self.is_contiguous() && other.is_contiguous() && self.sizes() == other.sizes());
  at::Tensor result = at::empty_like(self);
  const float* left = self.const_data_ptr<float>();
  const float* right = other.const_data_ptr<float>();
  float* sum = result.mutable_data_ptr<float>();
  for (int64_t place = 0; place < self.numel(); ++place) {
    sum[place] = left[place] + static_cast<float>(alpha) * right[place];
  }
  return result;
}
"""
CUDA = """
#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>

__global__ void relu(const float* from, float* to, int64_t count) {
  int64_t place = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (place < count) to[place] = from[place] < 0.0f ? 0.0f : from[place];
}

at::Tensor relu_kernel_impl(const at::Tensor& self) {
  at::Tensor input = self.contiguous();
  at::Tensor output = at::empty_like(input);
  int64_t blocks = (input.numel() + 255) / 256;
  relu<<<blocks, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      input.const_data_ptr<float>(), output.mutable_data_ptr<float>(), input.numel());
  return output;
}
"""


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def kernel(root: Path, operator: str) -> Implementation:
    found = DirectoryBackend(BackendOptions(kernels_dir=root)).implementation(operator)
    assert found is not None
    return found


def names(root: Path, operator: str = "aten.relu.default") -> list[str]:
    origin = kernel(root, operator).origin
    assert isinstance(origin, SourceFiles)
    return [file.name for file in origin.files]


# ---- which files


@pytest.mark.parametrize(
    "name", ["relu.cu", "relu_attempt_3.cu", "relu_implementation.cu", "relu_implementation_v2.cu"]
)
def test_cuda_files_are_named_as_python_files_are(tmp_path: Path, name: str) -> None:
    write(tmp_path, **{f"relu/{name}": CUDA})
    found = kernel(tmp_path, "aten.relu.default")
    assert found.language == "cuda"
    assert isinstance(found.origin, SourceFiles)
    assert found.origin.entry == "relu_kernel_impl"


def test_a_function_named_as_the_folder_is_an_entry_point_too(tmp_path: Path) -> None:
    write(tmp_path, **{"add__Tensor/add__Tensor_implementation_v1.cpp": CPP})
    found = kernel(tmp_path, "aten.add.Tensor")
    assert found.language == "cpp"
    assert isinstance(found.origin, SourceFiles)
    assert found.origin.entry == "add__Tensor"


def test_the_highest_number_wins_whatever_its_language(tmp_path: Path) -> None:
    write(tmp_path, **{"relu/relu_implementation_v1.py": "x = 1", "relu/relu_implementation_v10.cu": CUDA})
    write(tmp_path, **{"relu/relu_implementation_v9.cpp": CPP})
    assert names(tmp_path) == ["relu_implementation_v10.cu"]
    write(tmp_path, **{"relu/relu_implementation_v11.py": "x = 1"})
    assert names(tmp_path) == ["relu_implementation_v11.py"]


def test_sources_of_one_attempt_belong_together_and_headers_travel_along(tmp_path: Path) -> None:
    files = ("relu_implementation_v2.cu", "relu_implementation_v2.cpp", "relu_implementation_v1.cpp", "tile.cuh", "n.h")
    write(tmp_path, **{f"relu/{name}": CUDA for name in files})
    assert names(tmp_path) == ["relu_implementation_v2.cu", "n.h", "relu_implementation_v2.cpp", "tile.cuh"]
    assert kernel(tmp_path, "aten.relu.default").language == "cuda"


def test_beside_python_of_the_same_name_sources_are_for_it_to_read(tmp_path: Path) -> None:
    write(tmp_path, **{"relu/relu.py": "x = 1", "relu/relu.cu": CUDA})
    assert names(tmp_path) == ["relu.py", "relu.cu"]
    assert kernel(tmp_path, "aten.relu.default").language == "python"


def test_a_name_in_a_longer_name_or_of_another_space_is_no_entry_point(tmp_path: Path) -> None:
    text = "at::Tensor relu(at::Tensor x) { return my_relu_kernel_impl(x) + at::relu_kernel_impl(x); }"
    write(tmp_path, **{"relu/relu.cpp": text})
    origin = kernel(tmp_path, "aten.relu.default").origin
    assert isinstance(origin, SourceFiles)
    assert origin.entry == "relu"


def test_the_api_takes_paths_of_sources(tmp_path: Path) -> None:
    write(tmp_path, **{"fast.cu": CUDA, "slow.cpp": CPP})
    assert as_implementation(tmp_path / "fast.cu", "aten.relu.default").language == "cuda"
    found = as_implementation(str(tmp_path / "slow.cpp"), "aten.add.Tensor", "add__Tensor")
    assert found.language == "cpp"


# ---- what can be declared elsewhere


@pytest.mark.parametrize(
    ("definition", "declaration"),
    [
        ("at::Tensor f(const at::Tensor& self) {", "at::Tensor f(const at::Tensor&);"),
        (
            "torch::Tensor f(torch::Tensor x,\n    int64_t dim, bool keep)\n{",
            "torch::Tensor f(torch::Tensor, int64_t, bool);",
        ),
        ("at::Tensor& f(at::Tensor& x) {", "at::Tensor& f(at::Tensor&);"),
        ("at::Tensor f(at::Tensor, double) {", "at::Tensor f(at::Tensor, double);"),
        (
            "std::tuple<at::Tensor, at::Tensor> f(std::optional<at::Tensor> w, at::IntArrayRef s) {",
            "std::tuple<at::Tensor, at::Tensor> f(std::optional<at::Tensor>, at::IntArrayRef);",
        ),
        ("at::Tensor f() {", "at::Tensor f();"),
        ("Tensor f(Tensor x) {", None),
        ("at::Tensor f(const Settings& s) {", None),
        ("static at::Tensor f(at::Tensor x) {", None),
        ("template <class T> T f(T x) {", None),
        ("at::Tensor f(at::Tensor x, double alpha = 1) {", None),
        ("at::Tensor f(at::Tensor x);", None),
        ("  return f(x) {", None),
    ],
)
def test_a_plain_definition_can_be_declared_elsewhere(definition: str, declaration: str | None) -> None:
    assert declaration_in(f"#include <ATen/ATen.h>\n\n{definition}\n  return x;\n}}\n", "f") == declaration


# ---- how arguments reach a C++ function


def by_position(arity: int, operator: str = "aten.add.Tensor") -> Any:
    from torchstone.worker.building import _by_position

    return _by_position(lambda *given: given, "f", arity, operators.resolve(operator)._schema.arguments)


def test_arguments_come_in_the_schemas_order_with_defaults_where_the_call_gives_none() -> None:
    assert by_position(3)("x", "y", alpha=2) == ("x", "y", 2)
    assert by_position(3)("x", "y") == ("x", "y", 1)
    assert by_position(3)("x", other="y") == ("x", "y", 1)


def test_a_function_may_take_fewer_arguments_as_long_as_no_call_gives_more() -> None:
    assert by_position(2)("x", "y") == ("x", "y")
    with pytest.raises(TypeError, match="f takes 2 arguments, and the call gives alpha too"):
        by_position(2)("x", "y", alpha=2)


def test_an_argument_without_default_must_be_given() -> None:
    with pytest.raises(TypeError, match="no other"):
        by_position(3)("x")


# ---- what is seen before anything is built


def test_a_source_without_the_entry_point_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    from torchstone.worker.building import BuildError, native_kernel

    text = "at::Tensor one(at::Tensor x) {\n  if (x.dim()) {\n  }\n  return x;\n}\nstatic int two()\n{\n}\n"
    for name in ("relu.cpp", "relu.cu"):
        with pytest.raises(BuildError) as refused:
            native_kernel(SourceFiles((SourceFile(name, text),), "relu"), "aten.relu.default", tmp_path)
        expected = f"{name} defines no function 'relu', the expected name of the kernel; it defines one, two"
        assert str(refused.value) == expected
    bound = SourceFiles((SourceFile("relu.cpp", "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}"),), "relu")
    assert callable(native_kernel(bound, "aten.relu.default", tmp_path))


# ---- real builds


def judge(root: Path, device: str, *cases: Case) -> list[Record]:
    jobs = [Job(case, kernel(root, case.operator), "quick", measured=False) for case in cases]
    records = {record.job_key: record for record in LocalExecutor(ExecutorOptions(device=device)).run(jobs)}
    return [records[job.key] for job in jobs]


def case(operator: str, tensors: int, **named: Scalar) -> Case:
    tensor = Tensor((19, 7), "float32", Normal())
    return Case("test", operator, (tensor,) * tensors, named, jitter=False)


def test_c_plus_plus_is_built_in_the_sandbox_and_judged(tmp_path: Path) -> None:
    including = CPP.replace("static_cast<float>(alpha)", "shared::narrow(alpha)").replace(
        "\n", '\n#include "narrow.h"\n', 1
    )
    write(tmp_path, **{"narrow.h": "namespace shared { inline float narrow(double value) { return value; } }\n"})
    write(tmp_path, **{"add__Tensor/add__Tensor.cpp": including})
    write(tmp_path, **{"relu/relu.cpp": '#include "nowhere.h"\nat::Tensor relu();'})
    write(tmp_path, **{"exp/exp.cu": CUDA.replace("relu", "exp")})
    plain, scaled, broken, elsewhere = judge(
        tmp_path,
        "cpu",
        case("aten.add.Tensor", 2),
        case("aten.add.Tensor", 2, alpha=Scalar(2)),
        case("aten.relu.default", 1),
        case("aten.exp.default", 1),
    )
    assert isinstance(plain.verdict, Agrees), plain.verdict
    assert isinstance(scaled.verdict, Agrees), scaled.verdict
    assert plain.implementation.language == "cpp"
    assert plain.attribution is not None
    assert plain.attribution.operators == {}
    assert scaled.stage_seconds["compile"] < 2, "built once for all cases"
    assert isinstance(broken.verdict, Crashed), broken.verdict
    assert broken.verdict.stage == "compile"
    assert broken.verdict.message.startswith("BuildError: relu.cpp:1:10: fatal error: nowhere.h")
    assert isinstance(elsewhere.verdict, Unsupported), elsewhere.verdict
    assert "a CUDA kernel needs a GPU" in elsewhere.verdict.reason


@pytest.mark.gpu
def test_cuda_is_built_in_the_sandbox_and_judged(tmp_path: Path) -> None:
    write(tmp_path, **{"relu/relu_implementation_v1.cu": CUDA})
    (record,) = judge(tmp_path, "cuda:0", case("aten.relu.default", 1))
    assert isinstance(record.verdict, Agrees), record.verdict
    assert record.implementation.language == "cuda"


@pytest.mark.gpu
def test_a_cuda_file_with_its_c_plus_plus_file_is_one_kernel(tmp_path: Path) -> None:
    declared = "#include <ATen/core/Tensor.h>\nat::Tensor relu_kernel_impl(const at::Tensor& self);\n"
    write(tmp_path, **{"relu/relu_implementation_v1.cu": CUDA, "relu/relu_implementation_v1.cpp": declared})
    (record,) = judge(tmp_path, "cuda:0", case("aten.relu.default", 1))
    assert isinstance(record.verdict, Agrees), record.verdict
