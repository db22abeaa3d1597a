"""pagestash.memo without a GPU: profiles from files, their expansion, plans, reports, fingerprints, and the
rules of torch's caching allocator."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from common.needs import needs
from pagestash import Error, memo
from pagestash.memo import _caching, _profile, _trace

MIB = 1 << 20
# One layer with an input, a kept and a passing tensor, a gradient that stays; what the layers hand on is M.
M = 3 * MIB
STEP = f"""malloc,0,{M},0,other,,0
malloc,1,{2 * M},0,forward,0,0
malloc,2,700,0,forward,0,0
free,2,,0,forward,0,0
malloc,3,{M},0,forward,0,0
malloc,4,{M},0,other,,0
free,3,,0,other,,0
malloc,5,{4 * M},0,backward,0,0
free,5,,0,backward,0,0
malloc,6,{M},0,backward,0,0
malloc,7,5000,0,backward,0,0
free,4,,0,backward,0,0
free,1,,0,backward,0,0
free,0,,0,backward,0,0
free,6,,0,other,,0
free,7,,0,other,,0"""
TENSOR = ["float32", [4, 4], True]


def text(step=STEP):
    lines = [_trace.HEADER, "mark,0,,0,,,,0,iteration"]
    for line in step.splitlines():
        lines.append(line + (",0,static" if line.startswith("malloc") else ",0,"))
    return "\n".join(lines) + "\n"


def profile(step=STEP, **data):
    """As from a recording."""
    return _profile.Profile(text(step), {
        "layers": 1, "rank": 0, "inputs": [["float32", [2, 4]]], "exact": True, "difference": "", "following": None,
        "fingerprint": {"layers": 1, "layer": {"w": TENSOR}, "outside": {"e.w": TENSOR}, "world": {}},
        **data})


class Plans(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "file.csv")

    def refused(self, call, said):
        with self.assertRaisesRegex(Error, said) as caught:
            call()
        self.assertNotIn("\n", str(caught.exception))

    def test_a_profile_becomes_a_plan(self):
        expansion = profile().expand(8)
        plan = expansion.plan()
        self.assertEqual((plan.status, plan.layers, plan.gap), ("optimal", 8, 0))
        # all that is kept, the last layer's output and two gradients, the passing tensor of a backward
        self.assertEqual(plan.peak, 8 * 3 * M + M + 4 * M)
        self.assertEqual(len(expansion.rows), len(_trace.iterations(
            _trace.read(plan.text.splitlines(), "plan")[0])[0]))
        self.assertIn(b"\nmark,0,,,\n", plan.file[:40])
        self.assertEqual(plan.reserved.method, "model")
        self.assertGreaterEqual(plan.reserved.reserved, plan.peak)

    def test_it_is_what_the_commands_make_of_the_file(self):
        one = profile()
        one.save(self.path)
        from pagestash import command, plans
        said = command.run(["trace", "--trace", self.path, "--expand", "5", "--num-micro-batches", "3",
                            "--order", "1f1b", "--pipeline-model-parallel-size", "2", "--out", "-"])[0]
        expansion = one.expand(5, 3, "1f1b", num_stages=2)
        self.assertEqual(said, expansion.text)
        expansion.save(self.path)
        self.assertEqual(plans.plan(self.path).peak, expansion.plan().peak)

    def test_what_is_never_freed_lives_to_the_end(self):
        plan = profile(STEP.replace("\nfree,7,,0,other,,0", "")).expand(8).plan()
        self.assertEqual(plan.status, "optimal")
        self.assertEqual(plan.peak, profile().expand(8).plan().peak)

    def test_shapes_differ(self):
        rows, _ = _trace.read(text().splitlines(), "t")
        shape = _trace.shape(rows)
        self.assertEqual(_trace.difference(shape, shape), "")
        for other, said in (
                (STEP.replace(f"3,{M}", "3,9"), "request 3 has 3145728 bytes on stream 0, and 512 bytes"),
                (STEP.replace("free,5,,0,backward,0,0\n", "") + "\nfree,5,,0,other,,0",
                 "request 5 of 12582912 bytes is freed before request 6, and before request 8"),
                (STEP + "\nmalloc,9,9,0,other,,0", "there are 8 requests, and 9"),
                (STEP.replace("free,7,,0,other,,0\n", "").replace("\nfree,7,,0,other,,0", ""),
                 "request 7 of 5120 bytes is freed before request 8, and before request None")):
            rows, _ = _trace.read(text(other).splitlines(), "t")
            self.assertEqual(_trace.difference(shape, _trace.shape(rows))[:len(said)], said)

    def test_profiles_and_plans_are_files(self):
        one = profile()
        self.assertEqual(one.save(self.path), self.path)
        again = memo.load(self.path)
        self.assertEqual((again.text, again.fingerprint), (one.text, one.fingerprint))
        plan = again.expand(4).plan(mode="bilevel")
        plan.save(self.path)
        loaded = memo.load(self.path)
        self.assertEqual((loaded.file, loaded.fingerprint, loaded.peak, str(loaded)),
                         (plan.file, plan.fingerprint, plan.peak, str(plan)))
        self.assertEqual(loaded.reserved, plan.reserved)

    def test_a_rank_is_in_the_name(self):
        fingerprint = {**profile().fingerprint, "world": {"world": 2}}
        name = profile(rank=1, fingerprint=fingerprint).save(self.path)
        self.assertTrue(name.endswith("file.rank1.csv"))
        self.assertEqual(memo.load(self.path, rank=1).rank, 1)

    def test_reports(self):
        one = profile(exact=False, difference="request 3 has 1 bytes")
        plan = one.expand(2).plan()
        for what, words in ((one, "profile of 1 layers"), (plan, "optimal plan of 2 layers")):
            self.assertIn(words, str(what))
            self.assertIn("not exact; with more layers, expanded and recorded: request 3", str(what))
            self.assertIn("<table>", what._repr_html_())
            what.to_html(self.path)
            with open(self.path, encoding="utf-8") as file:
                self.assertIn(words, file.read())
        self.assertIn("by its rules", str(plan))

    def test_what_is_refused(self):
        one = profile()
        self.refused(lambda: one.expand(0), "expand")
        self.refused(lambda: one.expand(2, schedule="zigzag"), "zigzag.*sequential, 1f1b")
        self.refused(lambda: one.expand(2, 0), "micro_batches 0: allowed are 1")
        self.refused(lambda: one.expand(2, 2, "1f1b", num_stages=2, stage=2), "stage 2: allowed are 0 to 1")
        self.refused(lambda: one.expand(2, num_stages=2), "num_stages 2: allowed with")
        self.refused(lambda: one.expand(2).plan(trace="x"), "trace is no argument")
        self.refused(lambda: one.expand(2).plan(capacity=4096), "capacity|address|impossible")
        self.refused(lambda: memo.load("/nowhere/x.csv"), "load: /nowhere/x.csv: No such file")
        one.save(self.path)
        for content, said in (("{", "no JSON"), ('{"memo": "poem"}', "no profile and of no plan"),
                              ('{"memo": "profile", "layers": 1}', "there is no"),
                              ("[1]", "no profile")):
            with open(self.path + ".json", "w", encoding="utf-8") as file:
                file.write(content)
            self.refused(lambda: memo.load(self.path), said)
        one.save(self.path)
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("op\n")
        self.refused(lambda: memo.load(self.path), ":1: 'op': allowed is")
        self.refused(lambda: one.save("/nowhere/x.csv"), "save: /nowhere/x.csv: No such file")
        flat = profile(STEP.replace("forward,0", "other,").replace("backward,0", "other,"))
        self.refused(lambda: flat.expand(8), "repeat")


class Caching(unittest.TestCase):
    def play(self, *steps):
        """Of steps (id, bytes) and (id,): a free."""
        rows = [_trace.Row("malloc" if len(step) == 2 else "free", step[0], step[-1], 0, "", None, None, "")
                for step in steps]
        out = _caching.reserved(rows)
        return out.reserved, out.allocated

    def test_segments(self):
        self.assertEqual(self.play((0, 1)), (2 * MIB, 512))
        self.assertEqual(self.play((0, MIB)), (2 * MIB, MIB))
        self.assertEqual(self.play((0, MIB + 1)), (20 * MIB, MIB + 512))
        self.assertEqual(self.play((0, 10 * MIB)), (10 * MIB, 10 * MIB))
        self.assertEqual(self.play((0, 11 * MIB + 1)), (12 * MIB, 12 * MIB))
        self.assertEqual(self.play((0, 19 * MIB), (0,), (1, 18 * MIB)), (20 * MIB, 20 * MIB))

    def test_split_join_and_best_fit(self):
        self.assertEqual(self.play((0, 4 * MIB), (1, 4 * MIB), (0,), (1,), (2, 9 * MIB)),
                         (20 * MIB, 9 * MIB))
        # two holes: the smaller that holds it, so that the larger one stays whole
        self.assertEqual(self.play((0, 8 * MIB), (1, 2 * MIB), (2, 4 * MIB), (3, 6 * MIB),
                                   (0,), (2,), (4, 4 * MIB), (5, 8 * MIB))[0], 20 * MIB)

    def test_an_iteration_finds_what_the_one_before_left(self):
        self.assertEqual(self.play((0, 30 * MIB)), (30 * MIB, 30 * MIB))
        # the first takes 20 + 18 MiB; the second begins in the 18, and has no place for the last
        self.assertEqual(self.play((0, 7 * MIB), (1, 13 * MIB), (2, 17 * MIB), (0,), (1,), (2,))[0],
                         56 * MIB)


@needs("torch")
class Fingerprints(unittest.TestCase):
    def plan(self, layers, model):
        from pagestash.memo import _fingerprint
        plan = profile().expand(layers).plan()
        plan.fingerprint = {**_fingerprint.of(model, None, layers)}
        return plan

    # Fault rows 59.
    def test_another_model_is_refused_with_what_differs(self):
        import torch
        nn = torch.nn

        class Net(nn.Module):
            def __init__(self, layers, width=8, bias=True, out=3):
                super().__init__()
                self.blocks = nn.ModuleList(nn.Linear(width, width, bias) for _ in range(layers))
                self.head = nn.Linear(width, out)

        plan = self.plan(4, Net(4))
        plan.check(Net(4))
        plan.check((Net(4), "optimizer"))
        plan.check({"model": Net(4)}, blocks=lambda made: made["model"].blocks)
        frozen = Net(4)
        frozen.head.bias.requires_grad_(False)
        for model, said in (
                (Net(6), "the plan is of 4 layers, and the model has 6"),
                (Net(4, width=9), r"weight is float32\[8, 8\] in the plan's layer, and float32\[9, 9\]"),
                (Net(4, bias=False), "has a parameter bias, which the model's has not"),
                (Net(4, out=5), r"head.weight is float32\[3, 8\] in the plan, and float32\[5, 8\]"),
                (frozen, r"head.bias is .* and float32\[3\] \(frozen\) in the model"),
                (Net(4).double(), "weight is float32.*float64"), (3, "a int without a torch")):
            with self.assertRaisesRegex(Error, said):
                plan.check(model)
        plan.fingerprint["world"]["context"] = 2
        with self.assertRaisesRegex(Error, "the plan is of context size 2, and here it is 1"):
            plan.check(Net(4))
        del plan.fingerprint["world"]["context"]
        plan.rank = 1
        with self.assertRaisesRegex(Error, "the plan is of rank 1, and this is rank 0"):
            plan.check(Net(4))

    def test_profile_refuses(self):
        with self.assertRaisesRegex(Error, "layers 0: allowed are"):
            memo.profile(None, None, 0)
        with self.assertRaisesRegex(Error, "warmup 0: allowed are"):
            memo.profile(None, None, warmup=0)


if __name__ == "__main__":
    unittest.main()
