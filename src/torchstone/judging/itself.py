"""Whether torch meets its own bounds when it is asked again.

On a device some of torch's operators add by atomics, in whatever order they come; where terms cancel, no two results
are alike. What holds for torch cannot be asked of a kernel: such a case has no answer, and that is said, but only once
somebody fails it. A candidate cannot bring that about: torch is asked without it.
"""

from __future__ import annotations

import torch

from torchstone.judging.agreement import compare
from torchstone.judging.outcome import Mismatch
from torchstone.judging.reference import Expected, Reference

_TIMES = 4


def agrees_with_itself(expected: Expected, device: torch.device, desk: torch.device) -> bool:
    """Ask torch for the same call several more times, and compare each answer as a candidate's would be."""
    reference = Reference(expected.call.case, device, desk)
    if reference.lottery is not None:
        return True  # is not expected to
    for _ in range(_TIMES):
        (again,) = reference.expect_many([expected.call], with_bounds=False)
        outputs = [output.native for output in again.outputs]
        if isinstance(compare(expected, outputs, again.inputs_after), Mismatch):
            return False
    return True
