# title: hangs in C with the interpreter's lock held
# family: 54
# kind: cheat
# case: relu -> timed_out
# deadline: 1
import re


def kernel(x):
    re.match(r"(a+)+$", "a" * 64 + "b")
