"""Names that a kernel uses without importing them, and source text that is C++ or CUDA without saying so."""

from __future__ import annotations

import builtins
from importlib.util import find_spec

import pytest

from torchstone.api import as_implementation
from torchstone.backends.missing_imports import COMMON_IMPORTS, added_imports, added_modules
from torchstone.backends.python_source import unbound_names
from torchstone.schema import ImportPath, SourceFile, SourceFiles

RELU = "aten.relu.default"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("@triton.jit\ndef k(p): tl.load(p)\ndef f(x): return torch.relu(x) * math.pi", "math tl torch triton"),
        ("def f(x: torch.Tensor): return x", "torch"),
        ("class A:\n    y = math.pi", "math"),
        ("import torch\ndef f(x): return torch.relu(x)", ""),
        ("import triton.language as tl\ndef f(x): return tl.load(x)", ""),
        ("try:\n    import triton\nexcept ImportError:\n    triton = None\ndef f(): return triton", ""),
        ("def f(torch): return torch.x", ""),
        ("def f(x):\n    import math\n    return math.pi", ""),
        ("def g():\n    global math\n    import math\ndef f(x): return math.pi", ""),
        ("def f(x): return [math for math in x]", ""),
        ("from helpers import *\ndef f(x): return torch.relu(x)", ""),
        ("# torch\ndef f(x): return 'math'", ""),
        ("def f(x) return torch.relu(x)", ""),
    ],
)
def test_only_names_that_are_used_and_not_defined_are_missing(text: str, missing: str) -> None:
    assert unbound_names(text, COMMON_IMPORTS) == frozenset(missing.split())


def test_the_analysis_agrees_with_what_python_itself_cannot_find() -> None:
    texts = [
        "def f(): return math.pi",
        "def f():\n    def g(): return math.pi\n    return g()",
        "def f():\n    math = 1\n    def g(): return math\n    return g()",
        "def f(): return (lambda: math)()",
        "def f(math=2): return math",
        "math = 3\ndef f(): return math",
        "def f():\n    class A:\n        math = 1\n        def g(self): return math\n    return A().g()",
    ]
    for text in texts:
        space: dict[str, object] = {"__builtins__": builtins}
        exec(text, space)
        try:
            space["f"]()  # type: ignore[operator]
            lacks = False
        except NameError:
            lacks = True
        assert bool(unbound_names(text, ("math",))) == lacks, text


def test_statements_and_modules_are_those_of_installed_packages_in_the_first_python_file() -> None:
    source = SourceFiles((SourceFile("kernel.py", "def f(x): return torch.relu(x) * math.pi + tl.x"),), "f")
    triton = ("import triton.language as tl",) if find_spec("triton") else ()
    assert added_imports(source) == ("import math", "import torch", *triton)
    assert added_modules(source)["math"].__name__ == "math"
    assert added_imports(SourceFiles((SourceFile("kernel.cu", "torch::Tensor"),), "f")) == ()
    assert added_imports(ImportPath("torch", "relu")) == ()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("@triton.jit\ndef k(p): tl.load(p)\ndef relu(x): return x", "triton"),
        ("def relu(x): return x", "python"),
        ("I cannot write this kernel.", "python"),
        ("#include <torch/extension.h>\ntorch::Tensor relu(torch::Tensor x) { return x.relu(); }", "cpp"),
        ("__global__ void k(float* p) {}\ntorch::Tensor relu(torch::Tensor x) { k<<<1, 1>>>(0); return x; }", "cuda"),
        ('import torch\nS = """\n#include <cuda.h>\n__global__ void k() {}"""\ndef relu(x): return x', "python"),
    ],
)
def test_the_language_of_source_text_is_recognised(text: str, language: str) -> None:
    found = as_implementation(text, RELU)
    assert found.language == language
