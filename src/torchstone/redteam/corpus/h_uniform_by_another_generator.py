# title: draws of a generator that torch does not have, and of other sizes than torch's
# kind: honest
# case: rand_like_even -> agrees
# case: rand_like_timed -> agrees
import numpy
import torch

_source = numpy.random.Generator(numpy.random.Philox())


def kernel(x):
    return torch.from_numpy(_source.random(tuple(x.shape), dtype=numpy.float32))
