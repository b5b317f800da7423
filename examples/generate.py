"""A model writes kernels, is told what is wrong, and writes better ones. Its replies are recorded: no key is needed."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from torchstone.generation import GenerationRequest, generate
from torchstone.generation.run import GenerationPlan
from torchstone.schema.generation import Attempt, Judged

RECORDED = Path(__file__).parent / "generation" / "recorded.jsonl"


class Watcher:
    """Prints each attempt as it is judged."""

    def planned(self, plan: GenerationPlan, folder: Path) -> None:
        print(f"at most {plan.total} attempts")

    def recorded(self, record: Attempt | None) -> None:
        if record is not None:
            told = record.outcome.verdict if isinstance(record.outcome, Judged) else "no code"
            print(f"{record.operator} attempt {record.number}: {told}")

    def warned(self, message: str) -> None:
        print(f"warning: {message}")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        request = GenerationRequest(
            operators=("relu", "add"),
            replay=RECORDED,
            dsl="pytorch",
            device="cpu",
            max_attempts=2,
            output_dir=Path(folder),
        )
        result = generate(request, Watcher())
        print((result.folder / "OVERALL_SUMMARY.txt").read_text())
        print((result.folder / "relu" / "best.json").read_text())
