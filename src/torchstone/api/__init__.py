"""The Python API: judges kernels as the command line does, in the same sandbox, but without a run folder."""

from torchstone.api.evaluation import Evaluation
from torchstone.api.judge import Judge
from torchstone.api.kernel_argument import Kernel, as_implementation
from torchstone.api.settings import Settings
from torchstone.api.top_level_functions import capture, check, close, evaluate, evaluate_many, measure

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
