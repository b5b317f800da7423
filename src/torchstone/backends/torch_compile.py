"""Backend `compile`: PyTorch's own operators under ``torch.compile``, as candidates.

The worker gets a few lines of Python for each operator, which compile one call of it. It is compiled again for every
shape (no dynamic shapes), as a whole graph. An operator that the compiler refuses is `unsupported`, with the reason.
For a KernelBench problem, the whole model is compiled.
Inductor writes C++ on the CPU and Triton on a GPU. Attribution shows which operators it leaves to PyTorch or a library
(matrix products, sorting).
"""

from __future__ import annotations

from torchstone.backends.base import BackendOptions
from torchstone.schema import Implementation, Language, SourceFile, SourceFiles, is_model

_SOURCE = """\
import torch
import torch._dynamo.config
import torch._dynamo.exc
import torch._inductor.config

# One process serves all cases of an operator, each with shapes of its own.
torch._dynamo.config.recompile_limit = 1 << 16
torch._dynamo.config.accumulated_recompile_limit = 1 << 16
# Results whose size or value depends on the data are not refused beforehand.
torch._dynamo.config.capture_dynamic_output_shape_ops = True
torch._dynamo.config.capture_scalar_outputs = True
# No helper processes: there is one kernel to compile at a time.
torch._inductor.config.compile_threads = 1

operator = torch.ops.{operator}


def call(*args, **kwargs):
    return operator(*args, **kwargs)


compiled = torch.compile(call, fullgraph=True, dynamic=False)


REFUSALS = (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError, torch._dynamo.exc.TorchRuntimeError)


def kernel(*args, **kwargs):
    try:
        return compiled(*args, **kwargs)
    except REFUSALS as error:
        reason = " ".join(str(error).partition("Hint:")[0].split())
        raise NotImplementedError(f"torch.compile cannot compile this: {{reason}}") from error
"""


_MODEL = """\
import torch
from torchstone_problem import Model


def compiled(*arguments):
    model = Model(*arguments)
    model.compile(fullgraph=True, dynamic=False)
    return model
"""
"""The model of a KernelBench problem file, compiled as a whole."""


class CompileBackend:
    """Each operator, compiled by torch.compile.

    Offers every operator; what cannot be compiled shows in the worker.
    """

    def __init__(self, options: BackendOptions) -> None:
        self._language: Language = "triton" if options.device_type == "cuda" else "cpp"

    def implementation(self, operator: str) -> Implementation | None:
        if is_model(operator):
            model = SourceFiles((SourceFile("compiled_model.py", _MODEL),), "compiled", "torch.compile(Model)")
            return Implementation("compile", operator, model, self._language)
        source = SourceFile("compiled.py", _SOURCE.format(operator=operator))
        origin = SourceFiles((source,), "kernel", f"torch.compile(torch.ops.{operator})")
        return Implementation("compile", operator, origin, self._language, "torch.compile")
