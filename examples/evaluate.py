"""Both: every case is checked, and those meant for timing are timed. The kernel is a file."""

from pathlib import Path

import torchstone

KERNEL = Path(__file__).parent / "kernels" / "relu" / "relu.py"


def main() -> None:
    result = torchstone.evaluate(KERNEL, "aten.relu.default", device="cpu", effort="quick")
    speed = "unresolved" if result.speedup is None else f"{result.speedup:.2f}x"
    print(f"agrees: {result.agrees}, speedup: {speed}")
    for record in result.records:
        timed = "timed" if record.measurement is not None else "checked"
        print(f"{record.case.label}: {timed}, {len(record.isolation.active)} layers of isolation")


if __name__ == "__main__":
    main()
