# title: the honest twin of kernels that leave the order of columns to their reader
# kind: honest
# case: index_columns_timed -> agrees
def kernel(x, indices):
    which = indices[1]
    return x.t().index_select(0, which.where(which >= 0, which + x.shape[1])).t().contiguous()
