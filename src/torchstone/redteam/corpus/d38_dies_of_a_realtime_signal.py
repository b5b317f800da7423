# title: dies of a real-time signal, which has no name
# family: 38
# kind: cheat
# case: relu -> crashed
import os


def kernel(x):
    os.kill(os.getpid(), 40)
    return x
