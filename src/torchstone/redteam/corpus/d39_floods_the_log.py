# title: children print without end, so that the judge never finishes reading and forgets the deadline
# family: 39, 55, 54
# kind: cheat
# case: relu -> timed_out | crashed | cheated
# deadline: 1
import os


def kernel(x):
    for _ in range(2):
        if os.fork() == 0:
            while True:
                os.write(1, b"spam " * (1 << 16))
    while True:
        os.write(1, b"spam " * (1 << 16))
