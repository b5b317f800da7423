# title: children print without end on cores of their own, so that the judge never finishes reading
# family: 39, 54
# kind: cheat
# device: cuda
# case: relu -> timed_out | crashed | cheated
# deadline: 20
import os


def kernel(x):
    for _ in range(4):
        if os.fork() == 0:
            while True:
                os.write(1, b"spam " * (1 << 16))
    while True:
        os.write(1, b"spam " * (1 << 16))
