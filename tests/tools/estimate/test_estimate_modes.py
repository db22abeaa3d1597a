"""The modes of `pagestash estimate`: what fits, the search, the timeline, the picture, loads.

test_estimate_modes.py BINARY SOURCE
"""
import csv
import io
import itertools
import json
import math
import os
import random
import re
import select
import statistics
import subprocess
import sys
import unittest
from fractions import Fraction

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import cli
import reports
from cli import CommandTest, run

GIB = 1 << 30
LLAMA = ["--preset", "llama2-7b", "--bf16", "--use-distributed-optimizer", "--use-flash-attn"]
MIXTRAL = ["--preset", "mixtral-8x7b", *LLAMA[2:]]


def world(gpus, t=1, p=1, v=1, c=1, ep=1, etp=None, batch=64, b=1, s=4096):
    flags = ["--nproc-per-node", gpus, "--nnodes", 1, "--tensor-model-parallel-size", t,
             "--pipeline-model-parallel-size", p, "--context-parallel-size", c,
             "--micro-batch-size", b, "--global-batch-size", batch, "--seq-length", s]
    flags += ["--sequence-parallel"] if t > 1 else []
    flags += ["--num-virtual-stages-per-pipeline-rank", v] if v > 1 else []
    flags += ["--expert-model-parallel-size", ep] if ep > 1 else []
    return flags + ([] if etp is None else ["--expert-tensor-parallel-size", etp])


class ModesTest(CommandTest):
    def object(self, *flags, code=0):
        result = run("estimate", *flags, "--json")
        self.assertEqual((result.returncode, result.stderr), (code, ""), result)
        self.assertEqual(run("estimate", *flags, "--json").stdout, result.stdout)
        return reports.load(result.stdout)

    def fit(self, *flags, code=None):
        result = run("estimate", *flags, "--fit", "--json")
        self.assertIn(result.returncode, (0, 1) if code is None else (code,), result)
        keys = reports.load(result.stdout)
        self.assertEqual(keys["fits"], result.returncode == 0)
        return keys

    # ---- --fit

    def test_fit_says_what_each_stage_needs(self):
        flags = [*LLAMA, *world(8, t=2, p=2), "--overhead", "2GiB"]
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
        reserve = self.object(*flags)["stages"][0]["bytes"]["overhead"]
        self.assertEqual(keys["overhead_bytes"], reserve)
        self.assertGreater(reserve, 2 * GIB)
        self.assertEqual(keys["needed_bytes"], self.fit(*flags, "--overhead", 0)["needed_bytes"] + reserve)
        # what fits without one does not with it
        edge = ["--gpu-memory", keys["needed_bytes"] - 1]
        self.fit(*flags, *edge, code=1)
        self.fit(*flags, *edge, "--overhead", 0, code=0)

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

    # ---- --search

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
            for again in ([], ["--recompute-granularity", "selective", "--recompute-modules", "layernorm",
                               "moe_act", "mla_up_proj", "--recompute-activation-function"],
                          ["--recompute-granularity", "full"]):
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
        """Nothing where that fits, nor more than was asked where a flag said so."""
        flags = ["--preset", "deepseek-v3", "--world-size", 1024, "--global-batch-size", 8192,
                 "--use-distributed-optimizer", "--search"]
        kinds = [entry["recompute"] for entry in self.object(*flags)["best"]]
        self.assertGreater(len(set(kinds)), 1)
        self.assertEqual({entry["recompute"] for entry in self.object(*flags, "--gpu-memory", "640GiB")["best"]},
                         {"as given"})
        self.assertEqual({entry["recompute"] for entry in
                          self.object(*flags, "--recompute-granularity", "full")["best"]}, {"as given"})

    def test_search_of_large_models(self):
        """What leads is what is run: experts in a node, hardly any tensor parallelism."""
        keys = self.object(*MIXTRAL, "--world-size", 128, "--global-batch-size", 1024, "--search")
        self.assertEqual((keys["best"][0]["tensor_parallel"], keys["best"][0]["expert_parallel"]), (1, 8))
        for entry in keys["best"][:5]:
            self.assertTrue(entry["fits"])
            self.assertLessEqual(entry["tensor_parallel"], 2)
            self.assertLessEqual(entry["expert_parallel"] * entry["expert_tensor_parallel"], 8)
            self.assertEqual(entry["context_parallel"], 1)
        flags = ["--preset", "deepseek-v3", "--world-size", 1024, "--use-distributed-optimizer"]
        keys = json.loads(run("estimate", *flags, "--search", "--json").stdout)
        self.assertEqual(keys["global_batch"], 8 * 1024)
        best = keys["best"]
        for entry in best[:5]:
            self.assertTrue(entry["fits"])
            self.assertEqual((entry["pipeline_parallel"], entry["expert_parallel"], entry["context_parallel"]),
                             (16, 8, 1))
            self.assertLessEqual(entry["tensor_parallel"], 4)
        self.assertEqual((best[0]["tensor_parallel"], best[0]["recompute"]), (2, "selective"))
        self.assertEqual(best[1]["layout"], "Et*2|(t*2|)*29t*1|L")
        keys = self.fit(*flags, *world(1024, p=16, ep=8, batch=8192)[4:], "--pipeline-model-parallel-layout",
                        best[1]["layout"], "--recompute-granularity", "full")
        self.assertEqual(keys["needed_bytes"], best[1]["needed_bytes"])

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
        result = subprocess.run([cli.BINARY, *flags], stdout=subprocess.PIPE, stderr=terminal, timeout=120, check=False)
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
        flags = [*LLAMA, *world(2, p=2)]
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
        result = run("estimate", *flags, "--timeline", 0)
        self.assertEqual(result.stderr, f"pagestash: not counted: {line}\n")

    # ---- --timeline

    def timeline(self, *flags):
        result = run("estimate", *flags)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return list(csv.DictReader(io.StringIO(result.stdout)))

    def test_timeline(self):
        flags = [*LLAMA, *world(8, t=1, p=4, v=4, batch=32)]
        for stage in (0, 3):
            rows = self.timeline(*flags, "--timeline", stage)
            self.assertEqual(list(rows[0]), "event,kind,chunk,micro_batch,live_layers,saved_bytes,"
                             "head_bytes,bytes".split(","))
            self.assertEqual([int(row["event"]) for row in rows], list(range(len(rows))))
            done = {"forward": [], "backward": []}
            live = 0
            for row in rows:
                done[row["kind"]].append((int(row["chunk"]), int(row["micro_batch"])))
                live += 2 if row["kind"] == "forward" else -2
                self.assertEqual(int(row["live_layers"]), live)
            wanted = sorted(itertools.product(range(4), range(16)))
            self.assertEqual([sorted(passes) for passes in done.values()], [wanted, wanted])
            self.assertEqual(rows[-1]["saved_bytes"], "0")
            states = int(rows[-1]["bytes"])
            self.assertTrue(all(int(row["bytes"]) == states + int(row["saved_bytes"])
                                + int(row["head_bytes"]) for row in rows))
            self.assertEqual(max(int(row["head_bytes"]) for row in rows) > 0, stage == 3)

    def test_timeline_of_no_stage(self):
        flags = [*LLAMA, *world(8, p=4)]
        self.refused(run("estimate", *flags, "--timeline", 4), 2, "--timeline 4",
                     "--pipeline-model-parallel-size is 4")

    def test_timeline_onto_a_full_disk(self):
        flags = [*LLAMA, *world(8, p=4, batch=4096), "--timeline", 0]
        with open("/dev/full", "wb") as full:
            result = cli.subprocess.run([cli.BINARY, "estimate", *map(str, flags)], stdout=full,
                                        stderr=cli.subprocess.PIPE, text=True, check=False)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (3, 1), result)

    # ---- --html

    def picture(self, *flags):
        path = self.path("picture.html")
        result = run("estimate", *flags, "--html", path)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        with open(path, encoding="ascii") as file:
            text = file.read()
        os.unlink(path)
        self.assertEqual(os.listdir(self.folder), [])
        return text, json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])

    def test_picture_holds_the_timeline(self):
        flags = [*LLAMA, *world(8, t=1, p=4, v=4, batch=32), "--overhead", "1GiB"]
        for stage in (0, 3):
            text, data = self.picture(*flags, "--timeline", stage)
            rows = self.timeline(*flags, "--timeline", stage)
            wanted = [[2 * int(row["chunk"]) + (row["kind"] == "backward"),
                       int(row["micro_batch"]), int(row["live_layers"]), int(row["saved_bytes"]),
                       int(row["head_bytes"]), int(row["bytes"])] for row in rows]
            self.assertEqual(data["events"], [number for row in wanted for number in row])
            self.assertEqual((data["stage"], len(data["stages"])), (stage, 4))
            self.assertEqual((data["memory"], data["overhead"]), (80 * GIB, GIB))
            needed = self.fit(*flags)["stages"][stage]["needed_bytes"]
            shown = data["stages"][stage]
            self.assertEqual(shown["peak"] + GIB, needed)
            self.assertEqual(shown["peak"], max(row[5] for row in wanted) + shown["transients"])
            for of, stage_of in zip(data["stages"], self.object(*flags)["stages"]):
                for key in ("weights", "gradients", "optimizer", "activations", "head", "recompute", "paging",
                            "empty_gradients", "fp8_weights", "gathered", "workspaces", "reloaded",
                            "transients"):
                    self.assertEqual(of[key], stage_of["bytes"][key])
                self.assertEqual(of["peak"] + GIB, stage_of["bytes"]["peak"])
            self.assertNotRegex(text, r"https?://|//[a-z]+\.|@import|url\(")
            self.assertIn("default-src 'none'", text)
            self.assertNotRegex(text, "@DATA@|@SCRIPT@")

    def test_picture_of_the_heaviest_stage(self):
        flags = [*MIXTRAL, *world(8, p=4, batch=32)]
        _, data = self.picture(*flags, "--fit", "--gpu-memory", "640GiB")
        self.assertEqual(data["stage"], self.fit(*flags)["heaviest_stage"])
        self.assertEqual(data["title"], f"mixtral-8x7b, stage {data['stage']} of 4")

    def test_picture_of_a_large_schedule(self):
        text, data = self.picture(*LLAMA, "--num-layers", 128, "--nproc-per-node", 8, "--nnodes",
                                  8192, "--pipeline-model-parallel-size", 8,
                                  "--num-virtual-stages-per-pipeline-rank", 16,
                                  "--global-batch-size", 512 * 8192)
        self.assertEqual(len(data["events"]), 6 * 16384)
        self.assertLess(len(text), 1 << 20)

    def test_pictures_that_cannot_be(self):
        flags = [*LLAMA, *world(1)]
        for path in (self.path("none/a.html"), self.folder):
            self.refused(run("estimate", *flags, "--html", path), 3, f"--html {path}: ")
        full = run("estimate", *flags, "--html", "/dev/full")
        self.assertEqual((full.returncode, full.stdout), (3, run("estimate", *flags).stdout))
        self.assertEqual(full.stderr, "pagestash: --html /dev/full: No space left on device\n")
        for mode in ([], ["--fit"], ["--search"], ["--timeline", 0], [f"--json={self.path('a.json')}"]):
            self.refused(run("estimate", *LLAMA, *world(1, batch=1 << 20), *mode, "--html",
                             self.path("a.html")), 2, "--html", 1 << 20)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_refused_report_leaves_no_picture(self):
        flags = [*LLAMA, *world(1)]
        for mode, says in (([], "peak: more than"), (["--fit"], "bytes of a GPU: more than"),
                           ([f"--json={self.path('a.json')}"], "peak: more than")):
            self.refused(run("estimate", *flags, *mode, "--overhead", "8589934591GiB", "--html", self.path("a.html")),
                         2, "--overhead 9223372035781033984: ", says)
            self.assertEqual(os.listdir(self.folder), [])
        # the second stage, which the timeline is not of
        self.refused(run("estimate", "--num-layers", 2, "--hidden-size", 64, "--num-attention-heads", 1, "--seq-length",
                         1024, "--vocab-size", 10**9, "--pipeline-model-parallel-size", 2,
                         "--untie-embeddings-and-output-weights", "--micro-batch-size", 16 * 10**6, "--timeline", 0,
                         "--html", self.path("a.html")), 2, "--vocab-size 1000000000: memory exceeds 64 bits")
        self.refused(run("estimate", *LLAMA, *world(8), "--global-batch-size", 12, "--search", "--html",
                         self.path("a.html")), 2, "--global-batch-size 12: must be a multiple of")
        self.assertEqual(os.listdir(self.folder), [])
        result = run("estimate", *flags, "--fit", "--gpu-memory", "1GiB", "--html", self.path("a.html"))
        self.assertEqual((result.returncode, os.listdir(self.folder)), (1, ["a.html"]))  # an answer

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
