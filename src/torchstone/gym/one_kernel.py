"""Judges one kernel in one call: `run_code` here, `eval_code` at Modal. For more kernels, keep an `Evaluator` open."""

from __future__ import annotations

from typing import Any

from torchstone.api.run_now import run_now
from torchstone.errors import UsageError
from torchstone.gym.config import LOCAL, MODAL, EvaluatorConfig
from torchstone.gym.evaluator import Evaluator, TurnResult


def run_code(code: str, op_name: str, config: EvaluatorConfig | None = None, **fields: Any) -> TurnResult:
    """Judge a kernel's source text on this machine or, with the executor `ray`, on its cluster; not at Modal."""
    with Evaluator(config, **fields) as evaluator:
        if evaluator.config.executor_name != LOCAL:
            raise UsageError(f"run_code judges on this machine, and {_asked_instead(evaluator.config)}")
        result: TurnResult = run_now(evaluator.result_of(code, op_name))
        return result


def eval_code(code: str, op_name: str, config: EvaluatorConfig | None = None, **fields: Any) -> TurnResult:
    """Judge a kernel's source text at Modal, on the type of GPU that `gpu` names."""
    with Evaluator(config, **fields) as evaluator:
        if not evaluator.is_modal:
            raise UsageError(f"eval_code judges at Modal, and {_asked_instead(evaluator.config)}")
        result: TurnResult = run_now(evaluator.result_of(code, op_name))
        return result


def _asked_instead(config: EvaluatorConfig) -> str:
    """Where the configuration has kernels judged, and what to use for it."""
    if config.executor_name == LOCAL:
        return "gpu is 'local'. Name a type of GPU, or use run_code."
    if config.executor_name == MODAL:
        return f"gpu is '{config.gpu}'. Use eval_code."
    return f"executor is '{config.executor_name}'. Leave executor out, or use an Evaluator."
