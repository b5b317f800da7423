# title: opens files until there are no more descriptors
# family: 55
# kind: cheat
# case: relu -> crashed/exception
# deadline: 20
import os


def kernel(x):
    while True:
        os.dup(0)
