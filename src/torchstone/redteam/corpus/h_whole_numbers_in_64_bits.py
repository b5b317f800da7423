# title: whole numbers multiplied by halves of one factor, all 64 bits of it
# kind: honest
# case: mul_whole -> agrees
def kernel(x, y):
    low, high = y & 0xFFFFFFFF, (y >> 32) << 32
    return x * low + x * high
