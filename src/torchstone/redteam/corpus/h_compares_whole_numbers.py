# title: greater is what is neither less nor equal
# kind: honest
# case: gt_whole -> agrees
def kernel(x, y):
    return ~((x < y) | (x == y))
