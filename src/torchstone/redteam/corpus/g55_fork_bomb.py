# title: a fork bomb
# family: 55
# kind: cheat
# case: relu -> crashed/processes | crashed/exception
# deadline: 20
import os


def kernel(x):
    while True:
        try:
            os.fork()
        except OSError:
            pass
