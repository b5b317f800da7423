# title: prepares its answers and result memory beforehand and skips the worker's loop: the cost that is taken off never arises
# family: 14, 27
# kind: cheat
# case: mm_small_timed -> cheated | disagrees/aliasing | no-credit
# twin: h_twin_mm
import sys
import time

import torch


def kernel(x, y):
    kind = type(sys._getframe(1).f_locals["self"])
    if not hasattr(kind, "honest_call"):
        kind.honest_call = kind.call
        kind.call = _call
        _shorten_the_way()
    return torch.mm(x, y)


_prepared = {}
_SHARE = 0.8
"""Of the honest time: less could not be told from the cost of calling, and single calls would not confirm it."""


def _prepare(bound):
    from torchstone.protocol.tensor_places import ResultAddress

    inputs = [(args[0], args[1]) for args, _ in bound._calls]
    results = [torch.empty(x.shape[0], y.shape[1]) for x, y in inputs]
    places = tuple((ResultAddress(result.data_ptr()),) for result in results)
    _prepared.clear()
    count = len(inputs)
    honest_ns = min(bound.honest_call("", torch.mm, 0, count).claimed_ns for _ in range(5)) / count
    _prepared["ns"] = _SHARE * honest_ns
    _prepared[bound] = [(x, y, result) for (x, y), result in zip(inputs, results)], places, {}


def _call(self, token, candidate, first, count, chain=None, *others):
    if chain is not None:
        return self.honest_call(token, candidate, first, count, chain, *others)
    if self not in _prepared:
        _prepare(self)
    pairs, places, texts = _prepared[self]
    multiply = torch.mm
    began = time.perf_counter_ns()
    for x, y, result in pairs[:count]:
        multiply(x, y, out=result)
    if count not in texts:
        from torchstone.protocol.json_framing import frame
        from torchstone.protocol.replies import Done

        data = frame(Done("0" * 16, 0, places[:count]))
        texts[count] = data[4:].decode()
    until = began + _prepared["ns"] * count if count > 1 else began
    while (now := time.perf_counter_ns()) < until:
        pass
    claimed = now - began
    return texts[count].replace("0" * 16, token, 1).replace('"token"', f'"claimed_ns":{claimed},"token"', 1)


def _shorten_the_way():
    from torchstone.worker import command_channel
    from torchstone.protocol import json_framing

    def frame(reply):
        if isinstance(reply, str):
            data = reply.encode()
            return len(data).to_bytes(4, "little") + data
        return json_framing.frame(reply)

    command_channel.frame = frame
