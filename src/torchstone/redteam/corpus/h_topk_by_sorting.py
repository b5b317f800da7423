# title: the largest by sorting all
# kind: honest
# case: topk -> agrees
def kernel(x, count, dim=-1, largest=True, sorted=True):
    values, places = x.sort(dim=-1, descending=True, stable=True)
    return values[..., :count].contiguous(), places[..., :count].contiguous()
