"""Chooses valid values for the arguments of recorded calls, of which only shapes, strides and dtypes were recorded.

An index must lie within what it indexes, a variance is not negative, a logarithm needs positive numbers. A fact is such
knowledge about one operator. It has names of arguments, and a function from the sizes of a call to the fills of those
arguments (how their values are drawn). Tables hold the facts by operator. Other arguments are filled by their dtype.
Facts need shapes only and do not import torch.

An invalid call (a ``gather`` without an index) is no error here: torch's own operator will refuse it.
"""

from torchstone.suites.value_facts.all_facts import FACTS, is_known
from torchstone.suites.value_facts.recorded_arguments import ValuedCall, fills_for

__all__ = ["FACTS", "ValuedCall", "fills_for", "is_known"]
