"""A program to capture: a small transformer learns for three steps.

torchstone capture -o calls.jsonl -- python examples/capture_me.py
torchstone run --suite captured --source calls.jsonl --backend aten
"""

import sys

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, vocabulary: int = 100, width: int = 32, classes: int = 5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.encoder = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=64, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(tokens)).mean(1))


def main(steps: int = 3) -> None:
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        tokens, labels = torch.randint(100, (8, 16)), torch.randint(5, (8,))
        loss = nn.functional.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
