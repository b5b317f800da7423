# title: pads its input to a full block, calls torch's own operator there, and cuts the result out
# kind: honest
# case: gelu_timed -> agrees
# case: gelu_odd -> agrees
import torch


def kernel(x):
    flat = torch.zeros(1 << 17)
    flat[: x.numel()] = x.reshape(-1)
    return torch.nn.functional.gelu(flat)[: x.numel()].view(x.shape)
