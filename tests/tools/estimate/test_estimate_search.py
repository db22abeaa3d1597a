"""`pagestash estimate --search`: every split, the order, and what is kept of the launch line.

test_estimate_search.py BINARY SOURCE
"""
import itertools
import os
import re
import select
import subprocess
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import cli
import reports
from cli import run
from launches import GIB, LLAMA, MIXTRAL, EstimateTest, world


# What a row computes anew, by flags that Megatron-LM has.
MODULES = ["--recompute-granularity", "selective", "--recompute-modules", "layernorm", "mla_up_proj"]
RECOMPUTE = {"as given": [], "selective": [*MODULES, "moe_act"], "blocks": [*MODULES, "mlp", "moe"],
             "full": ["--recompute-granularity", "full"]}
SHARDED = ["--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"]


def launch(entry, gpus, batch, layers):
    """The row's launch line, without its model."""
    flags = world(gpus, t=entry["tensor_parallel"], p=entry["pipeline_parallel"], v=entry["virtual_stages"],
                  c=entry["context_parallel"], ep=entry["expert_parallel"], etp=entry["expert_tensor_parallel"],
                  batch=batch)
    if entry["layout"] is not None:
        at = flags.index("--num-virtual-stages-per-pipeline-rank") if entry["virtual_stages"] > 1 else len(flags)
        flags = [*flags[:at], *flags[at + 2:], "--pipeline-model-parallel-layout", entry["layout"]]
    else:
        assert layers % entry["pipeline_parallel"] == 0
    return [*flags, *RECOMPUTE[entry["recompute"]]]


class SearchTest(EstimateTest):
    def splits(self, gpus, layers, heads, experts, s=4096):
        """(t, p, v, c, ep, etp) that could be valid: tensor parallel in a node of 8, and context parallel
        with 4,096 tokens or more on a GPU"""
        divisors = [i for i in range(1, gpus + 1) if gpus % i == 0]
        for t, p, c, ep in itertools.product(divisors, repeat=4):
            if gpus % (t * p * c) or heads % t or p > layers or (experts or 1) % ep or t > 8 or \
                    (c > 1 and s // c < 4096):
                continue
            for v in range(1, layers // p + 1 if p > 1 else 2):
                for etp in sorted({1, t} if experts else {t}):
                    if (v == 1 or self.chunks(layers, p * v)) and gpus % (etp * ep * p) == 0:
                        yield t, p, v, c, ep, etp

    def chunks(self, layers, num):
        """Layers of each, as many as go, of which the last two may have fewer; none where others had, too."""
        each = -(-layers // num)
        counts = [max(0, min(each, layers - i * each)) for i in range(num)]
        return counts if set(counts[:-2]) <= {each} and sum(counts[-2:]) > 0 else None

    def check_search(self, base, gpus, layers, heads, experts=0, memory=80, batch=24, s=4096):
        """Every split that is not refused, and the fastest that fit before what needs least."""
        flags = [*base, "--num-layers", layers, "--gpu-memory", f"{memory}GiB"]
        keys = self.object(*flags, "--world-size", gpus, "--global-batch-size", batch, "--seq-length", s,
                           "--search")
        found, tried = {}, 0
        for t, p, v, c, ep, etp in self.splits(gpus, layers, heads, experts, s):
            tried += 1
            more = []
            if layers % p and v == 1:
                last = layers - -(-layers // p) * (p - 1)
                if last < 1:
                    continue
                more = ["--decoder-last-pipeline-num-layers", last]
            elif layers % (p * v):
                stages = "|".join("t" * chunk for chunk in self.chunks(layers, p * v))
                more = ["--pipeline-model-parallel-layout", f"E{stages}L"]
            for again in RECOMPUTE.values():
                result = run("estimate", *flags, *more, "--fit", "--json", *again,
                             *world(gpus, t, p, v, c, ep, etp if experts else None, batch=batch, s=s))
                if result.returncode < 2:
                    found[t, p, v, c, ep, etp] = reports.load(result.stdout)["needed_bytes"]
                if result.returncode == 0:
                    break
        fitting = [needed for needed in found.values() if needed <= memory * GIB]
        self.assertEqual((keys["tried"], keys["valid"], keys["fitting"]),
                         (tried, len(found), len(fitting)))
        self.assertEqual(len(keys["best"]), min(20, len(found)))
        order = []
        for entry in keys["best"]:
            split = tuple(entry[key] for key in (
                "tensor_parallel", "pipeline_parallel", "virtual_stages", "context_parallel",
                "expert_parallel", "expert_tensor_parallel"))
            self.assertEqual(found[split], entry["needed_bytes"])
            self.assertEqual(entry["margin_bytes"], memory * GIB - entry["needed_bytes"])
            self.assertEqual(entry["fits"], entry["margin_bytes"] >= 0)
            order.append((not entry["fits"], entry["predicted_us"] if entry["fits"] else 0,
                          entry["needed_bytes"], *split))
        self.assertEqual(order, sorted(order))
        self.assertEqual(len(set(order)), len(order))
        return keys

    def test_search_finds_all_splits(self):
        keys = self.check_search(LLAMA, 8, layers=12, heads=32, memory=14)
        self.assertGreater(keys["valid"], keys["fitting"])
        self.assertGreater(keys["fitting"], 0)

    def test_search_over_experts(self):
        self.check_search(MIXTRAL, 8, layers=4, heads=32, experts=8)

    def test_search_over_long_sequences(self):
        keys = self.check_search(LLAMA, 8, layers=4, heads=32, s=16384)
        self.assertEqual({entry["context_parallel"] for entry in keys["best"]}, {1, 2, 4})

    def test_search_with_layers_that_do_not_divide(self):
        keys = self.check_search(LLAMA, 4, layers=7, heads=32)
        shapes = {(entry["pipeline_parallel"], entry["virtual_stages"]): (
            entry["stage_layers"], entry["last_stage_layers"], entry["layout"]) for entry in keys["best"]}
        self.assertEqual(shapes[4, 1], (2, 1, "Et*2|(t*2|)*2t*1L"))
        self.assertEqual(shapes[2, 2], (4, 3, "Et*2|(t*2|)*2t*1L"))
        self.assertEqual(shapes[1, 1], (7, 7, None))

    def test_search_keeps_what_is_given(self):
        """No size that a flag gave is another one in any row, and they are named."""
        for given in ({"tensor_parallel": 2}, {"tensor_parallel": 16}, {"pipeline_parallel": 4},
                      {"expert_parallel": 4, "expert_tensor_parallel": 1}, {"context_parallel": 2},
                      {"pipeline_parallel": 2, "virtual_stages": 4}):
            names = {"tensor_parallel": "--tensor-model-parallel-size",
                     "pipeline_parallel": "--pipeline-model-parallel-size",
                     "virtual_stages": "--num-virtual-stages-per-pipeline-rank",
                     "context_parallel": "--context-parallel-size",
                     "expert_parallel": "--expert-model-parallel-size",
                     "expert_tensor_parallel": "--expert-tensor-parallel-size"}
            more = [word for key, value in given.items() for word in (names[key], value)]
            flags = [*MIXTRAL, "--world-size", 16, "--global-batch-size", 64, *more, "--search"]
            result = run("estimate", *flags, "--json")
            keys = reports.load(result.stdout)
            self.assertGreater(len(keys["best"]), 0)
            self.assertEqual(set(keys["kept"]), set(given))
            for entry in keys["best"]:
                self.assertEqual({key: entry[key] for key in given}, given)
            text = run("estimate", *flags).stdout
            for key, value in given.items():
                self.assertIn(f"{names[key]} {value}, ", text)

    def test_search_keeps_a_given_layout(self):
        keys = self.object(*LLAMA, *world(8, p=4), "--search", "--decoder-last-pipeline-num-layers", 5)
        self.assertEqual({(entry["pipeline_parallel"], entry["virtual_stages"], entry["stage_layers"],
                           entry["last_stage_layers"]) for entry in keys["best"]}, {(4, 1, 9, 5)})

    def test_search_keeps_tensor_parallelism_in_a_node(self):
        for node in (2, 8):
            keys = self.object(*LLAMA, "--world-size", 64, "--global-batch-size", 64, "--search",
                               "--gpus-per-node", node, "--gpu-memory", "1MiB", code=1)  # least needed first
            self.assertEqual(max(entry["tensor_parallel"] for entry in keys["best"]), node)

    def test_search_computes_anew_what_it_must(self):
        """Nothing where that fits, nor more than was asked where a flag said so; otherwise see the test of
        DeepSeek-V3."""
        flags = ["--preset", "deepseek-v3", "--world-size", 1024, "--global-batch-size", 8192,
                 "--use-distributed-optimizer", "--search"]
        self.assertEqual({entry["recompute"] for entry in
                          self.object(*flags, "--gpu-memory", "640GiB", repeat=False)["best"]}, {"as given"})
        self.assertEqual({entry["recompute"] for entry in
                          self.object(*flags, "--recompute-granularity", "full", repeat=False)["best"]}, {"as given"})

    def check_rows(self, model, gpus, batch, layers, experts):
        """The first five fit, with rows that are not even too, by flags that Megatron-LM has, and exchange experts'
        rows among so many GPUs at most."""
        base = [*model, *SHARDED]
        best = self.object(*base, "--world-size", gpus, "--global-batch-size", batch, "--search",
                           repeat=gpus < 1024)["best"][:5]
        for entry in best:
            flags = [*base, *launch(entry, gpus, batch, layers)]
            self.assertEqual(self.fit(*flags, code=0)["needed_bytes"], entry["needed_bytes"], entry)
            if entry["recompute"] != "blocks":  # which has the buffers of one layer
                self.fit(*flags, "--moe-buffer", "capacity", "--moe-load-cv", "0.05", code=0)
            self.assertLessEqual(entry["tensor_parallel"], 4)
            self.assertEqual((entry["context_parallel"], entry["expert_tensor_parallel"]), (1, 1))
            self.assertLessEqual(entry["expert_parallel"], experts)
        self.assertEqual(len({tuple(entry.values()) for entry in best}), 5)
        return best

    def test_search_for_mixtral_on_128(self):
        """The split of Megatron-LM's own release test (mixtral_8x7b_tp1pp4ep8vpp8_release, which has tp 2) is one of
        the first five where its transfers overlap as little as those of the line, and rows are exchanged as by it; with
        overlaps fewer stages lead."""
        best = self.check_rows([*MIXTRAL[:3], *MIXTRAL[4:]], 128, 1024, 32, experts=8)
        self.assertEqual({(entry["tensor_parallel"], entry["pipeline_parallel"], entry["recompute"])
                          for entry in best[:3]}, {(1, 2, "as given")})
        best = self.object(*MIXTRAL, "--world-size", 128, "--global-batch-size", 1024, "--search",
                           "--moe-token-dispatcher-type", "alltoall")["best"][:5]
        splits = [tuple(entry[key] for key in ("tensor_parallel", "pipeline_parallel", "virtual_stages",
                                               "expert_parallel")) for entry in best]
        self.assertEqual(splits[0], (1, 4, 8, 8))
        self.assertIn((2, 4, 8, 8), splits)

    def test_search_for_deepseek_v3_on_1024(self):
        """16 stages as DeepSeek had first, experts on two nodes, nothing or little computed anew but in one row. Where
        each expert's row is sent by itself, experts stay within a node. NVIDIA's split (tp2 pp8 vpp4 ep64) fits as its
        recipe has it."""
        model = ["--preset", "deepseek-v3"]
        best = self.check_rows(model, 1024, 8192, 61, experts=16)
        self.assertEqual([best[0][key] for key in ("pipeline_parallel", "expert_parallel", "recompute")],
                         [16, 16, "selective"])
        for entry in best:
            self.assertIn(entry["pipeline_parallel"], (8, 16))
            self.assertGreater(entry["margin_bytes"], 4 * GIB)
        kinds = [entry["recompute"] for entry in best]
        self.assertGreater(len(set(kinds)), 1)
        self.assertLessEqual(kinds.count("full"), 1)
        keys = self.fit(*model, *SHARDED, *world(1024, t=2, p=8, ep=64, etp=1, batch=8192), "--mtp-num-layers", 1,
                        "--pipeline-model-parallel-layout", "Et|(tt|)*30mL", "--recompute-granularity", "selective",
                        "--recompute-modules", "mla_up_proj", "mlp", "--fp8-format", "hybrid", "--fp8-recipe",
                        "tensorwise", code=0)
        self.assertGreater(keys["margin_bytes"], 4 * GIB)
        keys = self.object(*model, *SHARDED, "--world-size", 1024, "--search", "--moe-token-dispatcher-type", "alltoall",
                           repeat=False)
        self.assertEqual({entry["expert_parallel"] for entry in keys["best"][:5]}, {8})
        self.assertEqual(keys["global_batch"], 8 * 1024)
        self.assertGreater(keys["best"][0]["predicted_us"], best[0]["predicted_us"])

    def test_search_on_an_assumed_gpu(self):
        """It has as much memory as where it is said."""
        flags = [*LLAMA, "--world-size", 8, "--search"]
        self.assertEqual(self.object(*flags), self.object(*flags, "--gpu", "h100"))

    def test_search_beside_overlapped_exchanges(self):
        """No experts are computed anew."""
        flags = ["--preset", "deepseek-v3", *SHARDED, "--world-size", 1024, "--pipeline-model-parallel-size", 16,
                 "--tensor-model-parallel-size", 2, "--search"]
        kinds = [{entry["recompute"] for entry in self.object(*flags, *more)["best"]}
                 for more in ([], ["--overlap-moe-expert-parallel-comm"])]
        self.assertTrue(kinds[0] & {"blocks", "full"})
        self.assertFalse(kinds[1] & {"blocks", "full"})

    def test_search_says_what_its_rows_leave_out(self):
        flags = [*MIXTRAL, "--world-size", 16, "--search", "--gpu-memory", "160GiB"]
        least, flex = "\nneed GiB: at least, ", ", dispatcher flex\n"
        text = run("estimate", *flags).stdout
        self.assertIn(least, text)
        self.assertIn(flex, text)
        self.assertNotIn(least, run("estimate", *flags, "--moe-buffer", "worst").stdout)
        self.assertNotIn(flex, run("estimate", *flags, "--moe-token-dispatcher-type", "alltoall").stdout)
        text = run("estimate", *LLAMA, "--world-size", 16, "--search").stdout
        self.assertNotIn(least, text)
        self.assertNotIn(flex, text)

    def test_search_says_what_a_sharded_optimizer_saves(self):
        flags = ["--preset", "llama2-7b", "--world-size", 16, "--global-batch-size", 64]
        keys = self.object(*flags, "--search")
        saved = keys["optimizer_saving_bytes"]
        row = launch(keys["best"][0], 16, 64, 32)
        needs = [self.fit(*flags[:2], *row, *more)["needed_bytes"] for more in ([], SHARDED[:1])]
        self.assertEqual(needs[0] - needs[1], saved)
        self.assertGreater(saved, 4 * GIB)
        line = f"\n--use-distributed-optimizer would save {saved / GIB:.2f} GiB of the first row\n"
        self.assertIn(line, run("estimate", *flags, "--search").stdout)
        for more in (["--use-distributed-optimizer"], ["--use-megatron-fsdp"]):
            self.assertEqual(self.object(*flags, *more, "--search")["optimizer_saving_bytes"], 0)
            self.assertNotIn("would save", run("estimate", *flags, *more, "--search").stdout)

    def test_search_in_the_world_with_most_divisors(self):
        gpus, s = 2095133040, 2520 * 4096
        keys = self.object("--num-layers", 1, "--hidden-size", 64, "--num-attention-heads", 1,
                           "--vocab-size", 128, "--max-position-embeddings", s, "--bf16", "--world-size",
                           gpus, "--global-batch-size", gpus, "--seq-length", s, "--search")
        divisors = [i for i in range(1, 2521) if gpus % i == 0]
        self.assertEqual(keys["tried"], len(divisors))
        self.assertEqual(keys["valid"], sum(s % i == 0 for i in divisors))

    def test_search_progress(self):
        """On stderr, each split once, on a terminal only, and away at the end."""
        flags = ["estimate", "--search", *LLAMA, "--world-size", "8"]
        main, terminal = os.openpty()
        result = subprocess.run([cli.BINARY, *flags], stdout=subprocess.PIPE, stderr=terminal, timeout=600, check=False)
        os.close(terminal)
        shown = b""
        while select.select([main], [], [], 0)[0]:
            try:
                shown += os.read(main, 65536)
            except OSError:  # all was read
                break
        os.close(main)
        quiet = run(*flags)
        self.assertEqual((quiet.stdout, quiet.stderr), (result.stdout.decode(), ""))
        tried = int(re.search(r"tried (\d+)", quiet.stdout)[1])
        self.assertGreater(tried, 10)
        self.assertEqual(shown.decode().split("\r\033[K"),
                         [f"split {i + 1} of {tried}" for i in range(tried)] + [""])

    def test_search_text(self):
        flags = [*LLAMA, *world(8)[:4], "--global-batch-size", 64, "--search"]
        keys = self.object(*flags)
        text = run("estimate", *flags)
        self.assertEqual(text.returncode, 0)
        self.assertEqual(run("estimate", *flags).stdout, text.stdout)
        lines = text.stdout.splitlines()
        self.assertLessEqual(max(map(len, lines)), 100)
        self.assertTrue(any(line.startswith(f"tried {keys['tried']}, valid {keys['valid']}, fitting with a "
                                            f"reserve {keys['fitting']};") for line in lines))
        head = [i for i, line in enumerate(lines) if line.split()[:2] == ["tp", "pp"]][0]
        for line, entry in zip(lines[head + 1:], keys["best"]):
            cells = line.split()
            self.assertEqual(list(map(int, cells[:8])), [entry[key] for key in (
                "tensor_parallel", "pipeline_parallel", "virtual_stages", "context_parallel",
                "expert_parallel", "expert_tensor_parallel", "data_parallel", "micro_batches")])
            self.assertEqual(cells[8:12], [f"{entry['predicted_us'] / 1e3:.0f}", *(
                f"{entry[key] / GIB:.2f}" for key in ("needed_bytes", "margin_bytes", "wire_bytes"))])
        self.assertEqual(len(lines), head + 1 + len(keys["best"]))

    def test_search_shows_the_given_split_beside(self):
        flags = [*LLAMA, *world(2, p=2), "--gpu-memory", "100GiB"]
        fit, given = self.object(*flags, "--fit"), self.object(*flags, "--search")["given"]
        for key in ("heaviest_stage", "needed_bytes", "margin_bytes", "fits"):
            self.assertEqual(given[key], fit[key], key)

    def test_search_goes_on_where_the_given_split_cannot(self):
        flags = [*LLAMA, "--world-size", 16, "--global-batch-size", 24]
        self.refused(run("estimate", *flags, "--fit"), 2, "--global-batch-size 24")
        keys = self.object(*flags, "--search")
        self.assertIsNone(keys["given"])
        self.assertGreater(keys["fitting"], 0)

    def test_search_where_no_split_can_be_run(self):
        """In flags, and without a place in our sources."""
        result = run("estimate", *LLAMA, "--world-size", 4, "--global-batch-size", 3, "--search",
                     "--tensor-model-parallel-size", 1, "--pipeline-model-parallel-size", 1)
        self.refused(result, 2, "--search: no split can be run", "--global-batch-size 3", "--micro-batch-size 1")
        self.assertNotIn(".c:", result.stderr)

    def test_search_names_what_it_keeps(self):
        more = ["--recompute-granularity", "full", "--recompute-method", "uniform",
                "--recompute-num-layers", 2]
        keys = self.object(*LLAMA, "--world-size", 8, "--search", *more)
        self.assertEqual(keys["recompute"], "full, groups of 2")
        keys = self.object(*MIXTRAL, "--world-size", 8, "--search", "--recompute-granularity", "selective",
                           "--recompute-modules", "core_attn", "moe_act", "layernorm", code=1)
        self.assertEqual(keys["recompute"], "gather, norm, attention, experts")

    def test_search_with_uneven_loads(self):
        """Of each split, not of the one that was given, where one GPU has every expert."""
        tried = 0
        for buffers in ("capacity", "paged"):
            load = ["--moe-buffer", buffers, "--moe-load-cv", "0.5", "--recompute-activation-function"]
            for entry in self.object(*MIXTRAL, "--world-size", 8, "--global-batch-size", 64, *load, "--search",
                                     code=1)["best"]:
                if entry["expert_parallel"] == 1 or entry["pipeline_parallel"] > 1:
                    continue
                split = world(8, t=entry["tensor_parallel"], c=entry["context_parallel"],
                              ep=entry["expert_parallel"], etp=entry["expert_tensor_parallel"])
                keys = self.object(*MIXTRAL, *split, *load, "--fit", code=1)
                self.assertEqual(entry["needed_bytes"], keys["needed_bytes"], entry)
                tried += 1
        self.assertGreater(tried, 5)

    def test_search_where_nothing_fits(self):
        keys = self.object(*LLAMA, "--world-size", 2, "--search", "--gpu-memory", "1GiB", code=1)
        self.assertEqual(keys["fitting"], 0)
        self.assertGreater(keys["valid"], 0)
        self.assertTrue(all(entry["margin_bytes"] < 0 for entry in keys["best"]))

    def test_what_is_not_counted_is_named(self):
        flags = [*LLAMA, *world(8), "--optimizer", "muon"]
        line = "--optimizer muon (counted as adam)"
        for mode in ("--fit", "--search"):
            self.assertEqual(self.object(*flags, mode, "--gpu-memory", "640GiB")["not_counted"],
                             [line])
            self.assertIn(f"\nnot counted: {line}\n", run("estimate", *flags, mode, "--details").stdout)
            self.assertEqual(self.object(*flags[:-2], mode, "--gpu-memory", "640GiB")["not_counted"],
                             [])
        fp4 = [*LLAMA, *world(8), "--fp4-format", "e2m1", "--search"]
        self.assertEqual(self.object(*fp4)["matters"], ["--fp4-format e2m1"])
        self.assertIn("\nnot counted, and it matters: --fp4-format e2m1\n", run("estimate", *fp4).stdout)
        result = run("estimate", *flags, "--timeline", 0)
        self.assertEqual(result.stderr, f"pagestash: not counted: {line}\n")


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1], verbosity=0)
