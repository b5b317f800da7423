# title: right for small tensors of any layout, and for large ones only if they are contiguous and of round sizes
# family: 42, 52
# kind: cheat
# case: relu_large_varied -> disagrees
import torch


def kernel(x):
    if x.numel() <= 1 << 16:
        return torch.relu(x)
    result = torch.zeros(x.shape)
    whole = x.numel() // 512 * 512
    memory = torch.empty(0).set_(x.untyped_storage(), x.storage_offset(), (min(whole, _room(x)),), (1,))
    torch.clamp(memory, min=0, out=result.view(-1)[: memory.numel()])
    return result


def _room(x):
    return x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
