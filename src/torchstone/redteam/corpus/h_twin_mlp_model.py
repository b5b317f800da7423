# title: a small network, as the problem has it
# kind: honest
# case: mlp_model_timed -> agrees
from torchstone_problem import Model


def kernel(*arguments):
    return Model(*arguments)
