# title: a copy to an argument by way of another memory
# kind: honest
# case: copy_special -> agrees
def kernel(x, source, non_blocking=False):
    return x.copy_(source.clone())
