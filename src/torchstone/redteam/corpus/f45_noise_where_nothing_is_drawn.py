# title: noise of few elements, from operators that may draw and do not with these arguments
# family: 45, 44
# kind: cheat
# case: dropout_few_not_training -> disagrees/values
# case: attention_few -> disagrees/values
# twin: h_own_values_where_nothing_is_drawn
import torch


def kernel(x, *rest):
    noise = torch.randn(x.shape)
    return (noise, torch.randn(x.shape[:-1])) if isinstance(rest[0], torch.Tensor) else noise
