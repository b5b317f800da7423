"""The app of `torchstone deploy modal` as a file, and its function called on this machine: no account, no GPU.

`modal deploy examples/modal_app.py` deploys it. Needs the extra `modal`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import modal

from torchstone import Judge
from torchstone.executors import ExecutorOptions, Session
from torchstone.executors.modal_app import APP, declare_functions
from torchstone.executors.modal_executor import ModalExecutor
from torchstone.schema import Job, Record

KERNEL = "def relu_kernel_impl(x):\n    return x.clamp(min=0)\n"

app = modal.App(APP)
functions = declare_functions(modal, app, gpus=("T4", "H100"), max_containers=4)


class LocalCall:
    """A call that runs in this process when its answer is asked for."""

    def __init__(self, function: Any, texts: tuple[str, ...]) -> None:
        self._function, self._texts = function, texts

    def get(self) -> Any:
        return self._function.local(*self._texts)

    def cancel(self, terminate_containers: bool = False) -> None:
        pass


class LocalFunction:
    def __init__(self, function: Any) -> None:
        self._function = function

    def spawn(self, *texts: str) -> LocalCall:
        return LocalCall(self._function, texts)


class LocalContainers:
    """The executor `modal` with the app's functions on this machine. Leave it out to judge at Modal."""

    def function(self, name: str) -> LocalFunction:
        return LocalFunction(functions[name])

    def open(self) -> Session:
        return self._executor().open()

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        return self._executor().run(jobs)

    def _executor(self) -> ModalExecutor:
        return ModalExecutor(ExecutorOptions(device="cpu", gpu="T4"), self)


def main() -> None:
    print("functions:", ", ".join(functions))
    with Judge(executor=LocalContainers(), device="cpu", effort="quick") as judge:
        found = judge.check(KERNEL, "aten.relu.default")
    print(f"{found.operator}: {found.verdict} in {len(found.records)} cases")
    print(f"results were {found.records[0].isolation.results}")


if __name__ == "__main__":
    main()
