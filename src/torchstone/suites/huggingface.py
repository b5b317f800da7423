"""Suite `huggingface_100`: calls of 100 well-known models of the Hugging Face hub in a training step.

`tools/make_huggingface_100.py` traced the calls without weights into a file of this package. Their values come from
tables of valid values by operator (`valid_values`), as for all recorded calls. On CUDA, attention calls are converted
(`cuda_attention`). `MODELS_FILE` tells how each model was traced.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import msgspec

from torchstone.suites.base import CaseQuery
from torchstone.suites.cuda_attention import BACKWARD, FORWARD, on_cuda
from torchstone.suites.recorded_call_files import Recorded, read_source
from torchstone.suites.recorded_call_text import format_call
from torchstone.suites.torchbench import TraceSuite

_DATA = Path(__file__).parent / "data"
CALLS_FILE = _DATA / "huggingface_100.jsonl.gz"
MODELS_FILE = _DATA / "huggingface_100_models.json"


class HuggingFaceSuite(TraceSuite):
    """Operator calls of 100 well-known Hugging Face models in a step of training."""

    name = "huggingface_100"
    uses: ClassVar[frozenset[str]] = frozenset()

    def _recorded(self, query: CaseQuery) -> list[Recorded]:
        place = f"{CALLS_FILE}:{query.device_type}"
        if place not in self._sources:
            rows = read_source(str(CALLS_FILE))
            self._sources[place] = [_on_cuda(row) for row in rows] if query.device_type == "cuda" else rows
        return self._sources[place]


def _on_cuda(recorded: Recorded) -> Recorded:
    if recorded.operator not in (FORWARD, BACKWARD):
        return recorded
    operator, call = on_cuda(recorded.operator, recorded.call())
    return recorded._replace(row=msgspec.structs.replace(recorded.row, op_name=operator, args=format_call(call)))
