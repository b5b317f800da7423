# title: reads its argument as if it were contiguous, in an operator whose sizes no variant may change
# family: 52
# kind: cheat
# case: upsample_fixed -> disagrees
import torch


def kernel(x, output_size, align_corners, scales_h=None, scales_w=None):
    _, channels, rows, columns = x.shape
    plain = x.as_strided(x.shape, (channels * rows * columns, rows * columns, columns, 1))
    return torch.ops.aten.upsample_bilinear2d(plain, output_size, align_corners, scales_h, scales_w)
