"""`pagestash estimate`: its verdict, what that leaves out, and the changes that it proposes.

test_estimate_verdict.py BINARY SOURCE
"""
import os
import re
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import cli
from cli import CommandTest, run
from launches import GIB, RUNS, estimate


class Verdict(CommandTest):
    def test_whatif(self):
        """A line's saving is that of a run with its flags."""
        tried = 0
        for name in ("P2", "P9", "P14"):
            flags = RUNS[name]
            report = estimate(*flags)
            worst = report["cluster"]["heaviest_stage"]
            changes = {line["change"] for line in report["whatif"]}
            if name == "P9":
                self.assertIn("--use-precision-aware-optimizer --optimizer-cpu-offload", changes)
                self.assertNotIn("--moe-buffer worst", changes)  # which takes more
            saved = [line["saved_bytes"] for line in report["whatif"]]
            self.assertEqual(saved, sorted(saved, reverse=True))
            self.assertGreater(saved[-1], 0)
            for line in report["whatif"]:
                words = line["change"].split()
                if "," in line["change"] or not words[0].startswith("--"):
                    continue
                turned = estimate(*flags, *words)["stages"][worst]
                before = report["stages"][worst]
                self.assertEqual(before["bytes"]["peak"] - turned["bytes"]["peak"],
                                 line["saved_bytes"], (name, line))
                self.assertEqual(turned["wire_bytes"] - before["wire_bytes"],
                                 line["extra_wire_bytes"], (name, line))
                tried += 1
        self.assertGreater(tried, 12)

    def test_whatif_is_what_megatron_takes(self):
        """Whole sets of flags, as its arguments.py, transformer_config.py and optimizer_config.py of 2026-08 want them;
        what it has no flag for is marked."""
        theirs = """recompute-granularity recompute-modules recompute-method recompute-num-layers no-bias-swiglu-fusion
            activation-func-fp8-input-store cross-entropy-loss-fusion cross-entropy-fusion-impl use-flash-attn
            sequence-parallel use-distributed-optimizer grad-reduce-in-bf16 use-precision-aware-optimizer
            optimizer-cpu-offload micro-batch-size moe-grouped-gemm""".split()
        seen, bare = set(), ["--preset", "llama2-7b", "--tensor-model-parallel-size", 2, "--world-size", 4,
                             "--global-batch-size", 8, "--micro-batch-size", 2, "--attention-backend", "unfused"]
        for flags in (*(RUNS[name] for name in ("P2", "P6", "P9", "P12", "P13", "P14")), bare):
            report = estimate(*flags)
            text = " ".join(run("estimate", *flags, "--details").stdout.split())
            for line in report["whatif"] + [report["together"]] * (report["together"] is not None):
                change, said = line["change"], {*line["change"].split(), *flags}
                used = set(re.findall(r"--([\w-]+)", change))
                self.assertEqual(used <= set(theirs), "pagestash's flag" not in line["cost"], line)
                seen |= used
                if "--optimizer-cpu-offload" in change:
                    self.assertLessEqual({"--use-precision-aware-optimizer", "--use-distributed-optimizer"}, said, line)
                if "--recompute-granularity full" in change:
                    self.assertIn("full --recompute-method uniform --recompute-num-layers 1", change)
                if "--recompute-modules" in change:
                    modules = re.search(r"--recompute-granularity selective --recompute-modules((?: \w+)+)", change)[1]
                    self.assertLessEqual({"layernorm"} if "layernorm" in flags else set(), set(modules.split()))
                    self.assertEqual("moe_act" in modules, "--moe-grouped-gemm" in change, line)
                if line != report["together"]:
                    self.assertIn(f"{line['saved_bytes'] / GIB:.2f} {line['extra_wire_bytes'] / GIB:.2f} {change} "
                                  f"({line['cost']})", text)
        self.assertLessEqual({"tp-recompute-allgather", "recompute-activation-function", "moe-buffer",
                              "optimizer-cpu-offload", "grad-reduce-in-bf16", "moe-grouped-gemm"}, seen)

    def test_whatif_fits(self):
        report = estimate(*RUNS["P12"])
        limit = report["cluster"]["gpu_memory_bytes"]
        self.assertTrue(any(line["fits"] for line in report["whatif"]))
        self.assertIsNone(report["together"])
        limit = sorted(line["peak_bytes"] for line in report["whatif"])[2]
        report = estimate(*RUNS["P12"], "--gpu-memory", limit)
        self.assertFalse(all(line["fits"] for line in report["whatif"]))
        for line in report["whatif"]:
            self.assertEqual(line["fits"], line["peak_bytes"] <= limit)
            if line["change"].startswith("--"):
                peaks = [stage["bytes"]["peak"] for stage in
                         estimate(*RUNS["P12"], *line["change"].split())["stages"]]
                self.assertEqual(line["peak_bytes"], max(peaks), line)

    def test_several_changes_where_no_single_one_fits(self):
        flags = ["--preset", "llama2-70b", "--tensor-model-parallel-size", 4, "--sequence-parallel",
                 "--use-distributed-optimizer", "--world-size", 16]
        report = estimate(*flags)
        together = report["together"]
        self.assertFalse(any(line["fits"] for line in report["whatif"]))
        self.assertEqual(len(together["change"].split(" and ")), 3)
        turned = estimate(*flags, *together["change"].replace(" and ", " ").split())
        self.assertTrue(turned["cluster"]["fits"])
        self.assertEqual(turned["stages"][0]["bytes"]["peak"], together["peak_bytes"])
        text = run("estimate", *flags).stdout
        self.assertIn("\n  no single change is enough: ", text)
        # two are tried before three
        report = estimate(*flags, "--grad-reduce-in-bf16")
        self.assertEqual(len(report["together"]["change"].split(" and ")), 2)

    def test_ten_lines(self):
        """Verdict, heaviest stage and its parts, three changes, what matters; at most 100 columns."""
        for name in ("P2", "P9", "P12", "P13"):
            flags = RUNS[name]
            report, text = estimate(*flags), run("estimate", *flags).stdout
            lines = text.splitlines()
            self.assertLessEqual(len(lines), 10, text)
            self.assertLessEqual(max(map(len, lines)), 100)
            worst = report["stages"][report["cluster"]["heaviest_stage"]]
            peak = worst["bytes"]["peak"] / GIB
            verdict = "fits" if report["cluster"]["fits"] else "does not fit"
            left_out = [of for of in report["left_out"] if of["bytes"] > worst["bytes"]["peak"] // 100]
            could_turn = sum(of["bytes"] for of in left_out) > worst["bytes"]["margin"]
            is_open = ", as far as it is counted" if verdict == "fits" and could_turn else ""
            self.assertTrue(lines[1].startswith(
                f"{verdict}{is_open}: stage {worst['stage']} of {len(report['stages'])} needs "
                f"{'at least ' * bool(left_out)}{peak:.2f} GiB"), lines[1])
            for of in left_out:
                self.assertIn(f": up to {of['bytes'] / GIB:.2f} GiB", text)
            shown = re.findall(r" (\d+\.\d\d)(?=,|$)", " ".join(lines[2:4]).split("  -")[0].strip())
            self.assertAlmostEqual(sum(map(float, shown)), peak, delta=0.1)
            for line in report["whatif"][:3]:
                self.assertIn(f" -{line['saved_bytes'] / GIB:.2f}{', fits' * line['fits']}: "
                              f"{line['change']} ({line['cost']}", " ".join(text.split()))
            for word in ("slack", "_num", "expert_ffn_size", "moe_rows"):
                self.assertNotIn(word, run("estimate", *flags, "--details").stdout)

    def test_what_is_left_out(self):
        """As the library says of even routers and of exchanges; with buffers for the worst no rows."""
        report = estimate(*RUNS["P8"])
        self.assertEqual([(of["field"], of["bytes"]) for of in report["left_out"]],
                         [("moe_rows", 74091331584), ("expert_parallel", 134217728)])
        text = run("estimate", *RUNS["P8"]).stdout
        moe = report["moe_buffers"]
        tenth = moe["live_layers"] * moe["balanced_rows"] * moe["row_bytes"] / 10 / (1 << 30)
        self.assertIn("\nleft out: rows beyond those of an even router: up to 69.00 GiB, "
                      f"{tenth:.2f} for each tenth more\n", text)
        self.assertNotIn("exchange beside", text)
        report = estimate(*RUNS["P8"], "--moe-buffer", "worst")
        self.assertEqual([of["field"] for of in report["left_out"]], ["expert_parallel"])
        self.assertNotIn("at least", run("estimate", *RUNS["P8"], "--moe-buffer", "worst").stdout)
        self.assertEqual(estimate(*RUNS["P1"])["left_out"], [])

    def test_verdict_where_what_is_left_out_could_turn_it(self):
        """Not where there is room for all of it; at least it is in any case."""
        report = estimate(*RUNS["P8"])
        peak, left_out = report["stages"][0]["bytes"]["peak"], report["left_out"][0]["bytes"]
        for memory, said in ((peak + left_out, ""), (peak + left_out - 1, ", as far as it is counted")):
            text = run("estimate", *RUNS["P8"], "--gpu-memory", memory).stdout
            self.assertRegex(text.splitlines()[1], rf"^fits{said}: stage 0 of 1 needs at least ")

    def test_verdict_where_whole_states_are_not_counted(self):
        """What is not counted is more, less, or may be either, and so may turn one verdict, or both."""
        flags = ["--preset", "llama2-7b", "--use-distributed-optimizer", "--world-size", 8]
        vocabulary = {"the vocabulary of --tokenizer-type x (counted as 50257 words)"}
        small = ["--num-layers", 2, "--hidden-size", 512, "--num-attention-heads", 8, "--seq-length", 512,
                 "--max-position-embeddings", 512]
        for more, word, matters in (
                ("--fp32-residual-connection", "at least ", {"--fp32-residual-connection"}),
                ("--cuda-graph-impl local", "at least ", {"--cuda-graph-impl local"}),
                ("--use-custom-fsdp", "at most ", {"--use-custom-fsdp"}),
                ("--freeze-all-layers", "at most ", {"--freeze-all-layers"}),
                ("--optimizer muon", "about ", {"--optimizer muon (counted as adam)"}),
                ("--fp4-format e2m1", "about ", {"--fp4-format e2m1"}),
                ("--yaml-cfg a.yaml", "about ", {"--yaml-cfg a.yaml"}),
                ("--use-checkpoint-args", "about ", {"--use-checkpoint-args"}),
                ("--heterogeneous-layers-config-path a", "about ", {"--heterogeneous-layers-config-path a"}),
                ("--linear-attention-freq 4", "about ", {"--linear-attention-freq 4"}),
                ("--freeze-all-layers --enable-cuda-graph", "about ", {"--freeze-all-layers", "--enable-cuda-graph"}),
                ("--tokenizer-type x", "about ", vocabulary),
                ("--cuda-graph-impl none --optimizer sgd", "", set())):
            of = small if "tokenizer" in more else flags
            opens = {"fits": word in ("at least ", "about "), "does not fit": word in ("at most ", "about ")}
            for verdict, memory in (("fits", "80GiB"), ("does not fit", "1GiB")):
                text = run("estimate", *of, *more.split(), "--gpu-memory", memory).stdout
                said = ", as far as it is counted" * opens[verdict]
                self.assertRegex(text.splitlines()[1], rf"^{verdict}{said}: stage 0 of 1 needs {word}\d", more)
            self.assertEqual(set(re.findall(r"\nnot counted, and it matters: (.*)", text)), matters)
            self.assertEqual(set(estimate(*of, *more.split())["matters"]), matters)

    def test_reserve(self):
        """By the groups of more than one GPU, and a share of each stage's own peak; what was given wins."""
        mib = 1 << 20
        def overhead(*flags, model="mixtral-8x7b", world=16):
            return estimate("--preset", model, "--world-size", world, "--fragmentation", 0,
                            *flags)["stages"][0]["bytes"]["overhead"]
        self.assertEqual(overhead("--overhead", "3MiB"), 3 * mib)
        self.assertEqual(overhead(model="llama2-7b", world=1), 1011 * mib)
        self.assertEqual(overhead(), (1011 + 656 + 656) * mib)  # replicas, and those of experts
        self.assertEqual(overhead("--expert-model-parallel-size", 8), (1011 + 656 + 3128 + 519) * mib)
        for flags, parts in (((), 80), (("--fragmentation", "0.125"), 125)):
            for stage in estimate(*RUNS["P2"], "--overhead", "3MiB", *flags)["stages"]:
                of = stage["bytes"]
                peak = of["total"] + of["transients"]
                self.assertEqual(of["overhead"], 3 * mib + -(-peak * parts // 1000))
        for bad in ("-1", "x", "8%"):
            self.refused(run("estimate", *RUNS["P2"], "--fragmentation", bad), 2, "--fragmentation", bad)


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1], verbosity=0)
