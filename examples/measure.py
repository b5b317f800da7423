"""How fast is a kernel? Only the cases that are meant for timing; here one of our own instead of a suite's."""

import torchstone
from torchstone import Case, Normal, Tensor

SOURCE = """
import torch

def softplus(x, beta=1, threshold=20):
    return torch.log1p(torch.exp(-x.abs())) + x.clamp(min=0)
"""

CASE = Case(
    suite="mine",
    operator="aten.softplus.default",
    args=(Tensor(shape=(512, 512), dtype="float32", fill=Normal()),),
    timed=True,
)


def main() -> None:
    result = torchstone.measure(SOURCE, "aten.softplus.default", cases=(CASE,), device="cpu", effort="quick")
    (operator,) = result.summary.operators
    print("agrees" if result.agrees else result.failures())
    if result.speedup is None:
        print("the samples do not resolve a speedup")
    else:
        print(f"{result.speedup:.2f}x, 95 % interval {operator.speedup_low:.2f} to {operator.speedup_high:.2f}")


if __name__ == "__main__":
    main()
