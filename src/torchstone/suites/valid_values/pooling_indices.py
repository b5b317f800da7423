"""Table of values for the indices of max pooling's gradients and unpooling: within the window, plane or volume."""

from __future__ import annotations

import math

from torchstone.schema import WindowPositions
from torchstone.suites.valid_values.named_call import Fills, NamedCall
from torchstone.suites.valid_values.rule_table import RuleTable, below

RULES = RuleTable()


_POOL_BACKWARD = "grad_output self kernel_size stride padding dilation ceil_mode indices"


@RULES.of("max_pool2d_with_indices_backward", _POOL_BACKWARD, jitter=False)
def _max_pool2d_backward(call: NamedCall) -> Fills:
    """Each index lies in its element's window, since kernels may search only there. torch checks none on the CPU."""
    plane = _pair((0, *call.shape("self"))[-2:], 1)
    kernel = _pair(call.sizes("kernel_size"), 1)
    stride = _pair(call.sizes("stride"), 0)
    windows = WindowPositions(
        plane=plane,
        kernel=kernel,
        stride=stride if all(stride) else kernel,
        padding=_pair(call.sizes("padding"), 0),
        dilation=_pair(call.sizes("dilation"), 1),
    )
    return {"indices": windows if len(call.shape("indices")) > 1 else below(math.prod(plane))}


def _pair(sizes: tuple[int, ...], otherwise: int) -> tuple[int, int]:
    """Two sizes. A single size counts for both dimensions."""
    first, *rest = sizes or (otherwise,)
    return first, rest[0] if rest else first


@RULES.of("adaptive_max_pool2d_backward fractional_max_pool2d_backward", "grad_output self indices", jitter=False)
def _other_max_pool2d_backward(call: NamedCall) -> Fills:
    """These operators add to the position that an index names, anywhere in the plane."""
    return {"indices": below(math.prod(call.shape("self")[-2:]))}


@RULES.of("max_pool3d_with_indices_backward", _POOL_BACKWARD, jitter=False)
@RULES.of("adaptive_max_pool3d_backward fractional_max_pool3d_backward", "grad_output self indices", jitter=False)
def _max_pool3d_backward(call: NamedCall) -> Fills:
    return {"indices": below(math.prod(call.shape("self")[-3:]))}


@RULES.of("max_unpool2d max_unpool3d", "self indices output_size", jitter=False)
def _max_unpool(call: NamedCall) -> Fills:
    """Of two equal indices either value may win. No fill makes all indices of a plane distinct."""
    return {"indices": below(math.prod(call.sizes("output_size")))}
