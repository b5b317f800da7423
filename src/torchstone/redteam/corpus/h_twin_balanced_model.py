# title: a model that makes something of its weights in every call, as the problem has it
# kind: honest
# case: balanced_model_timed -> agrees
from torchstone_problem import Model


def kernel(*arguments):
    return Model(*arguments)
