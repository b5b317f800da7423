"""What does a model call? The block's operators become a file of cases, which are then judged with a kernel."""

import tempfile
from pathlib import Path

import torch

import torchstone

RELU = Path(__file__).parent / "kernels" / "relu" / "relu.py"


def main() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    with tempfile.TemporaryDirectory() as folder:
        with torchstone.capture(Path(folder) / "calls.jsonl") as captured:
            for _ in range(3):
                model(torch.randn(8, 16)).square().mean().backward()
        print(captured.closing_line.partition(": ")[2])
    (relu,) = (case for case in captured.cases if case.operator == "aten.relu.default")
    print(f"{relu.operator}({relu.label}) was called {relu.occurrences} times")
    result = torchstone.check(RELU, relu.operator, cases=(relu,), device="cpu", effort="quick")
    print(f"agrees: {result.agrees}")


if __name__ == "__main__":
    main()
