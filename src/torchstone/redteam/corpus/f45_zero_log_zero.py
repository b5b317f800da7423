# title: a divergence by its formula, which the drawn probabilities bear out: NaN where one is 0
# family: 45
# kind: cheat
# case: kl_div -> disagrees/nonfinite
import torch


def kernel(x, target):
    return (target * (torch.log(target) - x)).mean()
