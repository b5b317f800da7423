"""Languages that a model can be asked to write a kernel in: file name, rules, and one worked example each."""

from __future__ import annotations

import os
from importlib.resources import files

import msgspec

from torchstone.errors import UsageError, unknown_name

EXAMPLE_OPERATOR = "aten.softshrink.default"
"""The operator of every worked example. It is rarely requested, so the example is seldom the answer."""


class Language(msgspec.Struct, frozen=True):
    """A language in which kernels can be written."""

    name: str
    """Value of `--dsl`."""
    title: str
    """Name in prompts and messages."""
    suffix: str
    """Suffix of the kernel's file."""
    fence: str
    """The word behind the three backticks of a code block."""
    rules: tuple[str, ...]
    """Sentences for the prompt."""
    devices: tuple[str, ...]
    """Types of devices on which its kernels run: ``cpu``, ``cuda``."""
    example_checked: str = "judged"
    """How the examples were checked without a GPU: judged, run in the language's interpreter, compiled, or not."""

    @property
    def example(self) -> str:
        """The text of the worked example, a kernel of `EXAMPLE_OPERATOR`."""
        return self._example("")

    @property
    def gradient_example(self) -> str:
        """The text of the example that is differentiable by autograd, with a backward pass of its own."""
        return self._example("_gradient")

    def _example(self, kind: str) -> str:
        return (files(__package__) / "examples" / f"{self.name}{kind}{self.suffix}").read_text(encoding="utf-8")


_OWN_WORK = "Write the computation yourself. torch may allocate and copy for another memory layout, not compute."

NATIVE_RULES = (
    "The entry point is a C++ function at the top level. It is called by position, in the order of the signature.",
    "Types are those that pybind11 and torch convert: at::Tensor, at::Scalar, double, int64_t, bool, std::string, "
    "at::IntArrayRef, std::optional<T>; several results are a std::tuple or std::vector.",
    "Include small headers (ATen/core/Tensor.h, ATen/ops/NAME.h), not torch/extension.h: they compile faster.",
    "TORCH_CHECK_NOT_IMPLEMENTED(condition, text) refuses a call; that does not count as right.",
)
"""Rules for files whose entry point is a C++ function."""

_ALL = (
    Language(
        "triton",
        "Triton",
        ".py",
        "python",
        (
            "The file is Python: kernels with @triton.jit, and the entry point, which launches them.",
            _OWN_WORK,
            "Compute 16-bit floats in float32, and convert back when storing.",
            "Mask every load and store; sizes need not be multiples of the block. BLOCK sizes are powers of two.",
            "Use int64 offsets where a tensor may have more than 2**31 elements.",
            "An @triton.autotune with few configurations is allowed; its time counts as compiling.",
        ),
        ("cuda",),
    ),
    Language(
        "cuda",
        "CUDA C++",
        ".cu",
        "cuda",
        (
            *NATIVE_RULES,
            _OWN_WORK,
            "Launch on c10::cuda::getCurrentCUDAStream(), and check with C10_CUDA_KERNEL_LAUNCH_CHECK().",
            "Do not synchronise the device and do not create streams.",
        ),
        ("cuda",),
        example_checked="not",
    ),
    Language(
        "cpp",
        "C++",
        ".cpp",
        "cpp",
        (
            *NATIVE_RULES,
            _OWN_WORK,
            "Use at::parallel_for for threads: it keeps to the number of threads that is allowed.",
        ),
        ("cpu",),
    ),
    Language(
        "pytorch",
        "PyTorch",
        ".py",
        "python",
        (
            "The file is Python and uses torch alone.",
            "Compose other operators of torch. Do not call the operator itself, nor one that only forwards to it.",
        ),
        ("cpu", "cuda"),
    ),
    Language(
        "helion",
        "Helion",
        ".py",
        "python",
        (
            "The file is Python: kernels with @helion.kernel, and the entry point, which calls them.",
            _OWN_WORK,
            "Give @helion.kernel a fixed config: autotuning takes longer than the compile deadline.",
            "The body before hl.tile runs on the host; the body of the tile loop is compiled for the device.",
        ),
        ("cuda",),
        example_checked="interpreted",
    ),
    Language(
        "cutedsl",
        "CuTe DSL",
        ".py",
        "python",
        (
            "The file is Python: kernels with @cute.kernel, a launcher with @cute.jit, and the entry point.",
            _OWN_WORK,
            "Compile once for each dtype with cute.compile and keep the compiled code, never results.",
            "Pass tensors by from_dlpack, and sizes as arguments, so that other shapes need no other code.",
        ),
        ("cuda",),
        example_checked="compiled",
    ),
)

LANGUAGES = {language.name: language for language in _ALL}
"""Name -> language."""


def language_named(name: str) -> Language:
    """The language of this name. Raises UsageError with the known names."""
    if name not in LANGUAGES:
        raise unknown_name("language", name, LANGUAGES)
    return LANGUAGES[name]


def require_runnable(language: Language, device_type: str, dsl: str = "--dsl", device: str = "--device") -> None:
    """Raise UsageError if kernels in this language cannot run on such a device.

    ``dsl``, ``device``: the names of the options that the user set, for the message.
    """
    if device_type in language.devices:
        return
    if language.name == "triton" and os.environ.get("TRITON_INTERPRET") == "1":
        return
    if device_type != "cpu":
        raise UsageError(f"kernels in {language.title} run only on the CPU. Use {device} cpu, or another {dsl}.")
    hint = ", or TRITON_INTERPRET=1 for Triton's interpreter" if language.name == "triton" else ""
    raise UsageError(
        f"kernels in {language.title} do not run on the CPU. Use {dsl} pytorch or {dsl} cpp, or {device} cuda{hint}."
    )
