"""Our MoE, trained with its experts' buffers in pages: losses and all weights as without, bit by bit,
with memory outside live rows NaN; the pages that are used, as an independent count and the simulator
say; and the memory that the process holds. Prints the table, as bench/python/train_memory.py does."""
import unittest

import torch

from common import moe, table
from common.needs import from_torch

STEPS = 20
GROUPED = from_torch(2, 10, what="torch.nn.functional.grouped_mm")


class Train(unittest.TestCase):
    rows = []

    @classmethod
    def tearDownClass(cls):
        print(table.text(cls.rows))

    def check(self, layout, dtype):
        rows = table.rows(moe.Shape(layout=layout, dtype=dtype, **table.SHAPE), STEPS)
        self.rows.extend(rows)
        self.assertEqual([problem for row in rows for problem in row.problems()], [])

    @GROUPED
    def test_prefix_float32(self):
        self.check("prefix", torch.float32)

    @GROUPED
    def test_prefix_bfloat16(self):
        self.check("prefix", torch.bfloat16)

    def test_segments_float32(self):
        self.check("segments", torch.float32)

    def test_segments_bfloat16(self):
        self.check("segments", torch.bfloat16)


if __name__ == "__main__":
    unittest.main()
