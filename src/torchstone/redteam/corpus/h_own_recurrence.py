# title: a recurrent network row by row
# kind: honest
# case: rnn -> agrees
import torch


def kernel(x, hx, weights, has_biases, num_layers, dropout, train, bidirectional, batch_first):
    input_weight, hidden_weight, input_bias, hidden_bias = weights
    h, found = hx[0], []
    for row in x:
        h = torch.tanh(row @ input_weight.T + input_bias + h @ hidden_weight.T + hidden_bias)
        found.append(h)
    return torch.stack(found), h.unsqueeze(0)
