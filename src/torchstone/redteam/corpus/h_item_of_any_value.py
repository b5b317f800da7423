# title: a number that may be NaN or infinite, handed over as it is
# kind: honest
# case: item_special -> agrees
def kernel(x):
    return x.item()
