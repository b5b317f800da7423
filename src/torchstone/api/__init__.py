"""The Python API: judge kernels without a run folder, with the isolation and the engine of the command line."""

from torchstone.api.evaluation import Evaluation
from torchstone.api.functions import capture, check, close, evaluate, evaluate_many, measure
from torchstone.api.judge import Judge
from torchstone.api.kernels import Kernel, as_implementation
from torchstone.api.settings import Settings

__all__ = [
    "Evaluation",
    "Judge",
    "Kernel",
    "Settings",
    "as_implementation",
    "capture",
    "check",
    "close",
    "evaluate",
    "evaluate_many",
    "measure",
]
