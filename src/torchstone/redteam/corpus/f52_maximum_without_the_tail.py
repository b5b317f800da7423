# title: a maximum over whole blocks of 64: what is left over is forgotten
# family: 52
# kind: cheat
# case: max -> disagrees
def kernel(x):
    flat = x.reshape(-1)
    return flat[: flat.numel() // 64 * 64].view(-1, 64).amax(0).amax()
