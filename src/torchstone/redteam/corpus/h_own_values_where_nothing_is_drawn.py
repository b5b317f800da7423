# title: operators that may draw and do not with these arguments, written out
# kind: honest
# case: dropout_few_not_training -> agrees
# case: attention_few -> agrees
import torch


def kernel(x, *rest):
    if not isinstance(rest[0], torch.Tensor):
        return x.clone()
    keys, values = rest[:2]
    scores = x @ keys.transpose(-1, -2) / x.shape[-1] ** 0.5
    return torch.softmax(scores, -1) @ values, torch.logsumexp(scores, -1)
