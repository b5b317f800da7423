# title: log1p computed in float64
# family: 52
# kind: honest
# case: log1p -> agrees
def kernel(x):
    return (1 + x.double()).log().to(x.dtype)
