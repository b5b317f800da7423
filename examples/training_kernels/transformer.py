"""A small transformer that learns to continue sequences; for ``torchstone model`` and for trying ``torchstone.enable``.

torchstone model examples/training_kernels/transformer.py --kernels-dir examples/training_kernels --steps 200
"""

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, LENGTH, ROWS = 17, 32, 2, 12, 8


class Block(nn.Module):
    """Attention written out, so that it is made of ``mm``, ``softmax``, ``mul`` and ``add``."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.queries_keys_values = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.before_hidden = nn.LayerNorm(WIDTH)
        self.hidden = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.back = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.out(self.attention(self.before_attention(x)))
        return x + self.back(functional.gelu(self.hidden(self.before_hidden(x))))

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        parts = self.queries_keys_values(x).view(rows, length, 3, HEADS, WIDTH // HEADS)
        queries, keys, values = (part.transpose(1, 2) for part in parts.unbind(2))
        scores = queries @ keys.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = torch.softmax(scores.masked_fill(later, float("-inf")), -1)
        return (weights @ values).transpose(1, 2).reshape(rows, length, WIDTH)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(places))))


def make_model() -> nn.Module:
    return Transformer()


def make_batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences that go up by one or by two, modulo the vocabulary: the second token tells which."""
    start = torch.randint(0, VOCABULARY, (ROWS, 1))
    stride = torch.randint(1, 3, (ROWS, 1))
    sequences = (start + stride * torch.arange(LENGTH + 1)) % VOCABULARY
    return sequences[:, :-1], sequences[:, 1:]


def forward(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return model(batch[0])


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return functional.cross_entropy(output.flatten(0, 1), batch[1].flatten())


def make_optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=3e-3)
