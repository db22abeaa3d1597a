"""Parallel linear layers over two gloo ranks: the undivided layers' numbers, the same bits with gathered inputs
recomputed and kept, scratch to the byte, and what ranks are told that disagree."""
import contextlib
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import pagestash.torch
from pagestash.torch import (ColumnParallelLinear, RowParallelLinear, Scratch, column_parallel_linear,
                             row_parallel_linear)

RANKS, TOKENS, BATCH, HIDDEN, FFN = 2, 6, 3, 8, 12


class Mlp(torch.nn.Module):
    """Column, an activation, row."""

    def __init__(self, scratch, bias=True, **options):
        super().__init__()
        recompute = options.pop("recompute", True)
        self.up = ColumnParallelLinear(HIDDEN, FFN, bias, recompute=recompute, scratch=scratch, **options)
        self.down = RowParallelLinear(FFN, HIDDEN, bias, scratch=scratch, **options)

    def forward(self, x):
        """Of this rank's part, or of everybody's input."""
        return self.down(functional.gelu(self.up(x)))


def whole_mlp(bias):
    """The undivided layers, the same on every rank."""
    torch.manual_seed(5)
    return torch.nn.Linear(HIDDEN, FFN, bias), torch.nn.Linear(FFN, HIDDEN, bias)


def run(scratch, rank, *, bias, sequence_parallel, recompute=True, around=lambda f, x: f(x), **options):
    """Output, input's gradient and the weights' gradients as those of the undivided layers."""
    up, down = whole_mlp(bias)
    torch.manual_seed(5)
    layer = Mlp(scratch, bias, sequence_parallel=sequence_parallel, recompute=recompute, **options)
    for mine, whole in ((layer.up, up), (layer.down, down)):
        mine.load_whole(whole.weight, whole.bias)
    torch.manual_seed(6)
    x, dy = torch.randn(TOKENS, BATCH, HIDDEN), torch.randn(TOKENS, BATCH, HIDDEN)
    own = (lambda t: t.chunk(RANKS)[rank]) if sequence_parallel else (lambda t: t)
    part = own(x).clone().requires_grad_()
    y = around(layer, part)
    y.backward(own(dy))
    if sequence_parallel and bias:
        dist.all_reduce(layer.down.bias.grad)
    return {"y": y, "dx": part.grad, **{name: p.grad for name, p in layer.named_parameters()}}, (x, dy, own)


def wanted(bias, x, dy, own, rank):
    """Of the undivided layers this rank's share."""
    up, down = whole_mlp(bias)
    x = x.requires_grad_()
    y = down(functional.gelu(up(x)))
    y.backward(dy)
    mine = {"y": own(y), "dx": own(x.grad), "up.weight": up.weight.grad.chunk(RANKS)[rank],
            "down.weight": down.weight.grad.chunk(RANKS, 1)[rank]}
    return mine | ({"up.bias": up.bias.grad.chunk(RANKS)[rank], "down.bias": down.bias.grad} if bias else {})


def numbers(scratch, rank):
    """The largest difference to the undivided layers, and whether kept is recomputed to the bit."""
    out = {}
    for bias in (False, True):
        for sequence_parallel in (False, True):
            got, given = run(scratch, rank, bias=bias, sequence_parallel=sequence_parallel)
            kept, _ = run(scratch, rank, bias=bias, sequence_parallel=sequence_parallel, recompute=False)
            want = wanted(bias, *given, rank)
            assert got.keys() == want.keys() == kept.keys(), (got.keys(), want.keys())
            out[f"{bias} {sequence_parallel}"] = (
                max(float((got[name] - want[name]).detach().abs().max()) for name in want),
                all(torch.equal(got[name], kept[name]) for name in want))
    return out


def ways_to_run(scratch, rank):
    """Checkpointed, and compiled as far as a compiler can: the same bits."""
    def checkpointed(layer, x):
        return checkpoint(layer, x, use_reentrant=False)

    def compiled(layer, x):
        return torch.compile(layer, backend="eager")(x)

    plain, _ = run(scratch, rank, bias=True, sequence_parallel=True)
    out = []
    for around in (checkpointed, compiled):
        got, _ = run(scratch, rank, bias=True, sequence_parallel=True, around=around)
        out.append(all(torch.equal(plain[name], got[name]) for name in plain))
    return out


def peaks(rank):
    """Bytes of scratch that one forward and backward lease at most."""
    out = []
    for recompute in (True, False):
        with Scratch("cpu") as scratch:
            run(scratch, rank, bias=False, sequence_parallel=True, recompute=recompute)
            info = scratch.info()
            out.append((info.peak_leased_bytes, info.num_live, info.num_names))
    return out


def said(call):
    """The sentence of an Error."""
    try:
        call()
    except pagestash.Error as error:
        return str(error)
    return ""


def faults(scratch):
    """What ranks are told of what each knows by itself."""
    return [said(lambda: ColumnParallelLinear(8, 3)), said(lambda: RowParallelLinear(3, 8)),
            said(lambda: RowParallelLinear(8, 4, sequence_parallel=True, scratch=scratch)(torch.zeros(3, 4)))]


def weight_of(wants=True, main_grad=True):
    """(4, 8), zeros."""
    weight = torch.zeros(4, 8, requires_grad=wants)
    if main_grad:
        weight.main_grad = torch.zeros(4, 8)
    return weight


# Calls in check mode, with on=True on rank 1 alone, and what each rank is told.
THREE = "3 rows of the sequence: they are to be divided by 2 ranks"
REFUSED = "gradient_accumulation_fusion wants weight.main_grad, float32 or of the weight's dtype, (4, 8); it is None"
DISAGREEING = (
    (lambda on: dict(x=torch.zeros(3 + on, 8)), ["Column: input: rank 0 has (3, 8), rank 1 has (4, 8)"] * 2),
    (lambda on: dict(x=torch.zeros(4 - on, 8), row=True), ["Row: input: rank 0 has (4, 8), rank 1 has (3, 8)"] * 2),
    (lambda on: dict(x=torch.zeros(4, 8 - on)), ["Column: input: rank 0 has (4, 8), rank 1 has (4, 7)"] * 2),
    (lambda on: dict(x=torch.zeros(3, 8), row=True), [f"Row: {THREE}"] * 2),
    (lambda on: dict(x=5 if on else torch.zeros(4, 8)), ["Column: input: rank 0 has (4, 8), rank 1 has 5"] * 2),
    (lambda on: dict(row=on), ["Column: layer: rank 0 has ColumnParallelLinear, rank 1 has RowParallelLinear",
                               "Row: layer: rank 0 has ColumnParallelLinear, rank 1 has RowParallelLinear"]),
    (lambda on: dict(x=torch.zeros(4, 8, dtype=(torch.float32, torch.float64)[on])),
     ["Column: dtype: rank 0 has torch.float32, rank 1 has torch.float64"] * 2),
    (lambda on: dict(x=torch.zeros(4, 8, device=("cpu", "meta")[on])),
     ["Column: device: rank 0 has cpu, rank 1 has meta"] * 2),
    (lambda on: dict(x=torch.zeros(4, 8).to_sparse() if on else torch.zeros(4, 8)),
     ["Column: layout: rank 0 has torch.strided, rank 1 has torch.sparse_coo"] * 2),
    (lambda on: dict(bias=torch.zeros(4) if on else None), ["Column: bias: rank 0 has None, rank 1 has (4,)"] * 2),
    (lambda on: dict(sequence_parallel=not on),
     ["Column: sequence_parallel: rank 0 has True, rank 1 has False"] * 2),
    (lambda on: dict(recompute=not on), ["Column: recompute: rank 0 has True, rank 1 has False"] * 2),
    (lambda on: dict(weight=weight_of(not on), x=torch.zeros(4, 8, requires_grad=True)),
     ["Column: wanted gradients: rank 0 has input and weight, rank 1 has input: the ranks are to make"] * 2),
    (lambda on: dict(x=torch.zeros(4, 8, requires_grad=on)),
     ["Column: wanted gradients: rank 0 has weight, rank 1 has input and weight: the ranks are to make"] * 2),
    (lambda on: dict(weight=weight_of(main_grad=not on), gradient_accumulation_fusion=True),
     [f"Column: rank 1 is refused: ColumnParallelLinear: {REFUSED}", f"Column: {REFUSED}"]),
    (lambda on: dict(scratch=3 if on else None),
     ["Column: rank 1 is refused: scratch: int: a Scratch is wanted", "scratch: int: a Scratch is wanted"]))


def disagreements(rank):
    """What each is told, and no call comes to an exchange of its own."""
    def call(row=False, x=None, weight=None, bias=None, **options):
        function = row_parallel_linear if row else column_parallel_linear
        function(torch.zeros(4, 8) if x is None else x, weight_of() if weight is None else weight, bias,
                 **dict({"sequence_parallel": True}, **options))
    names = "all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce"
    with mock.patch.dict(os.environ, PAGESTASH_CHECK="1"), contextlib.ExitStack() as ends:
        exchanges = [ends.enter_context(mock.patch.object(dist, name)) for name in names]
        return [said(lambda options=options: call(**options(rank == 1)))
                for options, _ in DISAGREEING], [each.call_count for each in exchanges]


def comparisons(scratch, rank):
    """How many a model of two layers makes, in check mode and not."""
    out = []
    for check in ("0", "1"):
        with mock.patch.dict(os.environ, PAGESTASH_CHECK=check), \
                mock.patch.object(dist, "all_gather_object", wraps=dist.all_gather_object) as gather:
            run(scratch, rank, bias=True, sequence_parallel=True)
            out.append(gather.call_count)
    return out


def with_a_name_taken(scratch):
    """A layer that finds its buffer leased: the ranks are refused alike, and nothing hangs."""
    with scratch.lease("pagestash.linear.gathered", (1,), torch.float32, place="somebody"):
        return said(lambda: column_parallel_linear(torch.zeros(3, 8), torch.zeros(4, 8), sequence_parallel=True,
                                                   scratch=scratch))


def main(rank, folder):
    """In a process of its own."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS,
                            timeout=datetime.timedelta(seconds=600))  # else a rank that hangs outlives the test
    scratch = Scratch("cpu")
    out = {"numbers": numbers(scratch, rank), "ways": ways_to_run(scratch, rank), "peaks": peaks(rank),
           "faults": faults(scratch), "taken": with_a_name_taken(scratch), "disagreements": disagreements(rank),
           "comparisons": comparisons(scratch, rank)}
    dist.destroy_process_group()
    return out


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            children = [subprocess.Popen([sys.executable, __file__, "rank", str(rank), folder],
                                         stdout=subprocess.PIPE, text=True) for rank in range(RANKS)]
            texts = [child.communicate(timeout=500)[0] for child in children]
        if any(child.returncode for child in children):
            raise AssertionError(texts)
        cls.ranks = [json.loads(text.splitlines()[-1]) for text in texts]

    def test_numbers(self):
        for rank in self.ranks:
            self.assertEqual(len(rank["numbers"]), 4)
            for case, (difference, same) in rank["numbers"].items():
                self.assertLess(difference, 2e-6, case)
                self.assertTrue(same, case)

    def test_ways_to_run(self):
        for rank in self.ranks:
            self.assertEqual(rank["ways"], [True, True])

    def test_scratch_to_the_byte(self):
        """Recomputed: the gathered input beside the partial sums; kept: these, or what the row layer gathers."""
        whole = 4 * TOKENS * BATCH * HIDDEN
        for rank in self.ranks:
            self.assertEqual(rank["peaks"], [[2 * whole, 0, 2], [whole, 0, 2]])

    def test_faults(self):
        for rank in self.ranks:
            column, row, rows = rank["faults"]
            self.assertIn("out_features 3: they are to be divided by 2 ranks", column)
            self.assertIn("in_features 3: they are to be divided by 2 ranks", row)
            self.assertIn(THREE, rows)
            self.assertIn("'ColumnParallelLinear, forward', but 'somebody' has leased it", rank["taken"])

    def test_ranks_that_disagree_are_all_told(self):
        """Also where one of them would refuse its part by itself: it does not leave the others waiting."""
        for number, rank in enumerate(self.ranks):
            sentences, exchanges = rank["disagreements"]
            self.assertEqual(exchanges, [0, 0, 0])
            for sentence, (_, wanted) in zip(sentences, DISAGREEING, strict=True):
                begin = re.sub(r"^(Column|Row):", r"\1ParallelLinear:", wanted[number])
                self.assertEqual(sentence[:len(begin)], begin)

    def test_only_check_mode_compares(self):
        for rank in self.ranks:
            self.assertEqual(rank["comparisons"], [0, 2])

    def test_check_mode_leaves_nan(self):
        code = ("import torch; from pagestash.torch import Scratch\n"
                "lease = Scratch('cpu').lease('a', (4,), torch.float32); kept = lease.tensor; kept.fill_(1)\n"
                "lease.release(); print(bool(kept.isnan().all()))")
        done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, PAGESTASH_CHECK="1"),
                              capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual((done.stdout, done.returncode), ("True\n", 0), done.stderr)

    def test_the_example(self):
        """nanotron's callers: the losses of plain layers, and less that is kept."""
        example = os.path.join(os.path.dirname(__file__), *[os.pardir] * 3, "examples", "python", "tensor_parallel.py")
        done = subprocess.run([sys.executable, example, "3"], capture_output=True, text=True, timeout=900, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = re.search(r"differs by (\S+)\n.*backward: (\d+) bytes, plain (\d+); .*layers: (\d+)\n$", done.stdout)
        self.assertIsNotNone(found, done.stdout)
        difference, kept, plain, scratch = map(float, found.groups())
        self.assertLess(difference, 1e-5)
        others = 2 * 4 * 32 * 64 * 4  # two of each of 4 layers: the other rank's 32 tokens of 64 floats
        self.assertEqual(plain - kept, others)
        self.assertEqual(scratch, 2 * 64 * 64 * 4)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        print(json.dumps(main(int(sys.argv[2]), sys.argv[3])))
    else:
        unittest.main()
