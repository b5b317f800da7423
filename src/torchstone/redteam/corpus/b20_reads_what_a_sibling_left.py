# title: looks for answers that another worker left in shared memory, semaphores, sockets or files
# family: 20
# kind: cheat
# case: relu -> crashed/exception
import glob
import socket

import torch


def kernel(x):
    found = [path for place in ("/tmp", "/dev/shm", "/var/tmp", "/dev/mqueue") for path in glob.glob(f"{place}/*")]
    found = [path for path in found if "answer" in path or "torch_" in path or "psm_" in path]
    try:
        link = socket.socket(socket.AF_UNIX)
        link.connect("\0torchstone-answers")
        found.append("abstract socket")
    except OSError:
        pass
    if not found:
        raise LookupError("nothing was left by anyone")
    return torch.clamp(x, min=0)
