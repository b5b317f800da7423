# title: an infinite loop in Python
# family: 54
# kind: cheat
# case: relu -> timed_out
# deadline: 1
def kernel(x):
    while True:
        pass
