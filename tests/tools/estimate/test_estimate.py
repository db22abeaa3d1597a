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
from launches import GIB, RUNS, estimate, lines

# sequences, batches and what layers save
SETTINGS = """--bf16 --use-distributed-optimizer --use-flash-attn --sequence-parallel
--expert-tensor-parallel-size 1 --hidden-dropout 0 --attention-dropout 0 --moe-probs act""".split()


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
