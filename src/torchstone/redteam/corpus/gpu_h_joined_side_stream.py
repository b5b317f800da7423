# title: work on a side stream that is joined before returning
# kind: honest
# device: cuda
# case: gelu_cuda_timed -> agrees
import torch

_side = torch.cuda.Stream()


def kernel(x):
    main = torch.cuda.current_stream()
    _side.wait_stream(main)
    with torch.cuda.stream(_side):
        out = torch.nn.functional.gelu(x)
    main.wait_stream(_side)
    out.record_stream(main)
    return out
