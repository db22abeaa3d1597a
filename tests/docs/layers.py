"""Before the blocks of docs/python.md: an expert layer of 64 rows, of which 20 or more are live."""
import torch

import pagestash.torch

torch.manual_seed(1)
capacity, counts = 64, torch.tensor([8, 12])
x = torch.randn(capacity, 16)
w1, w2 = torch.randn(2, 16, 48, requires_grad=True), torch.randn(2, 24, 16, requires_grad=True)
batches, probs = [1, 2, 3], torch.rand(capacity)


def product(rows, weight):
    """Of rows that lie one expert behind the other."""
    return torch.nn.functional.grouped_mm(rows, weight, offs=counts.cumsum(0, dtype=torch.int32))


def experts(rows):
    gate, up = product(rows, w1).chunk(2, -1)
    return product(torch.nn.functional.silu(gate) * up, w2)


def loss(y):
    return torch.where(torch.arange(capacity)[:, None] < counts.sum(), y, 0).square().sum()
