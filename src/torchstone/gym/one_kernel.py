"""One kernel judged here or at Modal, in one call. For more than one keep an `Evaluator`: it stays warm."""

from __future__ import annotations

from typing import Any

from torchstone.errors import UsageError
from torchstone.gym.config import EvaluatorConfig
from torchstone.gym.evaluator import Evaluator, TurnResult, run_now


def run_code(code: str, op_name: str, config: EvaluatorConfig | None = None, **fields: Any) -> TurnResult:
    """Judge a kernel's source text on this machine."""
    with Evaluator(config, **fields) as evaluator:
        if evaluator.is_modal:
            raise UsageError(f"run_code judges on this machine, and gpu is '{evaluator.config.gpu}'. Use eval_code.")
        result: TurnResult = run_now(evaluator.result_of(code, op_name))
        return result


def eval_code(code: str, op_name: str, config: EvaluatorConfig | None = None, **fields: Any) -> TurnResult:
    """Judge a kernel's source text at Modal, on the type of GPU that `gpu` names."""
    with Evaluator(config, **fields) as evaluator:
        if not evaluator.is_modal:
            raise UsageError("eval_code judges at Modal, and gpu is 'local'. Name a type of GPU, or use run_code.")
        result: TurnResult = run_now(evaluator.result_of(code, op_name))
        return result
