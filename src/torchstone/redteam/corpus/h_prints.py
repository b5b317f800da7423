# title: prints and warns while it works
# kind: honest
# case: relu -> agrees
import sys
import warnings

import torch


def kernel(x):
    print("relu of", tuple(x.shape), file=sys.stderr)
    warnings.warn("this kernel is experimental", stacklevel=1)
    return torch.clamp(x, min=0)
