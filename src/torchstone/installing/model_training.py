"""Trains the model of a user's script, with the batches, loss and optimizer that the script defines.

The script is a Python file with ``make_model()`` and ``make_batch(step)``; ``forward(model, batch)``, ``loss(output,
batch)`` and ``make_optimizer(parameters)`` are optional.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils import _pytree as pytree

from torchstone.errors import KernelError
from torchstone.tensor_files import epsilon, save_tensors

_REQUIRED = ("make_model", "make_batch")


class ScriptError(Exception):
    """The script is faulty. The message is one line and says how."""


class Script:
    """The functions that a script defines, with defaults for the optional ones."""

    def __init__(self, path: Path) -> None:
        self._module = ModuleType("torchstone_model_script")
        self._module.__file__ = str(path)
        self._name = path.name
        sys.modules[self._module.__name__] = self._module
        sys.path.insert(0, str(path.resolve().parent))
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ScriptError(f"script {path} cannot be read: {error}") from error
        self.guarded("it", lambda: exec(compile(text, str(path), "exec"), self._module.__dict__))
        missing = [name for name in _REQUIRED if not callable(getattr(self._module, name, None))]
        if missing:
            raise ScriptError(f"{path.name} defines no function {' and no '.join(missing)}")

    def make_model(self) -> torch.nn.Module:
        model = self._call("make_model")
        if not isinstance(model, torch.nn.Module):
            raise ScriptError(f"{self._name}: make_model returned {type(model).__name__}, no torch.nn.Module")
        return model

    def make_batch(self, step: int) -> tuple[Any, ...]:
        batch = self._call("make_batch", step)
        if not isinstance(batch, (tuple, list, torch.Tensor)):
            raise ScriptError(f"{self._name}: make_batch returned {type(batch).__name__}, no tuple of inputs")
        return (batch,) if isinstance(batch, torch.Tensor) else tuple(batch)

    def make_optimizer(self, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        if not hasattr(self._module, "make_optimizer"):
            return torch.optim.SGD(parameters, lr=0.01)
        optimizer = self._call("make_optimizer", parameters)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ScriptError(f"{self._name}: make_optimizer returned {type(optimizer).__name__}, no Optimizer")
        return optimizer

    def forward(self, model: torch.nn.Module, batch: tuple[Any, ...]) -> Any:
        if hasattr(self._module, "forward"):
            return self._call("forward", model, batch)
        return self.guarded("the model", lambda: model(*batch))

    def loss(self, output: Any, batch: tuple[Any, ...]) -> torch.Tensor:
        found = self._call("loss", output, batch) if hasattr(self._module, "loss") else _mean_square(output)
        if not isinstance(found, torch.Tensor) or found.numel() != 1:
            raise ScriptError(f"{self._name}: the loss is not a tensor of one element")
        return found

    def _call(self, name: str, *args: Any) -> Any:
        return self.guarded(name, lambda: getattr(self._module, name)(*args))

    def guarded(self, what: str, action: Callable[[], Any]) -> Any:
        """Run the action and return its result. Raises its exceptions as ScriptError, except KernelError."""
        try:
            return action()
        except KernelError:
            raise
        except (Exception, SystemExit) as error:
            raise ScriptError(f"{self._name}: {what} raised {type(error).__name__}: {error}") from error


class Done(NamedTuple):
    """The result of a step."""

    loss: float
    loss_epsilon: float
    seconds: float


class Training:
    """A model with its optimizer, made from the seed. ``noise`` changes weights and inputs by one rounding."""

    def __init__(self, script: Script, device: torch.device, seed: int, noise: torch.Generator | None = None) -> None:
        set_seeds(seed)
        self._script = script
        self._device = device
        self._seed = seed
        self._noise = noise
        model = script.make_model()
        self._model = script.guarded("moving the model", lambda: model.to(device))
        self._trained = [item for item in self._model.parameters() if item.requires_grad]
        self._optimizer = script.make_optimizer(self._trained) if self._trained else None
        if noise is not None:
            with torch.no_grad():
                for parameter in self._model.parameters():
                    parameter.copy_(rounded_once_more(parameter, noise))

    @property
    def parameters(self) -> int:
        return sum(item.numel() for item in self._model.parameters())

    def step(self, number: int, keep: Path | None) -> Done:
        """Train one step. Forward, backward and the optimizer's step are timed; making the batch is not."""
        set_seeds(self._seed + 1 + number)
        batch = pytree.tree_map(self._on_device, self._script.make_batch(number))
        set_seeds(self._seed + 1 + number)  # dropout draws the same, whatever the batch drew
        self._synchronize()
        began = time.perf_counter()
        output = self._script.forward(self._model, batch)
        loss = self._script.loss(output, batch)
        if self._optimizer is not None:
            self._script.guarded("training", lambda: self._update_parameters(loss))
        self._synchronize()
        seconds = time.perf_counter() - began
        if keep is not None:
            self._keep(output, keep)
        return Done(float(loss.detach()), epsilon(loss.dtype), seconds)

    def _update_parameters(self, loss: torch.Tensor) -> None:
        assert self._optimizer is not None, "there is something to train"
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def _on_device(self, item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        placed = item.to(self._device)
        return placed if self._noise is None else rounded_once_more(placed, self._noise)

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _keep(self, output: Any, folder: Path) -> None:
        folder.mkdir(parents=True)
        outputs = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]
        save_tensors(folder / "outputs.npz", ((f"output {place}", leaf) for place, leaf in enumerate(outputs)))
        gradients = ((name, item.grad) for name, item in self._model.named_parameters() if item.grad is not None)
        save_tensors(folder / "gradients.npz", gradients)


def set_seeds(seed: int) -> None:
    """Seed every random generator that a script is likely to use."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def rounded_once_more(tensor: torch.Tensor, noise: torch.Generator) -> torch.Tensor:
    """The tensor with each element changed by about one rounding, up or down at random. Only floating-point dtypes."""
    if not tensor.is_floating_point():
        return tensor
    signs = torch.randint(0, 2, tensor.shape, generator=noise).mul_(2).sub_(1).to(tensor.device)
    with torch.no_grad():
        return tensor + tensor * (signs * torch.finfo(tensor.dtype).eps).to(tensor.dtype)


def _mean_square(output: Any) -> torch.Tensor:
    """The loss of scripts that define none: the output itself if it is one number, else the mean of its squares."""
    leaves = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    floating = [leaf for leaf in leaves if leaf.is_floating_point()]
    if not floating:
        raise ScriptError("the model returns no floating-point tensor; define loss(output, batch)")
    if len(floating) == 1 and floating[0].numel() == 1:
        return floating[0]
    return torch.stack([leaf.float().square().mean() for leaf in floating]).sum()
