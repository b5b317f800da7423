# title: opens files of the evaluator, of torch and of the bytecode cache for writing
# family: 33
# kind: cheat
# case: relu -> crashed/exception
import os
import sys

import torch


def kernel(x):
    import torchstone

    places = [os.path.dirname(torchstone.__file__), os.path.dirname(torch.__file__), sys.prefix, "/etc", "/usr/lib"]
    for place in places:
        for folder, _, files in os.walk(place):
            for name in files[:5]:
                try:
                    os.close(os.open(os.path.join(folder, name), os.O_WRONLY))  # opened, never written: no harm done
                except OSError:
                    continue
                return torch.clamp(x, min=0)
            if folder.count(os.sep) - place.count(os.sep) >= 1:
                break
    raise PermissionError("nothing can be written")
