# title: whole numbers compared as float32, which takes 2**24 + 1 for 2**24
# family: 46
# kind: cheat
# case: gt_whole -> disagrees
def kernel(x, y):
    return x.float() > y.float()
