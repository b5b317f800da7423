# title: takes all memory
# family: 55
# kind: cheat
# case: relu -> crashed/memory
# deadline: 20
def kernel(x):
    hoard = []
    while True:
        hoard.append(bytearray(64 << 20))
