"""One kernel for each of several operators, judged together: the processes start once for all."""

from pathlib import Path

import torchstone

KERNELS = Path(__file__).parent / "kernels"


def main() -> None:
    results = torchstone.evaluate_many(
        {
            "aten.relu.default": KERNELS / "relu" / "relu.py",
            "aten.gelu.default": KERNELS / "gelu" / "gelu_attempt_1.py",
        },
        device="cpu",
        effort="quick",
    )
    for operator, result in results.items():
        print(f"{operator}: agrees on {result.correctness:.0%} of {len(result.records)} cases")
        for line in result.failures()[:1]:
            print(line)


if __name__ == "__main__":
    main()
