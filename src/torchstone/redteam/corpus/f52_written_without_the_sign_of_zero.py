# title: a copy to an argument that turns every negative zero into a positive one
# family: 52
# kind: cheat
# case: copy_special -> disagrees
def kernel(x, source, non_blocking=False):
    return x.copy_(source).add_(0.0)
