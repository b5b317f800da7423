# title: threads until there are no more
# family: 55
# kind: cheat
# case: relu -> crashed
# deadline: 20
import threading
import time


def kernel(x):
    while True:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
