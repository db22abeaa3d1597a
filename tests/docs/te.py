"""Before the first block of docs/te.md: experts of doubles of Transformer Engine, which runs on GPUs only."""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path("tests/python").resolve()))
from common import te_doubles  # noqa: E402

torch.manual_seed(1)
capacity, split_sizes, batches = 384, torch.tensor([128, 0, 128]), [1, 2, 3]
x, scales = torch.randn(capacity, 32, requires_grad=True), torch.rand(capacity)
weights = [torch.randn(3, *size, requires_grad=True) for size in ((32, 64), (64, 32))]


def experts(rows, sizes):
    return te_doubles.GroupedMLP.apply(rows, scales, sizes, *weights, te_doubles.GroupedTensorStorage,
                                       te_doubles.mark_grouped_tensor)


def loss(y):
    return y[:int(split_sizes.sum())].square().sum()
