"""`pagestash estimate --fit`, and the loads of experts, which `--moe-load-cv` and `--routing` say.

test_estimate_fit.py BINARY SOURCE
"""
import math
import os
import random
import statistics
import sys
import unittest
from fractions import Fraction

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import cli
from cli import run
from launches import GIB, LLAMA, MIXTRAL, EstimateTest, world


class FitTest(EstimateTest):
    # ---- --fit

    def test_fit_says_what_each_stage_needs(self):
        flags = [*LLAMA, *world(8, t=2, p=2), "--fragmentation", 0, "--overhead", "2GiB"]
        keys = self.fit(*flags, "--gpu-memory", "40GiB", code=0)
        plain = self.fit(*flags[:-1], 0, "--gpu-memory", "40GiB")
        self.assertEqual(len(keys["stages"]), 2)
        for stage, other in zip(keys["stages"], plain["stages"]):
            self.assertEqual(stage["needed_bytes"], other["needed_bytes"] + 2 * GIB)
            self.assertEqual(stage["margin_bytes"], 40 * GIB - stage["needed_bytes"])
        needed = [stage["needed_bytes"] for stage in keys["stages"]]
        self.assertEqual(keys["heaviest_stage"], needed.index(max(needed)))
        self.assertEqual(keys["needed_bytes"], max(needed))
        self.assertEqual((keys["memory_bytes"], keys["overhead_bytes"]), (40 * GIB, 2 * GIB))
        text = run("estimate", *flags, "--gpu-memory", "40GiB", "--fit")
        self.assertEqual(text.returncode, 0)
        self.assertIn(f"\nfits: stage {keys['heaviest_stage']} of 2 needs {max(needed) / GIB:.2f} GiB of 40.00, ",
                      text.stdout)
        self.assertIn(f"\nlargest that fits: micro-batch {keys['largest_micro_batch']} with sequence 4096, "
                      f"sequence {keys['largest_sequence']} with micro-batch 1\n", text.stdout)

    def test_fit_keeps_a_reserve(self):
        """Without --overhead too: what the report says of it."""
        flags = [*LLAMA, *world(8, t=2, p=2)]
        keys = self.fit(*flags)
        reserve = self.object(*flags)["stages"][keys["heaviest_stage"]]["bytes"]["overhead"]
        self.assertEqual(keys["overhead_bytes"], reserve)
        self.assertGreater(reserve, 2 * GIB)
        without = ["--overhead", 0, "--fragmentation", 0]
        self.assertEqual(keys["needed_bytes"], self.fit(*flags, *without)["needed_bytes"] + reserve)
        # what fits without one does not with it
        edge = ["--gpu-memory", keys["needed_bytes"] - 1]
        self.fit(*flags, *edge, code=1)
        self.fit(*flags, *edge, *without[:2], code=0)
        self.fit(*flags, *edge, *without[2:], code=0)

    def test_memory_of_the_gpu(self):
        """That of --gpu, of its file, or as given; without any 80 GiB, in each mode, and it is said."""
        flags = ["--preset", "llama2-70b", "--tensor-model-parallel-size", 4, "--pipeline-model-parallel-size", 2,
                 "--use-distributed-optimizer", "--sequence-parallel", "--world-size", 64, "--global-batch-size", 64]
        file = self.write('{"gpu": "b200", "memory_bytes": 103079215104}', "gpu.json")
        sizes = {"a100": 81920, "h100": 81559, "h200": 143771, "b200": 183359, "b300": 275040, "gb200": 189471,
                 file: 96 << 10}
        self.fit(*flags, code=1)
        small = self.write('{"gpu": "b200", "memory_bytes": 192}', "small.json")
        self.refused(run("estimate", *flags, "--gpu", small), 2, f"--gpu {small}: less than 1MiB")
        for name, size in sizes.items():
            for mode in (["--fit"], ["--search"]):
                code = 1 if mode[0] == "--fit" and size < 82000 else 0
                self.assertEqual(self.object(*flags, *mode, "--gpu", name, code=code)["memory_bytes"], size << 20)
            report = self.object(*flags, "--gpu", name)
            self.assertEqual(report["cluster"]["gpu_memory_bytes"], size << 20)
            self.assertIn(f"--gpu-memory {size}MiB: of --gpu {name}", report["assumptions"])
        self.assertEqual(self.fit(*flags, "--gpu", "b200", "--gpu-memory", "64GiB", code=1)["memory_bytes"], 64 * GIB)
        text = run("estimate", *flags, "--gpu", "b200", "--details").stdout
        self.assertRegex(text, r"\nfits: stage 0 of 2 needs \d+\.\d\d GiB of 179\.06, ")
        self.assertIn("\nassumed: --gpu-memory 183359MiB: of --gpu b200\n", text)
        report = self.object(*flags, "--gpu-memory", "64GiB", "--gpu", "b200")
        self.assertFalse(any(line.startswith("--gpu-memory") for line in report["assumptions"]))
        self.assertIn("--gpu-memory 80GiB", self.object(*flags)["assumptions"])

    def test_fit_is_exact_at_the_edge(self):
        flags = [*LLAMA, *world(8, t=2, p=2)]
        needed = self.fit(*flags)["needed_bytes"]
        for bytes_, code in ((needed, 0), (needed - 1, 1)):
            keys = self.fit(*flags, "--gpu-memory", bytes_, code=code)
            self.assertEqual(keys["margin_bytes"], bytes_ - needed)
            self.assertEqual((keys["largest_micro_batch"], keys["largest_sequence"]),
                             (0, 4096 - 128) if code else (1, 4096))
        text = run("estimate", *flags, "--gpu-memory", "1GiB", "--fit")
        self.assertEqual(text.returncode, 1)
        self.assertRegex(text.stdout, r"\ndoes not fit: stage 0 of 2 needs \d+\.\d\d GiB of 1\.00, .* too many\n")
        self.assertIn("micro-batch none with sequence 4096", text.stdout)

    def test_exit_code_1_is_of_a_mode(self):
        """The report alone is no question: it exits with 0, and --help says whose the 1 is."""
        flags = [*LLAMA, *world(8, t=2, p=2), "--gpu-memory", "1GiB"]
        for mode, code in (([], 0), (["--fit"], 1), (["--search"], 1)):
            result = run("estimate", *flags, *mode)
            self.assertEqual(result.returncode, code, mode)
        told = " ".join(run("estimate", "--help").stdout.split())
        self.assertIn("Exit codes: 0 done; 1 by --fit or --search, nothing fits, or memory is out;", told)

    def test_largest_micro_batch(self):
        for sizes in ({"t": 2, "p": 2}, {"t": 2, "p": 4, "v": 4, "batch": 96}, {"c": 2, "p": 4},
                      {"t": 2, "p": 2, "batch": 60}):
            keys = self.fit(*LLAMA, *world(16, **sizes))
            batch = sizes.get("batch", 64)
            replicas = 16 // math.prod(sizes.get(key, 1) for key in "tpc")
            fitting = [0]
            for b in range(1, batch // replicas + 1):
                micro_batches = batch // replicas // b
                if batch % (b * replicas) == 0 and \
                        (sizes.get("v", 1) == 1 or micro_batches % sizes["p"] == 0):
                    other = self.fit(*LLAMA, *world(16, b=b, **sizes))
                    fitting += [b] * other["fits"]
            self.assertEqual(keys["largest_micro_batch"], max(fitting), sizes)
            self.assertGreater(max(fitting), 0)

    def test_largest_sequence(self):
        for sizes, unit in (({"t": 2, "p": 2}, 128), ({"t": 1, "c": 4, "p": 2}, 128),
                            ({"t": 2, "p": 2, "c": 2, "s": 4100}, 4), ({"s": 4099}, 1),
                            ({"t": 2, "p": 4, "v": 4, "batch": 96}, 128)):
            keys = self.fit(*LLAMA, *world(16, **sizes))
            self.assertEqual(keys["sequence_step"], unit, sizes)
            longest = keys["largest_sequence"]
            self.assertEqual(longest % unit, 0)
            self.assertGreater(longest, 0)
            self.fit(*LLAMA, *world(16, **{**sizes, "s": longest}), code=0)
            self.fit(*LLAMA, *world(16, **{**sizes, "s": longest + unit}), code=1)

    def test_learned_positions_end_the_sequence(self):
        flags = ["--preset", "gpt2-124m", "--bf16", *world(1, s=512, batch=1)]
        self.assertEqual(self.fit(*flags)["largest_sequence"], 1024)

    # ---- loads

    def same_memory(self, flags, other):
        mine, others = self.fit(*flags), self.fit(*other)
        self.assertEqual(mine, others)
        return mine["needed_bytes"]

    @staticmethod
    def decimals(parts):
        return f"{parts // 1000}.{parts % 1000:03}"

    def test_load_of_a_coefficient_of_variation(self):
        # layers, in flight on stage 0: 8 micro-batches are enough for all stages
        for p, cv in ((1, "0.1"), (4, "0.25"), (2, "0")):
            flags = [*MIXTRAL, *world(8, p=p, ep=2, etp=1, batch=64)]
            live, layers = 32, 32 // p
            z = statistics.NormalDist().inv_cdf(1 - 1e-3 / live)
            capacity = math.ceil(1000 * (1 + z * float(cv)))
            headroom = math.ceil(1000 * (1 + z * float(cv) / math.sqrt(layers)))
            capacity = min(capacity, 2000) # the worst with ep 2: all rows on one GPU
            base = self.fit(*flags)["needed_bytes"]
            needed = self.same_memory(
                [*flags, "--moe-buffer", "capacity", "--moe-load-cv", cv],
                [*flags, "--moe-buffer", "capacity", "--moe-expert-rank-capacity-factor",
                 self.decimals(capacity)])
            self.assertEqual(needed > base, cv != "0")
            self.same_memory(
                [*flags, "--moe-buffer", "paged", "--moe-load-cv", cv],
                [*flags, "--moe-buffer", "paged", "--moe-expert-rank-capacity-factor",
                 self.decimals(capacity), "--headroom", self.decimals(headroom)])

    def test_a_load_is_at_most_the_worst(self):
        flags = [*MIXTRAL, *world(8, ep=2, etp=1), "--moe-buffer"]
        self.same_memory([*flags, "capacity", "--moe-load-cv", 1000], [*flags, "worst"])

    def test_flags_win_over_loads(self):
        flags = [*MIXTRAL, *world(8, ep=2, etp=1), "--moe-buffer", "paged",
                 "--moe-expert-rank-capacity-factor", "1.5", "--headroom", "1.25"]
        self.same_memory([*flags, "--moe-load-cv", "0.3"], flags)
        flags = flags[:-2]
        with_load = self.fit(*flags, "--moe-load-cv", "0.3")
        self.assertNotEqual(with_load, self.fit(*flags))

    def trace_file(self, rows):
        """rows: (step, layer, counts)"""
        lines = ["step,layer," + ",".join(f"e{e}" for e in range(len(rows[0][2])))]
        lines += [",".join(map(str, [step, layer, *counts])) for step, layer, counts in rows]
        return self.write("\n".join(lines) + "\n", "routing.csv")

    def check_trace(self, rows, ep):
        path = self.trace_file(rows)

        def ratios(counts):
            size = len(counts) // ep
            total = sum(counts)
            return [Fraction(sum(counts[i * size:(i + 1) * size]) * ep, total)
                    for i in range(ep)] if total else []
        capacity = max(ratio for row in rows for ratio in ratios(row[2]))
        headroom = max(ratio for step in {row[0] for row in rows} for ratio in ratios(
            [sum(column) for column in zip(*(row[2] for row in rows if row[0] == step))]))
        capacity, headroom = (self.decimals(math.ceil(1000 * ratio)) for ratio in (capacity, headroom))
        flags = [*MIXTRAL, *world(8, ep=ep, etp=1), "--moe-buffer", "paged"]
        self.same_memory([*flags, "--routing", path],
                         [*flags, "--moe-expert-rank-capacity-factor", capacity,
                          "--headroom", headroom])
        return capacity, headroom

    def test_load_of_a_trace(self):
        self.assertEqual(self.check_trace([(0, 0, [4, 0, 1, 1, 1, 1, 2, 0]),
                                           (0, 1, [0, 2, 2, 2, 2, 2, 1, 1])], 4),
                         ("1.600", "1.091"))
        self.assertEqual(self.check_trace([(7, 0, [0] * 8), (7, 1, [1] * 8), (8, 0, [0] * 8),
                                           (8, 1, [0] * 8)], 2), ("1.000", "1.000"))
        draw = random.Random(6)
        for _ in range(6):
            def counts():
                return [draw.choice([0, draw.randrange(100), draw.randrange(3000)])
                        for _ in range(8)]
            rows = [(step, layer, counts()) for step in range(3, 7) for layer in range(3)]
            self.check_trace(rows, draw.choice([1, 2, 4, 8]))

    def test_traces_that_do_not_fit(self):
        flags = [*MIXTRAL, *world(8, ep=2, etp=1), "--fit"]
        path = self.trace_file([(0, 0, [1, 2, 3, 4])])
        self.refused(run("estimate", *flags, "--routing", path), 3, path, "4 experts",
                     "--num-experts is 8")
        path = self.trace_file([(0, 0, [0] * 8)])
        self.refused(run("estimate", *flags, "--routing", path), 3, path, "no expert")
        path = self.write("step,layer,e0\n0,1,5\n")
        self.refused(run("estimate", *flags, "--routing", path), 3, path)
        self.refused(run("estimate", *flags, "--routing", self.path("none")), 3, "--routing")
        path = self.trace_file([(0, 0, [1] * 8)])
        self.refused(run("estimate", *flags, "--routing", path, "--moe-load-cv", 1), 2,
                     "--moe-load-cv", "--routing")
        for more in (["--routing", path], ["--moe-load-cv", "0.1"]):
            self.refused(run("estimate", *LLAMA, *world(8), "--fit", *more), 2, more[0],
                         "there are no experts (--num-experts)")


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1], verbosity=0)
