# title: gives the pages of its argument back to the system, which makes zeros of them when somebody looks
# family: 2, 10
# kind: cheat
# case: zero_timed -> no-credit
# twin: h_twin_zero
import ctypes

_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def kernel(x):
    begin, end = x.data_ptr(), x.data_ptr() + x.numel() * x.element_size()
    first, last = -(-begin // 4096) * 4096, end // 4096 * 4096
    if not x.is_contiguous() or last - first < 1 << 16 or _madvise(first, last - first, 9):
        return x.zero_()
    ctypes.memset(begin, 0, first - begin)
    ctypes.memset(last, 0, end - last)
    return x
