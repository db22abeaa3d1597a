"""memo.run: how many tokens go to the host, the bytes that this takes, and what is refused."""
import ctypes
import fractions
import os
import sys
import types
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
from common import gpt
from pagestash import Error, _abi, _c, memo, pool
from pagestash.memo import _auto, _choose, _limits, _pool, _times
from pagestash.memo._measured import Measured
from pagestash.schedule import Schedule
from pagestash.schedule._layers import RawLayers

torch.set_num_threads(1)
HIDDEN, HEADS, TOKENS = 32, 2, 96
GIB = 1 << 30


def prepared(layers=4, model=None, **fields):
    """A Run whose layers were measured, and that has its buffers."""
    torch.manual_seed(0)
    model = model or gpt.GPT(layers, HIDDEN, HEADS)
    run = memo.run(model.layers, block_tokens=fields.pop("block_tokens", 16), **fields)
    x = torch.randn(1, TOKENS, HIDDEN, requires_grad=True)
    run._prepare(x, (x,), {})  # pylint: disable=protected-access
    return run


def library_bytes(run):
    """Host memory that pst_scheduler_bytes answers for what the scheduler of a Run was made of, without its
    program."""
    raw = RawLayers([run._layer(unit) for unit in run.units if unit.seat is not None], 0, 0, False, "cpu")
    config = _c.sized(_abi.pst_scheduler_config, pool=run.pool.handle, schedule=run.schedule.handle,
                      layers=raw.array, num_layers=len(raw.array), keeps_nothing=run.keep_last == 0)
    out = ctypes.c_uint64(), ctypes.c_uint64()
    _c.call("pst_scheduler_bytes", ctypes.byref(config), *map(ctypes.byref, out))
    return out[1].value - run.scheduler.stats().program_bytes


def up(num_bytes):
    """To whole lines of 256."""
    return -(-num_bytes // 256) * 256


def bytes_of_block(hidden=HIDDEN, heads=HEADS, tokens=TOKENS):
    """What gpt.Block keeps in fp32, from its shape: (whole, of a token)."""
    whole = up(4 * hidden * tokens) + up(4 * hidden * tokens) + up(4 * heads * tokens)
    norms, halves = 2 * 2 * 4, 3 + 2  # means and deviations; q, k, v and twice a norm's output
    return whole, norms + 4 * hidden * (halves + 1) + 2 * 4 * (4 * hidden)


class Bytes(unittest.TestCase):
    def test_of_kept_tensors_are_the_closed_form(self):
        whole, token = bytes_of_block()
        for share, k in ((0, 0), ("1/4", 16), ("1/2", 48), (1, TOKENS)):
            for micro_batches in (1, 3) if k == 48 else (1,):
                with self.subTest(share=share, micro_batches=micro_batches):
                    run = prepared(fraction=share, micro_batches=micro_batches, host_bytes=1 << 30)
                    self.assertEqual(run.choice.tokens, (k,) * 4)
                    self.assertEqual(2 * run.buffers.num_bytes, 2 * up(whole + TOKENS * token))
                    self.assertEqual(run.choice.host_bytes, 2 * up(whole + k * token))
                    self.assertEqual(library_bytes(run), run.choice.host_bytes)
                    self.assertEqual(run.choice.gpu_bytes, run.buffers.memory.nbytes)
                    run.close()

    def test_of_a_pipeline_have_a_slot_for_each_micro_batch_in_flight(self):
        whole, token = bytes_of_block()
        for stage, slots, leave in ((0, 2, 3), (1, 1, 2)):  # its last layer stays in one of the buffers
            schedule = Schedule("1f1b", num_stages=2, stage=stage, num_micro_batches=4)
            run = prepared(fraction="1/2", schedule=schedule, host_bytes=1 << 30)
            self.assertEqual(run.choice.host_bytes, slots * leave * up(whole + 48 * token))
            self.assertEqual(library_bytes(run), run.choice.host_bytes)
            run.close()

    def test_of_two_chunks_only_those_stay_that_nothing_comes_after(self):
        whole, token = bytes_of_block()
        layers = list(gpt.GPT(6, HIDDEN, HEADS).layers)
        model = types.SimpleNamespace(layers=[torch.nn.ModuleList(layers[:3]), torch.nn.ModuleList(layers[3:])])
        schedule = Schedule.of([("F", 0, 0), ("F", 1, 0), ("B", 1, 0), ("B", 0, 0)])
        run = prepared(model=model, fraction="1/2", schedule=schedule, host_bytes=1 << 30)
        self.assertEqual(run.choice.leaves, (True,) * 4 + (False,) * 2)
        self.assertEqual(run.choice.host_bytes, 4 * up(whole + 48 * token))
        self.assertEqual(library_bytes(run), run.choice.host_bytes)
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


def scale(other=14 * GIB, forward_ns=300_000_000, recompute_ns=200_000_000):
    """A layer of MEMO's 7B with 2^20 tokens, on one of 8 GPUs."""
    tokens = 1 << 17
    return Measured(tokens, (1, tokens, 1), torch.float32, GIB, GIB, (other // tokens,), (), False, forward_ns,
                    recompute_ns)


def chosen(scales, rate=24_000_000_000, host_bytes=256 * GIB, gpu_bytes=None, schedule=None, stays=frozenset()):
    """(tokens, Cost, why) of "auto"."""
    limits = _limits.Limits([(0, i) for i in range(len(scales))], scales, schedule or Schedule(),
                            block_tokens=128, host_bytes=host_bytes, gpu_bytes=gpu_bytes)
    times = _times.Times(tuple(one.forward_ns for one in scales), tuple(one.recompute_ns for one in scales),
                         rate, rate)
    return *_auto.automatic(limits, times, stays), limits


class OneBudget(unittest.TestCase):
    def test_what_pages_and_the_plan_have_is_not_there_for_what_is_swapped(self):
        whole, token = bytes_of_block()
        one = up(whole + TOKENS * token)
        run = prepared(fraction=1, host_bytes=2 * one + 4096, gpu_bytes=2 * one + 4096)
        device = torch.device("cpu")
        choice = _choose.choose(run, device, (4096, 4096))
        self.assertEqual((choice.gpu_limit, choice.host_limit), (choice.gpu_bytes, choice.host_bytes))
        for taken, what in (((0, 4097), "host"), ((4097, 0), "GPU")):
            with self.assertRaisesRegex(Error, f"of {what} memory are wanted"):
                _choose.choose(run, device, taken)
        run.close()

    def test_pages_and_the_plan_alone_can_be_too_much(self):
        run = types.SimpleNamespace(plan=types.SimpleNamespace(peak=1000), gpu_bytes=999, host_bytes=1 << 20)
        fields = {"page_bytes": 1 << 16, "host_pages": 17}
        with self.assertRaisesRegex(Error, "gpu_bytes 999: 0 pages take 0 bytes, the plan 1000: 1 too few"):
            _pool.taken(run)
        run.gpu_bytes = None
        with self.assertRaisesRegex(Error, f"host_bytes {1 << 20}: 17 host_pages take {17 << 16} bytes"):
            _pool.taken(run, 4, fields)
        run.host_bytes = 17 << 16
        self.assertEqual(_pool.taken(run, 4, fields), (pool.Pool.bytes(4, **fields) + 1000, 17 << 16))


class Formula(unittest.TestCase):
    """The worked values of MEMO's linear program."""
    MODEL = {"input_bytes": GIB, "attention_bytes": GIB, "other_bytes": 14 * GIB, "num_tokens": 1 << 17,
             "block_tokens": 1, "num_layers": 32}

    def test_where_the_host_binds(self):
        raw = _auto.swap_choice(**self.MODEL, link_bytes_per_second=1 << 50, forward_nanoseconds=10 ** 9,
                                host_bytes=256 * GIB)
        self.assertEqual((raw.limit, raw.num), (_abi.PST_SWAP_BY_MEMORY, (1 << 17) * 7 // 15))
        self.assertEqual(raw.room_bytes, 14 * GIB * 7 // 15)

    def test_where_the_link_binds(self):
        raw = _auto.swap_choice(**self.MODEL, link_bytes_per_second=24 * 10 ** 9,
                                forward_nanoseconds=300_000_000, host_bytes=256 * GIB)
        self.assertEqual(raw.limit, _abi.PST_SWAP_BY_TIME)
        self.assertEqual(fractions.Fraction(raw.room_bytes, 14 * GIB), fractions.Fraction(2467049, 7340032))
        self.assertEqual(raw.num, (1 << 17) * 2467049 // 7340032)

    def test_what_is_impossible_says_what_is_missing(self):
        raw = _auto.swap_choice(**self.MODEL, link_bytes_per_second=24 * 10 ** 9, forward_nanoseconds=60_000_000,
                                host_bytes=256 * GIB)
        self.assertEqual((raw.limit, raw.num), (_abi.PST_SWAP_IMPOSSIBLE, 0))
        self.assertEqual(fractions.Fraction(raw.missing_link_bytes, 14 * GIB), fractions.Fraction(345451, 7340032))


class Automatic(unittest.TestCase):
    def test_of_equal_layers_it_is_memos(self):
        for fields, k, text in (
                ({}, 344 * 128, "MEMO's 43/128 for all, bound by the link: .* 0 ms exposed"),
                ({"rate": 1 << 50, "host_bytes": 256 * GIB * 4 // 30}, 477 * 128, "477/1024 for all, bound by host"),
                ({"rate": 1 << 50}, 1 << 17, "MEMO's 1 for all: .* nothing is shorter")):
            with self.subTest(**fields):
                tokens, cost, why, limits = chosen([scale()] * 6, **fields)
                self.assertRegex(why, text)
                self.assertTrue(limits.fits(tokens))
                self.assertEqual((cost.exposed_ns, tokens), (0, (k,) * 6))

    def test_layers_that_differ_get_their_own(self):
        scales = [scale((14 if i % 2 else 7) * GIB) for i in range(6)]
        tokens, cost, why, limits = chosen(scales)
        self.assertRegex(why, r"MEMO's 43/128 for all.*; per layer: .* \([1-9].*% less\): taken")
        self.assertTrue(limits.fits(tokens))
        self.assertGreater(tokens[0], tokens[1])
        self.assertEqual(cost.exposed_ns, 0)

    def test_a_pipeline_whose_link_runs_both_ways(self):
        schedule = Schedule("1f1b", num_stages=4, stage=0, num_micro_batches=4)
        tokens, cost, why, limits = chosen([scale()] * 4, schedule=schedule, host_bytes=1 << 50)
        self.assertRegex(why, "per layer: .*taken")
        self.assertEqual(cost, _auto.simulated(limits, _times.Times(*((ns,) * 4 for ns in (
            300_000_000, 200_000_000)), *(24_000_000_000,) * 2), tokens))

    def test_what_room_there_is_on_the_gpu_layers_stay_in(self):
        tokens, cost, _, limits = chosen([scale()] * 6, gpu_bytes=64 * GIB)
        self.assertEqual(tokens.count(None), 2)
        self.assertEqual(limits.gpu_bytes(tokens), 64 * GIB)
        self.assertLess(cost.step_ns, chosen([scale()] * 6)[1].step_ns)
        tokens = chosen([scale()] * 6, gpu_bytes=80 * GIB, host_bytes=5 * GIB)[0]  # MEMO's is impossible
        self.assertEqual(tokens.count(None), 3)

    def test_they_stay_before_the_last_two_where_the_first_copies_back_hide(self):
        tokens = chosen([scale()] * 16, gpu_bytes=64 * GIB)[0]
        self.assertEqual(tokens[10:], (104064, 109568, None, None, 44032, 44032))

    def test_impossible(self):
        for fields, text in (
                ({"rate": 6_000_000_000}, "2147483648 bytes, can be swapped: at 6000000000 bytes/s they take "
                                          "57913942 ns more than a layer's forward, 300000000 ns"),
                ({"host_bytes": 7 * GIB}, f"host memory, {7 * GIB} bytes, lacks {GIB}: a larger keep_last"),
                ({"gpu_bytes": GIB}, "bytes of GPU memory are wanted, gpu_bytes is")):
            with self.subTest(**fields), self.assertRaisesRegex(Error, f"fraction 'auto': .*{text}"):
                chosen([scale()] * 6, **fields)

    def test_pieces_with_a_dropped_token_run_again_whole(self):
        one, times = scale(), _times.Times((1,), (1 << 17,), 1, 1)
        for k, cut, ns in ((0, None, 1 << 17), (1 << 16, None, 1 << 16), (1 << 17, None, 0),
                           (1 << 16, 1 << 16, 1 << 16), (1 << 16, 1 << 15, 3 << 15), (1 << 15, 1 << 16, 1 << 17),
                           (1 << 17, 1 << 16, 0), (1 << 16, 0, 1 << 17)):
            with self.subTest(k=k, cut=cut):
                self.assertEqual(times.again_ns(0, one, k, cut), ns)

    def test_two_layers_leave_nothing(self):
        tokens, cost, _, limits = chosen([scale()] * 2, host_bytes=0)
        self.assertEqual((tokens, limits.host_bytes(tokens), cost.exposed_ns), ((1 << 17,) * 2, 0, 0))

    def test_measures_layers_and_the_link(self):
        run = prepared(fraction="auto", host_bytes=1 << 30)
        self.assertTrue(all(ns > 1 for ns in run.choice.times.forward_ns + run.choice.times.recompute_ns))
        self.assertGreater(min(run.choice.times.out_rate, run.choice.times.in_rate), 1 << 20)
        run.close()


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
        self.assertEqual(_limits.staying([(0, i) for i in range(6)], 2), set())
        self.assertEqual(_limits.staying([(0, i) for i in range(6)], 4), {2, 3})
        self.assertEqual(_limits.staying([(c, i) for c in range(2) for i in range(3)], 9), {0, 3})


class Staying(unittest.TestCase):
    def gradients(self, **fields):
        """(of a step, visits that left, Report)."""
        torch.manual_seed(0)
        model = gpt.GPT(5, HIDDEN, HEADS)
        run = memo.run(model.layers, block_tokens=16, cut=48, host_bytes=1 << 30, **fields)
        gpt.loss_of(model, gpt.words_of(0, 1, TOKENS)).backward()
        run.step()
        stats, report = run.scheduler and run.scheduler.stats(), run.report()
        run.close()
        return [p.grad for p in model.parameters()], stats and stats.swapped, report

    def test_layers_in_memory_and_in_buffers_train_as_all_do(self):
        plain, _, report = self.gradients(fraction=None)
        whole, token = bytes_of_block()
        self.assertEqual(report.choice.gpu_bytes, 5 * (whole + TOKENS * token))
        for fields, left, kept in (({"fraction": "1/2", "keep_last": 4}, 1, 2), ({"fraction": 0, "keep_last": 0}, 5, 0),
                                   ({"fraction": [1, None, "1/4", 0, "1/2"]}, 2, 1)):
            with self.subTest(**fields):
                got, swapped, report = self.gradients(**fields)
                self.assertTrue(all(map(torch.equal, got, plain)))
                self.assertEqual(swapped, left)
                self.assertEqual([one.keep for one in report.layers].count("swapped"), left)
                self.assertEqual(report.choice.tokens.count(None), kept)

    def test_a_report_says_what_was_chosen(self):
        report = self.gradients(fraction="1/2", keep_last=3, measures=True)[2]
        text, html = str(report), report._repr_html_()  # pylint: disable=protected-access
        for part in ("layer 0 of chunk 0", "in memory", "in a buffer", "fraction 1/2, as given", "pinned host memory",
                     "measured in 1 steps: "):
            self.assertIn(part, text)
            self.assertIn(part, html)
        whole, token = bytes_of_block()
        self.assertEqual((report.layers[0].kept_bytes, report.layers[0].host_bytes),
                         (whole + TOKENS * token, whole + 48 * token))
        with self.assertRaisesRegex(Error, "nothing is chosen yet"):
            memo.run(gpt.GPT(2).layers).report()


if __name__ == "__main__":
    unittest.main()
