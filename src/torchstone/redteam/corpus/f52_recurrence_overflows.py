# title: a recurrent network whose tangent is infinity by infinity from 44 on, where the operator might draw but does not
# family: 52
# kind: cheat
# case: rnn -> disagrees
import torch


def kernel(x, hx, weights, has_biases, num_layers, dropout, train, bidirectional, batch_first):
    input_weight, hidden_weight, input_bias, hidden_bias = weights
    h, found = hx[0], []
    for row in x:
        e = (2 * (row @ input_weight.T + input_bias + h @ hidden_weight.T + hidden_bias)).exp()
        h = (e - 1) / (e + 1)
        found.append(h)
    return torch.stack(found), h.unsqueeze(0)
