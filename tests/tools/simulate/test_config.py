#!/usr/bin/env python3
"""`pagestash simulate --config` beside `pagestash estimate` of the same launch line: test_config.py BINARY
SOURCE_FOLDER. Sizes, and the bytes of what layers keep, are the same."""
import json
import os
import re
import shlex
import sys
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean
sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))

import cli
import reports
from cli import run
from scene import SimulateTest

PAGE = 256 << 10
MIXTRAL = """# a comment, and 'a quote in it
--preset mixtral-8x7b --pipeline-model-parallel-size 4 --expert-model-parallel-size 8 \\
    --world-size 64 --micro-batch-size 1 --global-batch-size 256 --seq-length "4096"
"""
DEEPSEEK = """--hf-config 'HF/deepseek-v3.json' --pipeline-model-parallel-size 16
--decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 4
--expert-model-parallel-size 16 --world-size 256 --micro-batch-size 1 --global-batch-size 384
--seq-length 4096 --moe-load-cv 0.2"""
QWEN = """--hf-config HF/qwen3-30b-a3b.json --pipeline-model-parallel-size 4 --seq-length 2048
--num-virtual-stages-per-pipeline-rank 3 --expert-model-parallel-size 4 --world-size 16
--micro-batch-size 2 --global-batch-size 64"""
LLAMA = """--hf-config HF/llama-2-7b.json --pipeline-model-parallel-size 2 --world-size 2
--micro-batch-size 1 --global-batch-size 8 --seq-length 1024"""


class Config(SimulateTest):
    def config(self, text, name="config"):
        text = text.replace("HF", os.path.join(cli.SOURCE, "tests/data/hf"))
        return self.write(text, name), shlex.split(text.replace("\\\n", ""), comments=True)

    def estimate(self, words):
        result = run("estimate", *words, "--json")
        self.assertEqual(result.returncode, 0, result)
        return reports.load(result.stdout)

    def test_bytes_are_the_estimators(self):
        for text in (MIXTRAL, DEEPSEEK, QWEN, LLAMA):
            path, words = self.config(text)
            wanted = self.estimate(words)
            has_moe = "moe" in wanted["ledger"]
            ledger, stages = wanted["ledger"], wanted["stages"]
            keys = self.simulate("--config", path, "--keeps-nothing", "--page-size", PAGE,
                                 *(["--balanced"] if has_moe else []))
            with self.subTest(text=text):
                config = keys["config"]
                self.assertEqual(config["layers"], sum(sum(one["layers"]) for one in stages))
                self.assertEqual(config["moe_layers"], sum(one["moe_layers"] for one in stages))
                self.assertEqual(config["dense_layer_bytes"],
                                 ledger["dense"]["sum"] if "dense" in ledger else 0)
                self.assertEqual([one["passes"] for one in keys["stages"]],
                                 [2 * config["micro_batches"] * len(one["layers"]) for one in stages])
                if not has_moe:
                    continue
                moe = wanted["moe_buffers"]
                self.assertEqual(config["row_bytes"], moe["row_bytes"])
                self.assertEqual((config["even_rows"], config["capacity_rows"]),
                                 (moe["balanced_rows"], moe["capacity_rows"]))
                rows = {name: size for name, size in ledger["moe"].items()
                        if name.startswith("expert.")}
                self.assertEqual(sum(rows.values()), config["even_rows"] * config["row_bytes"])
                self.assertEqual(config["moe_layer_bytes"] + sum(rows.values()),
                                 ledger["moe"]["sum"])
                tensors = [(size // config["even_rows"], 1) for size in rows.values()]
                pages = cli.usage(tensors, [config["even_rows"]], PAGE)[1]
                for one, of in zip(keys["stages"], stages): # up to two are restored by then
                    self.assertIn(of["live_moe_layers"] * pages - one["demand_pages"],
                                  (0, pages, 2 * pages))
                self.assertEqual(keys["stages"][-1]["demand_pages"],
                                 stages[-1]["live_moe_layers"] * pages)

    def test_static_bytes(self):
        """With one chunk every live layer has its place: all that estimate counts, but experts' rows."""
        for text in (MIXTRAL, DEEPSEEK):
            path, words = self.config(text)
            wanted = self.estimate(words)
            moe = wanted["moe_buffers"]
            even = moe["balanced_rows"] * moe["row_bytes"]
            policy = self.simulate("--config", path, "--balanced", "--solve", "--gpu-memory", "1024GiB",
                                   "--rank", 0)["policy"]
            stage = wanted["stages"][0]
            tensors = stage["bytes"]["peak"] - stage["bytes"]["overhead"]
            self.assertEqual(policy["static_bytes"], tensors - stage["live_moe_layers"] * even)

    def test_dense_layers_are_recomputed(self):
        path, words = self.config(LLAMA)
        kept = self.estimate(words)["ledger"]["dense"]["sum"]
        flags = ["--config", path, "--solve", "--recompute-ns", 7, "--rank", 0, "--set-memory", 1]
        policy = self.simulate(*flags, "--gpu-memory", "1024GiB")["policy"]
        self.assertEqual({one["keep"] for one in policy["layers"]}, {"planned"})
        less = self.simulate(*flags, "--gpu-memory", policy["gpu_bytes"] - 1)["policy"]
        self.assertEqual([one["keep"] for one in less["layers"]].count("recomputed"), 1)
        self.assertEqual(less["static_bytes"], policy["static_bytes"] - 2 * kept)

    def test_on_a_gpu_recomputation_takes_the_forward(self):
        """Of the layer alone: the first one's forward has the embedding, too."""
        for text, more in ((LLAMA, ["--set-memory", 1]), (MIXTRAL, ["--balanced"])):
            path, _ = self.config(text)
            flags = ["--config", path, "--solve", "--rank", 0, *more]
            whole = self.simulate(*flags, "--gpu", "h100", "--gpu-memory", "1024GiB")["policy"]
            self.assertEqual({layer["recompute_ns"] for layer in whole["layers"]}, {0})
            less = ["--gpu-memory", whole["gpu_bytes"] * 9 // 10]
            html = self.path("timeline.html")
            run("simulate", *flags, *less, "--gpu", "h100", "--html", html)
            with open(html, encoding="ascii") as file:
                numbers = json.loads(re.search(r'id="data">(.*?)</script>', file.read(), re.S)[1])["events"]
            events = [numbers[i:i + 13] for i in range(0, len(numbers), 13)]

            def times(kind, kind_of_pass, layer):
                return {event[8] - event[7] for event in events
                        if event[2] == kind and event[3] == kind_of_pass and event[5] == layer}
            forward, = times(0, 0, 1)
            self.assertGreater(min(times(0, 0, 0)), forward)
            for layer in (0, 1):
                self.assertEqual(times(1, 1, layer), {forward})
            for gpu, ns in ((["--gpu", "h100"], forward), (["--gpu", "h100", "--recompute-ns", 7], 7)):
                result = run("simulate", *flags, *less, *gpu, "--json")
                layers = reports.load(result.stdout)["policy"]["layers"]
                self.assertEqual((layers[0]["keep"], layers[0]["recompute_ns"]), ("recomputed", ns))
            self.assertEqual(run("simulate", *flags, *less).returncode, 1)

    def test_flags_win(self):
        path, _ = self.config(MIXTRAL)
        base = ["--config", path, "--balanced"]
        end = self.write("--preset mixtral-8x7b \\", "end")
        self.assertEqual(self.simulate("--config", end, "--balanced")["config"]["layers"], 32)
        keys = self.simulate(*base, "--schedule", "zb-v", "--stages", 2, "--micro-batches", 6)
        self.assertEqual([one["passes"] for one in keys["stages"]], [36, 36])
        self.assertEqual(sum(keys["stages"][0]["slots"]) * 8, keys["stages"][0]["tickets"])
        keys = self.simulate(*base, "--model-layers", 4, "--rank", 3)
        self.assertEqual(keys["stages"][0]["tickets"], 1)
        whole = self.simulate(*base, "--rank", 3)["config"]
        keys = self.simulate(*base, "--rank", 3, "--solve", "--gpu-memory", "1024GiB",
                             "--static-memory", 5)
        self.assertEqual(keys["policy"]["static_bytes"], 5 + 8 * whole["moe_layer_bytes"])

    def test_routing(self):
        path, _ = self.config(MIXTRAL)
        trace = self.write("step,layer,%s\n" % ",".join(f"e{e}" for e in range(8)) + "".join(
            f"{step},0,{5000 + step},1,1,1,1,1,1,1\n" for step in range(16)), "trace")
        keys = self.simulate("--config", path, "--routing", trace, "--rank", 3)
        self.assertEqual(keys["config"]["capacity_rows"], 5015)
        other = self.write("step,layer,e0,e1\n" + "".join(f"{n},0,1,2\n" for n in range(16)), "other")
        self.refused(run("simulate", "--config", path, "--routing", other,
                         "--expert-model-parallel-size", 2), 3, "2 experts", "has 8")

    def test_refusals(self):
        path, _ = self.config(MIXTRAL)
        uneven, _ = self.config(DEEPSEEK, "uneven")
        for flags, *words in (
                ([], "--routing: missing"),
                (["--balanced", "--hidden-size", 8], "--hidden-size"),
                (["--balanced", "--dtype", "bf16"], "--dtype"),
                (["--balanced", "--layers", 1, "--model-layers", 4], "--layers 1"),
                (["--balanced", "--moe-layers", "0:2"], "--moe-layers"),
                (["--balanced", "--layout", "segments"], "--layout segments"),
                (["--balanced", "--stages", 2, "--solve", "--gpu-memory", 1], "--static-memory")):
            self.refused(run("simulate", "--config", path, *flags), 2, *words)
        self.refused(run("simulate", "--config", uneven, "--balanced", "--stages", 8), 2,
                     "16 chunks", "--model-layers")
        self.refused(run("simulate", "--config", uneven, "--balanced", "--model-layers", 8), 2,
                     "61 layers", "--moe-layers")
        for text, code, *words in (
                (MIXTRAL + "--json", 2, "report"), (MIXTRAL + "--html x", 2, "report"),
                (MIXTRAL + "--routing x", 2, "--routing stands in it"),
                (MIXTRAL + "--recompute-granularity full --recompute-method uniform "
                 "--recompute-num-layers 1", 2, "recomputation"),
                ("--preset deepseek-v3 --mtp-num-layers 1", 2, "multi-token"),
                ("--preset nothing", 2, "nothing"), ("--preset 'x", 3, "quote"), ("{}", 3, "JSON"),
                ("--preset mixtral-8x7b\0", 3, "zero"), (" " * (1 << 20), 3, "1 MiB")):
            wrong, _ = self.config(text, "wrong") if "'" not in text or "#" in text else (
                self.write(text, "wrong"), None)
            with self.subTest(text=text[:80]):
                self.refused(run("simulate", "--config", wrong, "--balanced"), code, *words)
        self.refused(run("simulate", "--config", "/no/such"), 3, "/no/such")
        dense, _ = self.config(LLAMA, "dense")
        self.refused(run("simulate", "--config", dense, "--balanced"), 2, "no layer has experts")

    def test_times_are_the_estimators(self):
        """Layer by layer a step takes what it takes chunk by chunk, but for the pages' copies."""
        fast = ("--stash-ns", 0, "--restore-ns", 0, "--copy-gb/s", 1000000)
        for text in (LLAMA, MIXTRAL, DEEPSEEK, QWEN):
            path, words = self.config(text + " --gpus-per-node 16")
            step = self.estimate([*words, "--gpu", "h100"])["step"]
            flags = () if text == LLAMA else ("--balanced", *fast)
            keys = self.simulate("--config", path, "--gpu", "h100", *flags)
            with self.subTest(text=text):
                if text == LLAMA:
                    self.assertEqual(keys["makespan_ns"], step["span_ns"])
                    self.assertEqual(keys["stages"][step["stage"]]["bubble_ns"], step["bubble_ns"])
                self.assertGreaterEqual(keys["makespan_ns"], step["span_ns"])
                self.assertLess(keys["makespan_ns"], step["span_ns"] * 1.0001)

    def test_times_and_rates(self):
        """Copies take as long as their bytes are read and written; flags say otherwise."""
        path, _ = self.config(MIXTRAL)
        rates = self.write('{"gpu": "h100", "memory_rate": 1000000000000, "memory_per_mille": 500, "kernel_ns": 7,'
                           ' "product_per_mille": 1}', "rates.json")
        keys = self.simulate("--config", path, "--balanced", "--gpu", rates, "--keeps-nothing")
        rows = keys["config"]["even_rows"] * keys["config"]["row_bytes"]
        stage = keys["stages"][0]
        self.assertEqual(stage["stash_busy_ns"], stage["stashed"] * (7 + -(-rows // 250)))
        keys = self.simulate("--config", path, "--balanced", "--gpu", rates, "--keeps-nothing", "--stash-ns", 9,
                             "--copy-gb/s", 1000)
        stage = keys["stages"][0]
        self.assertEqual(stage["stash_busy_ns"], stage["stashed"] * (9 + -(-rows // 1000)))
        slow = self.simulate("--config", path, "--balanced", "--gpu", "h100", "--p2p-ns", 10**9)
        quick = self.simulate("--config", path, "--balanced", "--gpu", "h100", "--p2p-ns", 0)
        own = self.simulate("--config", path, "--balanced", "--gpu", "h100")
        self.assertLess(quick["makespan_ns"], own["makespan_ns"])
        self.assertLess(own["makespan_ns"], slow["makespan_ns"])

    def test_gpu_refusals(self):
        path, _ = self.config(MIXTRAL)
        for flags, *words in ((["--gpu", "h100", "--schedule", "1f1b", "--micro-batches", 4, "--layers", 2],
                               "--gpu h100", "with --config"),
                              (["--config", path, "--balanced", "--gpu", "h100", "--times", "x"], "without --times"),
                              (["--config", path, "--balanced", "--gpu", "h100", "--layers", 2], "--layers"),
                              (["--config", path, "--balanced", "--gpu", "v100"], "--gpu v100", "a100, h100")):
            self.refused(run("simulate", *flags), 2, *words)


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1])
