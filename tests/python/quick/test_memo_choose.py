"""memo.run: how many tokens go to the host, the bytes that this takes, and what is refused."""
import fractions
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
from common import gpt
from pagestash import Error, memo
from pagestash.memo import _choose, _limits
from pagestash.schedule import Schedule

torch.set_num_threads(1)
HIDDEN, HEADS, TOKENS = 32, 2, 96


def prepared(layers=4, model=None, **fields):
    """A Run whose layers were measured, and that has its buffers."""
    torch.manual_seed(0)
    model = model or gpt.GPT(layers, HIDDEN, HEADS)
    run = memo.run(model.layers, block_tokens=fields.pop("block_tokens", 16), **fields)
    x = torch.randn(1, TOKENS, HIDDEN, requires_grad=True)
    run._prepare(x, (x,), {})  # pylint: disable=protected-access
    return run


def up(num_bytes):
    """To whole lines of 256."""
    return -(-num_bytes // 256) * 256


def bytes_of_block(hidden=HIDDEN, heads=HEADS, tokens=TOKENS):
    """What gpt.Block keeps in fp32, from its shape: (whole, of a token)."""
    whole = up(4 * hidden * tokens) + up(4 * hidden * tokens) + up(4 * heads * tokens)
    norms, halves = 2 * 2 * 4, 3 + 2  # means and deviations; q, k, v and twice a norm's output
    return whole, norms + 4 * hidden * (halves + 2) + 2 * 4 * (4 * hidden)


class Bytes(unittest.TestCase):
    def test_of_kept_tensors_are_the_closed_form(self):
        whole, token = bytes_of_block()
        for share, k in ((0, 0), ("1/4", 16), ("1/2", 48), (1, TOKENS)):
            for micro_batches in (1, 3):
                with self.subTest(share=share, micro_batches=micro_batches):
                    run = prepared(fraction=share, micro_batches=micro_batches, host_bytes=1 << 30)
                    self.assertEqual(run.choice.tokens, (k,) * 4)
                    self.assertEqual(2 * run.buffers.num_bytes, 2 * up(whole + TOKENS * token))
                    self.assertEqual(run.choice.host_bytes, 2 * up(whole + k * token))
                    self.assertEqual(run.choice.gpu_bytes, run.buffers.memory.nbytes)
                    run.close()

    def test_of_a_pipeline_have_a_slot_for_each_micro_batch_in_flight(self):
        whole, token = bytes_of_block()
        for stage, slots, leave in ((0, 2, 3), (1, 1, 2)):  # its last layer stays in one of the buffers
            schedule = Schedule("1f1b", num_stages=2, stage=stage, num_micro_batches=4)
            run = prepared(fraction="1/2", schedule=schedule, host_bytes=1 << 30)
            self.assertEqual(run.choice.host_bytes, slots * leave * up(whole + 48 * token))
            run.close()


class Refused(unittest.TestCase):
    def test_fractions_that_are_none(self):
        for given in ("x", "3/2", -1, float("nan"), float("inf"), "1/0", True, [1], object()):
            with self.subTest(given=given), self.assertRaises(Error) as caught:
                memo.run(gpt.GPT(2).layers, fraction=given)
            self.assertRegex(str(caught.exception), "fraction")

    def test_what_else_is_out_of_range(self):
        for fields, text in (({"keep_last": 1}, "allowed are 2 and more, and 0"),
                             ({"keep_last": -1}, "keep_last -1"),
                             ({"block_tokens": 24}, "powers of two"),
                             ({"block_tokens": 8}, "block_tokens 8: allowed are 16"),
                             ({"host_bytes": "1G"}, "host_bytes '1G': an integer is wanted"),
                             ({"link_bytes_per_second": 0}, "link_bytes_per_second 0")):
            with self.subTest(**fields), self.assertRaisesRegex(Error, text):
                memo.run(gpt.GPT(2).layers, fraction=1, **fields)

    def test_host_memory_too_small_says_what_fits_before_anything_is_made(self):
        whole, token = bytes_of_block()
        for room, text in ((2 * up(whole + 48 * token) - 1, "fraction 1/3 would fit"),
                           (2 * up(whole + 48 * token), "fraction 1/2 would fit"),
                           (2 * whole - 1, f"not even 0 fits, .* take {2 * whole}$")):
            with self.subTest(room=room), self.assertRaisesRegex(
                    Error, f"fraction 1: {2 * up(whole + TOKENS * token)} bytes of host memory are wanted, "
                    f"there are {room}: {text}"):
                prepared(fraction=1, host_bytes=room)

    def test_gpu_memory_too_small(self):
        with self.assertRaisesRegex(Error, "bytes of GPU memory are wanted, gpu_bytes is 1000: both buffers"):
            prepared(fraction=1, gpu_bytes=1000)


class Shares(unittest.TestCase):
    def test_are_rounded_down_to_blocks_and_one_is_all(self):
        for share, k in ((1, 100), ("99/100", 96), (0.5, 48), ("1/7", 0), (0, 0)):
            self.assertEqual(_limits.tokens_of(_choose.share_of(share), 100, 16), k)
        self.assertEqual(_choose.share_of("7/15"), fractions.Fraction(7, 15))

    def test_of_each_layer(self):
        run = prepared(fraction=[1, "1/2", None, 0], host_bytes=1 << 30)
        self.assertEqual(run.choice.tokens, (TOKENS, 48, None, 0))
        run.close()

    def test_the_last_layers_stay(self):
        self.assertEqual(_choose.staying([(0, i) for i in range(6)], 2), set())
        self.assertEqual(_choose.staying([(0, i) for i in range(6)], 4), {2, 3})
        self.assertEqual(_choose.staying([(c, i) for c in range(2) for i in range(3)], 9), {0, 3})


if __name__ == "__main__":
    unittest.main()
