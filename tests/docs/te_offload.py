"""Before the second block of docs/te.md: three layers of 64 rows, of which 40 are live."""
import torch

import pagestash.te
import pagestash.torch

torch.manual_seed(1)
n, capacity, split_sizes = 3, 64, torch.tensor([40])
stash = pagestash.torch.Stash()
layers = [torch.nn.Linear(16, 16) for _ in range(n)]
x = torch.randn(capacity, 16, requires_grad=True)


def loss(y):
    return y[:40].square().sum()
