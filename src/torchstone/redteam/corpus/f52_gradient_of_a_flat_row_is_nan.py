# title: a layer norm by its deviation, whose slope is infinite for rows of one value
# family: 52
# kind: cheat
# case: layer_norm_gradient -> disagrees
def kernel(x, shape, w, b, eps):
    centred = x - x.mean(-1, keepdim=True)
    deviation = centred.square().mean(-1, keepdim=True).sqrt()
    return centred / (deviation * deviation + eps).sqrt() * w + b
