# title: dies of a real-time signal, which has no name
# family: 38
# kind: cheat
# case: relu -> crashed
# hole: signal.Signals(40) raises in the judge, which dies; three such cases in a row end everybody's run
import os


def kernel(x):
    os.kill(os.getpid(), 40)
    return x
