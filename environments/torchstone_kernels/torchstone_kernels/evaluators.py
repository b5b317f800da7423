"""One evaluator for each configuration in a process: tasks and environments share its judges."""

from __future__ import annotations

from threading import Lock

from torchstone.gym import Evaluator, EvaluatorConfig

_lock = Lock()
_open: dict[EvaluatorConfig, Evaluator] = {}


def evaluator_of(config: EvaluatorConfig) -> Evaluator:
    """The evaluator of the configuration, made when it is first asked for."""
    with _lock:
        if config not in _open:
            _open[config] = Evaluator(config)
        return _open[config]


def close_evaluator(config: EvaluatorConfig) -> None:
    """End its processes. The next request makes another."""
    with _lock:
        evaluator = _open.pop(config, None)
    if evaluator is not None:
        evaluator.close()
