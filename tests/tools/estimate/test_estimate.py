"""The command `pagestash estimate`: its report against published figures and against itself.

test_estimate.py BINARY SOURCE
"""
import itertools
import json
import os
import re
import subprocess
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import cli
import reports
from cli import CommandTest, run

# sequences, batches and what layers save
SETTINGS = """--bf16 --use-distributed-optimizer --use-flash-attn --sequence-parallel
--expert-tensor-parallel-size 1 --hidden-dropout 0 --attention-dropout 0 --moe-probs act""".split()


GIB = 1 << 30


def lines(name):
    path = os.path.join(os.path.dirname(__file__), *[os.pardir] * 2, "data", "estimator", name)
    with open(path, encoding="ascii") as file:
        return [line.split() for line in file if line.strip() and line[0] != "#"]


RUNS = {name: flags for name, *flags in lines("runs.txt")}


def estimate(*arguments):
    result = run("estimate", "--json", *arguments)
    if result.returncode:
        raise AssertionError(f"{arguments}: {result.stderr}")
    return reports.load(result.stdout)


class Runs(CommandTest):
    def test_runs(self):
        """The command lines mean the runs, whose figures the library answers for."""
        stages = [line for line in lines("figures.txt") if line[1] == "stage" and line[0] in RUNS]
        self.assertGreater(len(stages), 30)
        for name, flags in RUNS.items():
            report = estimate(*flags, "--no-gradient-accumulation-fusion")
            for _, _, number, *words in (line for line in stages if line[0] == name):
                stage = report["stages"][int(number)]
                of = {"params": stage["params"]["total"], "expert": stage["params"]["expert"],
                      "states": stage["bytes"]["states"], "head": stage["bytes"]["head"],
                      "saved": stage["bytes"]["activations"],
                      "total": stage["bytes"]["total"] - stage["bytes"]["workspaces"],
                      "live": "+".join(map(str, stage["in_flight"]))}
                for word in words:
                    key, value = word.split("=")
                    self.assertEqual(str(of.get(key, value)), value, (name, number, key))

    def test_expert_buffers_with_full_recomputation(self):
        """Only the layers that run again keep rows."""
        for each, layers in ((1, [1]), (2, [2]), (3, [3]), (16, [8])):
            report = estimate("--preset", "mixtral-8x7b", "--pipeline-model-parallel-size", 4,
                              "--world-size", 8, "--expert-model-parallel-size", 2,
                              "--expert-tensor-parallel-size", 1, "--recompute-granularity", "full",
                              "--recompute-method", "uniform", "--recompute-num-layers", each)
            self.assertEqual([report["moe_buffers"]["live_layers"]], layers)
            self.assertLess(report["moe_buffers"]["balanced_bytes"],
                            report["stages"][0]["bytes"]["recompute"])
        for freq, live in (("([0]*4+[1]*4)*4", 4), ("[0]*31+[1]", 1), ("([0,1])*16", 2)):
            report = estimate("--preset", "mixtral-8x7b", "--pipeline-model-parallel-size", 2,
                              "--num-virtual-stages-per-pipeline-rank", 2, "--moe-layer-freq", freq,
                              "--expert-tensor-parallel-size", 1, "--recompute-granularity", "full",
                              "--recompute-method", "uniform", "--recompute-num-layers", 4,
                              "--ffn-hidden-size", 4096, "--global-batch-size", 2)
            self.assertEqual(report["moe_buffers"]["live_layers"], live, freq)

    def test_groups(self):
        report = estimate("--preset", "mixtral-8x7b", "--num-layers", 32, *SETTINGS, "--members",
                          "--world-size", 16, "--tensor-model-parallel-size", 2,
                          "--context-parallel-size", 2, "--pipeline-model-parallel-size", 2,
                          "--expert-model-parallel-size", 4, "--global-batch-size", 8,
                          "--micro-batch-size", 1)
        groups = {group["group"]: group["members"] for group in report["groups"]}
        self.assertEqual(groups["tensor"], [[2 * i, 2 * i + 1] for i in range(8)])
        self.assertEqual(groups["pipeline"], [[i, i + 8] for i in range(8)])
        self.assertEqual(groups["expert"], [[4 * i + j for j in range(4)] for i in range(4)])
        self.assertEqual(groups["expert data"], groups["data"])


class Report(CommandTest):
    def reports(self):
        for name in ("P2", "P5", "P9", "P12"):
            yield name, estimate(*RUNS[name])

    def test_sums(self):
        for name, report in self.reports():
            for kind, ledger in report["ledger"].items():
                entries = [value for key, value in ledger.items() if key != "sum"]
                modules = report["modules"][kind]
                self.assertEqual(sum(entries), ledger["sum"], name)
                self.assertEqual(sum(of["saved_bytes"] for of in modules), ledger["sum"], name)
                self.assertEqual(sum(of["whole_saved_bytes"] for of in modules),
                                 report["whole_ledger"][kind]["sum"], name)
                self.assertEqual(sum(of["whole_params"] for of in modules),
                                 report["params"][f"{kind}_layer"], name)
            for stage in report["stages"]:
                of = stage["bytes"]
                self.assertEqual(of["weights"] + of["gradients"] + of["optimizer"], of["states"])
                self.assertEqual(of["states"] + of["activations"] + of["head"] + of["recompute"] +
                                 of["paging"] + of["empty_gradients"] + of["fp8_weights"] +
                                 of["gathered"] + of["reloaded"] + of["workspaces"], of["total"])
                self.assertEqual(of["total"] + of["transients"] + of["overhead"], of["peak"])
                self.assertEqual(report["cluster"]["gpu_memory_bytes"] - of["peak"], of["margin"])
                self.assertEqual(sum(layers * live for layers, live in
                                     zip(stage["layers"], stage["in_flight"])),
                                 stage["live_layers"])

    def test_stages(self):
        for name, report in self.reports():
            cluster, stages = report["cluster"], report["stages"]
            ranks = cluster["world_size"] // cluster["num_stages"]
            peaks = [stage["bytes"]["peak"] for stage in stages]
            self.assertEqual(cluster["heaviest_stage"], peaks.index(max(peaks)), name)
            self.assertEqual(cluster["fits"], max(peaks) <= cluster["gpu_memory_bytes"])
            self.assertEqual(sum(sum(stage["layers"]) for stage in stages),
                             report["config"]["num_layers"])
            for number, stage in enumerate(stages):
                self.assertEqual((stage["stage"], stage["first_rank"], stage["num_ranks"]),
                                 (number, number * ranks, ranks))
                self.assertEqual(stage["wire_bytes"],
                                 sum(op["wire_bytes"] for op in report["comm"]
                                     if op["stage"] == number and op["transfer"] != "receive"))
            for op in report["comm"]:
                each, rest = divmod(op["count"], cluster["num_micro_batches"])
                self.assertEqual(op["count_per_micro_batch"], None if rest else each)
            if report["moe_buffers"]:
                live = [stage["live_moe_layers"] for stage in stages]
                self.assertEqual(report["moe_buffers"]["stage"], live.index(max(live)))

    def test_layers(self):
        report = estimate(*RUNS["P11"])
        self.assertEqual([stage["layers"] for stage in report["stages"]],
                         [[11], *[[12]] * 6, [11]])
        report = estimate(*RUNS["P5"])
        self.assertEqual([stage["layers"] for stage in report["stages"]], [[4] * 5] * 4)
        # as the string has it: chunk j of stage r is part j * p + r
        report = estimate("--preset", "llama2-7b", "--num-layers", 10, "--global-batch-size", 2,
                          "--pipeline-model-parallel-size", 2, "--pipeline-model-parallel-layout",
                          "Et|tt|ttt|ttttL")
        self.assertEqual([stage["layers"] for stage in report["stages"]], [[1, 3], [2, 4]])

    def test_expert_rows(self):
        report = estimate(*RUNS["P9"], "--moe-expert-rank-capacity-factor", "1.25")
        moe, row = report["moe_buffers"], 2 * 4096
        for kind, rows in (("working", "capacity"), ("worst_working", "worst")):
            self.assertEqual(moe[f"{kind}_bytes"], moe[f"{rows}_rows"] * (moe["row_bytes"] + row))
        self.assertEqual(moe["paged_rows_model"], moe["working_bytes"] + moe["pages_bytes"])
        pages = moe["pool_pages"] << 18
        self.assertTrue(pages < moe["pool_bytes"] < 1.01 * pages, moe)
        text = run("estimate", *RUNS["P9"], "--moe-expert-rank-capacity-factor",
                   "1.25", "--details").stdout
        for name, rows, key in (("balanced", "balanced_rows", "balanced_bytes"),
                                ("capacity", "capacity_rows", "capacity_bytes"),
                                ("worst routing", "worst_rows", "worst_bytes"),
                                ("pages and layer at work", "capacity_rows", "paged_rows_model"),
                                ("a pool of byte pages", "pool_pages", "pool_bytes")):
            self.assertIn(f"\n  {name:26} {moe[rows]:14} {moe[key] / GIB:12.3f}\n", text)

    def test_offload(self):
        flags = RUNS["P1"]
        plain = estimate(*flags)["stages"][0]["bytes"]
        gone = estimate(*flags, "--optimizer-cpu-offload")["stages"][0]["bytes"]
        self.assertEqual((plain["host"], gone["host"], gone["optimizer"]),
                         (0, plain["optimizer"], 0))

    def test_parts_that_few_runs_have(self):
        """As the library says in figures.txt, in the report and in its text."""
        for flags, parts in (
                ("--fp8-format hybrid", {"fp8_weights": 12952010752, "gathered": 0}),
                ("--use-megatron-fsdp --megatron-fsdp-main-grads-dtype fp32",
                 {"weights": 1684603904, "gathered": 2143363072}),
                ("--fine-grained-activation-offloading --offload-modules core_attn attn_proj",
                 {"activations": 12969869312, "reloaded": 234881024, "host_saved": 4160749568}),
                ("--recompute-granularity full --recompute-method block --recompute-num-layers 8",
                 {"activations": 13217071104, "recompute": 539525120, "workspaces": 33555456})):
            of = estimate(*RUNS["P1"], *flags.split())["stages"][0]["bytes"]
            self.assertEqual({name: of[name] for name in parts}, parts)
            text = run("estimate", *RUNS["P1"], *flags.split(), "--details").stdout
            for name in ("fp8_weights", "gathered", "reloaded", "host_saved", "workspaces"):
                said = f": {of[name] / GIB:.2f} GiB\n"
                self.assertEqual(said in text, of[name] != 0, name)

    def test_expert_buffers_with_block_recomputation(self):
        """Layers behind the first ones keep rows: 7, 5 and, of those that run again, one at a time."""
        for num, live in ((1, 7 * 4), (3, 5 * 4), (8, 1)):
            report = estimate("--preset", "mixtral-8x7b", "--pipeline-model-parallel-size", 4,
                              "--expert-tensor-parallel-size", 1, "--recompute-granularity", "full",
                              "--recompute-method", "block", "--recompute-num-layers", num)
            self.assertEqual(report["moe_buffers"]["live_layers"], live)

    def test_products(self):
        def expected(count, rows, outputs, inputs, sms):
            tiles = -(-rows // 128) * -(-outputs // 256)
            waves = -(-tiles * count // sms)
            moved = 2 * (rows * inputs + inputs * outputs + rows * outputs)
            return {"rows": rows, "tiles": tiles * count,
                    "wave_permille": 1000 * tiles * count // (waves * sms),
                    "tile_permille": 1000 * rows * outputs // (tiles * 128 * 256),
                    "operations_per_byte": 2 * rows * inputs * outputs // moved}
        report = estimate(*RUNS["P9"], "--num-sms", 108)
        products = [of for part in report["modules"].values() for of in part if "product" in of]
        self.assertGreater(len(products), 5)
        for of in products:
            for key, shape in (("product", "shape"), ("whole_product", "whole_shape")):
                count, outputs, inputs = of[shape]
                self.assertEqual(of[key], expected(count, of[key]["rows"], outputs, inputs, 108))
        fc1 = next(of for of in products if of["name"] == "expert.fc1")
        self.assertEqual((fc1["shape"], fc1["product"]["rows"]), ([4, 28672, 4096], 1024))

    def test_config(self):
        config = estimate(*RUNS["P12"])["config"]
        for key, value in {"norm": "rms", "type": "bf16", "loss": "unfused", "qk_norm": "none",
                           "recompute": ["gather"], "kv_rank": 512, "is_tied": False,
                           "distributed_optimizer": True, "moe_rows": "balanced"}.items():
            self.assertEqual(config[key], value, key)
        config = estimate("--preset", "gpt-345m", "--recompute-activations")["config"]
        self.assertEqual((config["norm"], config["recompute"]), ("layer", ["gather", "attention"]))

    def test_cluster(self):
        for name, report in self.reports():
            cluster = report["cluster"]
            ranks = cluster["world_size"] // cluster["num_stages"]
            wire = sum(op["wire_bytes"] * ranks for op in report["comm"]
                       if op["transfer"] != "receive")
            self.assertEqual(cluster["wire_bytes"], wire, name)
            self.assertEqual(cluster["wire_gib"], wire >> 30)
            for total in cluster["ops"]:
                ops = [op for op in report["comm"] if op["op"] == total["op"]]
                of_group = 1 if ops[0]["transfer"] in ("send", "receive") else ops[0]["group_size"]
                self.assertEqual(total["transfers"] * of_group,
                                 sum(op["count"] * ranks for op in ops), (name, total))

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

    def rows(self, text, title):
        """Of the table whose line of titles begins with this; stages a-b as each of them."""
        lines = text.splitlines()
        first = next(i for i, line in enumerate(lines) if line.split()[:len(title)] == title)
        found = []
        for line in itertools.takewhile(lambda line: re.match(r"  [^:]*$", line), lines[first + 1:]):
            name, *cells = line.split()
            ends = [int(end) for end in name.split("-")] if re.match(r"\d+(-\d+)?$", name) else None
            found += [(stage, cells) for stage in range(ends[0], ends[-1] + 1)] if ends else [(name, cells)]
        return found

    def test_text_has_the_figures(self):
        for name in ("P2", "P9", "P12"):
            flags = RUNS[name]
            report, text = estimate(*flags), run("estimate", *flags, "--details").stdout
            table = dict(self.rows(text, ["stage", "weights"]))
            self.assertEqual(len(table), len(report["stages"]))
            for stage in report["stages"]:
                keys = ("weights", "gradients", "optimizer", "activations", "head", "recompute",
                        "paging", "empty_gradients", "transients", "peak", "margin")
                self.assertEqual(table[stage["stage"]],
                                 [f"{stage['bytes'][key] / GIB:.2f}" for key in keys])
            table = dict(self.rows(text, ["stage", "parameters"]))
            for stage in report["stages"]:
                self.assertEqual(table[stage["stage"]][:3],
                                 [str(stage["params"]["total"]), "+".join(map(str, stage["layers"])),
                                  "+".join(map(str, stage["in_flight"]))])
            for op in {op["op"] for op in report["comm"]}:
                table = dict(self.rows(text[text.index(f"\n  {op}: "):], ["stage", "per"]))
                wanted = {of["stage"]: [
                    "-" if of["count_per_micro_batch"] is None else str(of["count_per_micro_batch"]),
                    str(of["count"]), f"{of['payload_bytes'] / 2**20:.2f}",
                    f"{of['wire_bytes'] / GIB:.2f}"] for of in report["comm"] if of["op"] == op}
                self.assertEqual(table, wanted)

    def test_stages_that_are_alike_stand_once(self):
        text = run("estimate", *RUNS["P12"], "--details").stdout
        self.assertRegex(text[text.index("\n  ep.a2a: "):], r"\n +0 .*\n +1-14 .*\n +15 ")

    def test_text_is_aligned(self):
        """Large figures too; no line ends in a blank, or is longer than 100 columns."""
        text = run("estimate", "--preset", "deepseek-v3", "--micro-batch-size", 64, "--world-size",
                   64, "--pipeline-model-parallel-size", 16, "--expert-model-parallel-size", 4,
                   "--expert-tensor-parallel-size", 1, "--decoder-last-pipeline-num-layers",
                   1, "--global-batch-size", 64 * 256, "--details").stdout
        self.assertNotRegex(text, r"(?m) $")
        lines = text.splitlines()
        self.assertLessEqual(max(map(len, lines)), 100)
        first = next(i for i, line in enumerate(lines) if line.split()[:2] == ["stage", "weights"])
        table = list(itertools.takewhile(lambda line: line.startswith("  "), lines[first:]))
        self.assertGreater(len(table), 8)
        self.assertEqual(len({len(line) for line in table}), 1, table)
        changes = lines[lines.index("       saved  more sent  change") + 1:]
        self.assertGreater(len(changes), 8)
        for line in changes:
            self.assertRegex(line, r"^( {4}\S.*|  [ \d]{7}\.\d\d [ \d-]{7}\.\d\d  \S.*)$")

    def test_is_stable(self):
        flags = [*RUNS["P9"], "--fragmentation", 0]  # whose default is a text with a point
        first = run("estimate", "--json", *flags).stdout
        for name in ("C", "C.UTF-8", "de_DE.UTF-8"):
            self.assertEqual(run("estimate", "--json", *flags, env={"LC_ALL": name}).stdout, first)
        self.assertEqual(run("estimate", *flags, env={"LC_ALL": "de_DE.UTF-8"}).stdout,
                         run("estimate", *flags).stdout)
        self.assertNotRegex(first.replace(json.loads(first)["version"], ""), r"\d\.\d|\de[+-]?\d")

    def test_words_that_are_no_text(self):
        flags = ["--preset", "gpt2-124m", "--optimizer", b"a\xff", b"--\xfe", "--json"]
        for mode in ([], ["--fit"]):
            result = run_bytes("estimate", *flags, *mode)
            self.assertEqual(result.returncode, 0, result)
            report = reports.load(result.stdout.decode("utf-8"))
            self.assertEqual(report["not_counted"], ["--optimizer a? (counted as adam)"])
            if not mode:
                self.assertEqual(report["warnings"], ["unknown flags: --?"])

    def test_config_is_whole(self):
        """Every field of pst_estimate_config, by its name."""
        with open(os.path.join(cli.SOURCE, "include", "pagestash", "estimate_config.h"),
                  encoding="ascii") as file:
            text = re.search(r"typedef struct pst_estimate_config \{(.*?)\} pst_estimate_config;",
                             file.read(), re.S)[1]
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        names = {name for line in text.split(";") for name in re.findall(r"(\w+)(?=,|$)", line)}
        report = estimate("--preset", "deepseek-v3", "--pipeline-model-parallel-size", 4,
                          "--decoder-last-pipeline-num-layers", 13)
        self.assertEqual(set(report["config"]), names - {"struct_size"})
        self.assertEqual(report["config"]["is_moe"], [False] * 3 + [True] * 58)
        self.assertEqual(report["config"]["chunk_layers"], [16, 16, 16, 13])
        config = estimate("--preset", "llama2-7b")["config"]
        self.assertEqual((config["is_moe"], config["chunk_layers"]), (None, None))

    def test_no_room_for_output(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            result = run_to(full, "estimate", "--preset", "llama2-7b", "--json")
        self.assertEqual(result, 3)


def run_bytes(*arguments):
    return subprocess.run([cli.BINARY, *arguments], capture_output=True, check=False)


def run_to(file, *arguments):
    return subprocess.run([cli.BINARY, *arguments], stdout=file, stderr=subprocess.DEVNULL,
                          check=False).returncode


class Scale(CommandTest):
    def test_many_gpus(self):
        """65,536 GPUs, 512 micro-batches, 16 chunks in each of 64 stages"""
        flags = ["--num-layers", 1024, "--hidden-size", 16384, "--num-attention-heads", 128,
                 "--seq-length", 8192, "--max-position-embeddings", 8192, "--vocab-size", 128000,
                 "--swiglu", "--tensor-model-parallel-size", 8, "--sequence-parallel",
                 "--pipeline-model-parallel-size", 64, "--world-size", 65536,
                 "--num-virtual-stages-per-pipeline-rank", 16, "--micro-batch-size", 1,
                 "--global-batch-size", 512 * 128, "--bf16", "--use-distributed-optimizer"]
        report = estimate(*flags)
        self.assertEqual(report["cluster"]["num_micro_batches"], 512)
        self.assertEqual(len(report["stages"]), 64)
        pid = os.posix_spawn(cli.BINARY, [cli.BINARY, "estimate", *map(str, flags)], os.environ,
                             file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
        _, status, usage = os.wait4(pid, 0)
        self.assertEqual(status, 0)
        if "LSAN_OPTIONS" not in os.environ and "ASAN_OPTIONS" not in os.environ:
            self.assertLess(usage.ru_maxrss, 64 << 10)

    def test_figures_beyond_64_bits(self):
        """The line names the largest flag, and no place in our sources."""
        for mode in ([], ["--fit"], ["--timeline", 0]):
            result = run("estimate", "--preset", "llama2-7b", "--seq-length", 1 << 62,
                         "--max-position-embeddings", 1 << 62, *mode)
            self.refused(result, 2)
            self.assertRegex(result.stderr, rf"^pagestash: --seq-length {1 << 62}: [a-z ]+ exceeds? 64 bits\n$")

    def test_figures_of_a_config_json(self):
        """What exceeds 64 bits, or 2^63 - 1, is said with the key of the file, unless a flag says more."""
        seq = ["--seq-length", 1 << 62, "--max-position-embeddings", 1 << 62]
        small = {"num_hidden_layers": 1, "hidden_size": 1 << 28, "intermediate_size": 1117600000,
                 "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 2}
        for name, changes, flags, says, why in (
                ("llama-2-7b", {"hidden_size": 1 << 58, "head_dim": 128}, [], "hidden_size", "64 bits"),
                ("deepseek-v3", {"n_shared_experts": 1 << 45}, [], "n_shared_experts", "64 bits"),
                ("llama-2-7b", small, ["--seq-length", 1, "--optimizer-cpu-offload"], "intermediate_size",
                 r"host: more than 2\^63 - 1"),
                ("llama-2-7b", {"hidden_size": 1 << 58}, seq, f"--seq-length {1 << 62}:", "64 bits"),
                # what does not count is not the cause, and what counts as two things is replaced by two flags
                ("mixtral-8x7b", {}, ["--seq-length", 900000, "--micro-batch-size", 900000],
                 "--seq-length 900000:", "buffers of experts exceed 64 bits"),
                ("mixtral-8x7b", {"intermediate_size": 1 << 62}, ["--ffn-hidden-size", 100],
                 "intermediate_size", "64 bits"),
                ("llama-2-7b", {"vocab_size": 1 << 62}, ["--seq-length", 1 << 60, *seq[2:], "--vocab-size", 32000],
                 f"--seq-length {1 << 60}:", "64 bits"),
                ("llama-2-7b", {}, ["--overhead", "8589934591GiB"], "--overhead", r"overhead: more than 2\^63 - 1")):
            with open(os.path.join(cli.SOURCE, "tests/data/hf", name + ".json"), encoding="utf-8") as file:
                path = self.write(json.dumps({**json.load(file), **changes}), "config.json")
            key = "" if says.startswith("--") else f" \\({re.escape(path)}\\) {changes.get(says)}:"
            modes = ([], ["--fit"], ["--timeline", 0]) if why == "64 bits" else ([],)
            for mode in modes:
                result = run("estimate", "--hf-config", path, *flags, *mode)
                self.refused(result, 3 if key else 2)
                self.assertRegex(result.stderr, rf"^pagestash: {says}{key} .*{why}\n$")

    def test_figures_that_json_cannot_hold(self):
        """Each of these printed a negative number: what all GPUs send, what a layer undivided
        saves, and an optimizer in host memory."""
        both = ["--preset", "llama2-7b", "--micro-batch-size", 1]
        for flags, flag, what in (
                (["--world-size", 1 << 31, "--tensor-model-parallel-size", 2,
                  "--global-batch-size", 1 << 34, "--seq-length", 1 << 38,
                  "--max-position-embeddings", 1 << 38], "seq-length", "wire_gib"),
                (["--world-size", 32, "--tensor-model-parallel-size", 32, "--num-layers", 1,
                  "--sequence-parallel", "--global-batch-size", 1, "--seq-length", 1 << 46,
                  "--max-position-embeddings", 1 << 46],
                 "seq-length", "whole_saved_bytes"),
                (["--num-layers", 1, "--hidden-size", 1 << 28, "--ffn-hidden-size", 1117600000,
                  "--num-attention-heads", 1, "--kv-channels", 2, "--num-query-groups", 1,
                  "--seq-length", 1, "--optimizer-cpu-offload"], "ffn-hidden-size", "host"),
                (["--overhead", "8589934591GiB"], "overhead", "overhead"),
                (["--overhead", "8589934591GiB", "--fit"], "overhead", "bytes of a GPU")):
            result = run("estimate", "--json", *both, *flags)
            self.assertEqual((result.returncode, result.stdout), (2, ""), flags)
            self.assertRegex(result.stderr, rf"^pagestash: --{flag} \d+: {what}: more than 2\^63 - 1\n$")


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
