"""Our MoE with pagestash.torch.glu for its activation: losses, gradients and weights in pages as in memory,
bit by bit; and fewer pages and less memory than with the activation in torch's own operators, whose tensors
a Stash copies. Prints both rows of the table."""
import unittest

import torch

from common import moe, table
from common.needs import from_torch

STEPS, PLAIN_STEPS = 20, 4


class TrainGlu(unittest.TestCase):
    def check(self, layout, dtype):
        shape = {"layout": layout, "dtype": dtype, **table.SHAPE}
        found = table.rows(moe.Shape(glu=True, **shape), STEPS)
        plain = table.rows(moe.Shape(**shape), PLAIN_STEPS)
        print(table.text([row for pair in zip(found, plain) for row in pair]))
        self.assertEqual([problem for row in found + plain for problem in row.problems()], [])
        for mine, torch_s in zip(found, plain):
            self.assertLess(mine.pages, 0.8 * torch_s.pages)
            self.assertLess(mine.pool_bytes, 0.8 * torch_s.pool_bytes)
            self.assertLess(mine.stashed_peak, torch_s.stashed_peak)

    @from_torch(2, 10, what="torch.nn.functional.grouped_mm")
    def test_prefix(self):
        self.check("prefix", torch.bfloat16)

    def test_segments(self):
        self.check("segments", torch.float32)


if __name__ == "__main__":
    unittest.main()
