"""Is a kernel right? Every case of the operator is judged, nothing is timed."""

import torch

import torchstone


def relu(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x < 0, 0, x)


def leaky_relu(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x, 0.001 * x)


def main() -> None:
    for kernel in (relu, leaky_relu):
        result = torchstone.check(kernel, "aten.relu.default", device="cpu", effort="quick")
        print(f"{kernel.__name__}: agrees on {result.correctness:.0%} of {len(result.records)} cases")
        for line in result.failures()[:1]:
            print(line)


if __name__ == "__main__":  # the file is imported again in the worker, where it must only define things
    main()
