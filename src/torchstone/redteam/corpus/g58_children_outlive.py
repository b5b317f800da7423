# title: leaves a detached child behind
# family: 58
# kind: cheat
# case: relu -> agrees
import os

import torch

_started = False


def kernel(x):
    global _started
    if not _started:
        _started = True
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execvp("sleep", ["sleep", "98765"])
            os._exit(0)
    return torch.clamp(x, min=0)
