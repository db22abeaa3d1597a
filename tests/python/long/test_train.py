"""Our MoE, trained with its experts' buffers in pages: losses and all weights as without, bit by bit,
with memory outside live rows NaN; the pages that are used, as an independent count and the simulator
say; and the memory that the process holds. Prints the table, and writes it as JSON where
$PAGESTASH_TABLE names a file."""
import dataclasses
import json
import os
import unittest

import torch

from common import moe, table

STEPS = 20


class Train(unittest.TestCase):
    rows = []

    @classmethod
    def tearDownClass(cls):
        print(table.text(cls.rows))
        path = os.environ.get("PAGESTASH_TABLE")
        if path:
            with open(path, "w") as out:
                json.dump([dataclasses.asdict(row) for row in cls.rows], out, indent=2)

    def check(self, layout, dtype):
        shape = moe.Shape(layout=layout, dtype=dtype, batch=2, experts=16)
        reference = table.references(shape, STEPS)
        self.assertTrue(all(loss == loss for loss in reference.losses))
        for schedule in moe.SCHEDULES:
            with self.subTest(schedule=schedule):
                row = table.row(shape, schedule, reference, STEPS)
                self.rows.append(row)
                self.assertEqual(row.steps_bit_equal, STEPS)
                self.assertEqual(row.pages, row.pages_measured)
                self.assertEqual(row.pages, row.pages_simulated)
                self.assertLessEqual(row.stashed_peak, 1.03 * row.allowed_peak)
                self.assertLess(row.stashed_peak, row.plain_peak)

    def test_prefix_float32(self):
        self.check("prefix", torch.float32)

    def test_prefix_bfloat16(self):
        self.check("prefix", torch.bfloat16)

    def test_segments_float32(self):
        self.check("segments", torch.float32)

    def test_segments_bfloat16(self):
        self.check("segments", torch.bfloat16)


if __name__ == "__main__":
    unittest.main()
