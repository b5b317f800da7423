"""The smoke suite: every kind of operator once or twice, small enough to be judged in a minute on two cores.

Each operator is called empty, with one element, and on strided or shifted memory; nearly all in several dtypes. Most
are also called on sizes large enough to be timed. Tables by family of operators describe the cases (shapes, dtypes, how
values are drawn). They hold no values and do not import torch.
"""

from torchstone.suites.smoke.rows import EXACT, EXCUSES, FLOATS
from torchstone.suites.smoke.suite import TABLE, SmokeSuite

__all__ = ["EXACT", "EXCUSES", "FLOATS", "TABLE", "SmokeSuite"]
