"""Chooses valid values for the arguments of recorded calls, of which only shapes, strides and dtypes were recorded.

An index must lie within what it indexes, a variance is not negative, a logarithm needs positive numbers. A rule
holds for one operator. It has names of arguments, and a function from the sizes of a call to the fills of those
arguments (how their values are drawn). Tables hold the rules by operator. Other arguments are filled by their dtype.
Rules need shapes only and do not import torch.

An invalid call (a ``gather`` without an index) is no error here: torch's own operator will refuse it.
"""

from torchstone.suites.valid_values.all_rules import RULES, is_known
from torchstone.suites.valid_values.recorded_arguments import ValuedCall, fills_for

__all__ = ["RULES", "ValuedCall", "fills_for", "is_known"]
