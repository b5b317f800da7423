"""``python fake_program.py ARGUMENTS``: the real command line, with a runner that needs no benchmark and no torch.

What a pair does is in its name: `fails…`, `slow…` (half a second), `stuck…` (until the runner is closed), `skips…`,
`breaks…` (the runner itself raises), `dies…` (the machine refuses), `regresses…`, `nan…`.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec

from harness.trees import compared, failed
from torchstone.cli import main
from torchstone.errors import InfrastructureError
from torchstone.harness import local_runner
from torchstone.harness.pair_runner import PairOrder
from torchstone.harness.results import Comparison


class NamedRunner:
    """Answers by the name of the pair."""

    def __init__(self, device_type: str, **more: object) -> None:
        self._closed = threading.Event()

    def run(self, order: PairOrder) -> Comparison:
        name = order.name.rpartition("/")[2]
        if name.startswith("slow"):
            time.sleep(0.5)
        if name.startswith("stuck"):
            self._closed.wait()
        if name.startswith("breaks"):
            raise RuntimeError("a bug in the runner")
        if name.startswith("dies"):
            raise InfrastructureError("the GPU fell off the bus. Restart the machine.")
        if name.startswith("fails"):
            return failed(order.name)
        if name.startswith("skips"):
            return failed(order.name, "skipped", "needs 8 GPUs")
        if name.startswith("regresses"):
            return compared(order.name, 1.0, 1.3)
        found = compared(order.name)
        if name.startswith("nan"):
            side = msgspec.structs.replace(found.optimized, custom_metrics={"loss": float("nan"), "tokens": 3.0})
            return msgspec.structs.replace(found, optimized=side)
        return found

    def close(self) -> None:
        self._closed.set()


if __name__ == "__main__":
    local_runner.LocalPairRunner = NamedRunner  # type: ignore[misc,assignment]
    sys.exit(main(sys.argv[1:]))
