#!/usr/bin/env python3
"""Tests of the command pagestash: test_cli.py BINARY SOURCE_FOLDER [DEVICE]"""
import json
import math
import os
import pty
import re
import select
import subprocess
import sys
import threading
import time
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean

import cli
import reports
from bad_input import BadTraces, Usage  # unittest runs what it finds here
from cli import MIB, TILE, CommandTest, Order, expect, expect_tiers, run

EP, RANK = "--expert-model-parallel-size", "--expert-model-parallel-rank"
MICRO = "--num-micro-batches"
TINY = ("--hidden-size", 8, "--moe-ffn-hidden-size", 8)
SMALL = ("--hidden-size", 72, "--moe-ffn-hidden-size", 40, "--page-size", "16KiB")
SIZES = {"hidden": 72, "ffn": 40, "page": TILE}

MEASURED = {"stash_seconds", "restore_seconds", "copy_seconds", "stash_gb_per_s",
            "restore_gb_per_s", "copy_gb_per_s", "stash_share_of_copy", "restore_share_of_copy"}
LINK = ["link_stash_gb_per_s", "link_restore_gb_per_s", "copy_to_host_gb_per_s",
        "copy_from_host_gb_per_s", "link_stash_share_of_copy", "link_restore_share_of_copy"]
EXPOSED = ["exposed_forward_seconds", "exposed_backward_seconds"]
# All is live at once, and all of it in pages.
ALL = ("--schedule", "gpipe-reversed", "--keeps-nothing")
ALL_ORDER = Order("gpipe-reversed", keeps_nothing=True)
FIRST = ("--stages", 4)  # of 1F1B
FIRST_ORDER = Order(stages=4)
RECOVER = ["recover_seconds_median", "recover_seconds_max"]


class Replay(CommandTest):
    def check(self, keys, expected):
        moved = expected.pop("moved") / 1e9
        for key, value in expected.items():
            self.assertAlmostEqual(keys[key], value, places=6, msg=key)
        self.assertEqual(keys["num_pages"], max(keys["high_water_pages"], 1))
        for key in ("faults", "shortfall_pages", "leaked_pages", "mismatched_bytes",
                    "num_host_pages", "spilled_bytes", "offloaded_bytes", "displaced_bytes",
                    "link_bytes", "high_water_host_pages", "steps_retried", "steps_lost"):
            self.assertEqual(keys[key], 0, key)
        for key in LINK + RECOVER:
            self.assertIsNone(keys[key], key)
        self.assertEqual(keys["graphs_captured"], int(not keys["options"]["no_graph"]))
        pages = keys["num_pages"] * keys["options"]["page_size"]
        self.assertGreaterEqual(keys["pool_bytes"], pages)
        self.assertLess(keys["pool_bytes"], pages + 2 * MIB)
        for copy in ("stash", "restore"):
            self.assertGreater(keys[f"{copy}_seconds"], 0)
            self.assertAlmostEqual(
                keys[f"{copy}_share_of_copy"] * keys[f"{copy}_seconds"] / keys["copy_seconds"], 1,
                places=5)
            self.assertAlmostEqual(keys[f"{copy}_gb_per_s"] * keys[f"{copy}_seconds"] / moved, 1,
                                   places=3)

    def test_every_flag(self):
        """Each case: flags, and what they mean for the figures."""
        path = self.trace(steps=6)
        cases = [
            ([], {}),
            (["--dtype", "mxfp8"], {"dtype": "mxfp8"}),
            (["--layout", "segments"], {"layout": "segments"}),
            (["--layout", "segments", "--dtype", "mxfp8", EP, 2, RANK, 1],
             {"layout": "segments", "dtype": "mxfp8", "ep": 2, "rank": 1}),
            (["--tail", "zero"], {}),
            (["--tail", "zero", "--layout", "segments", "--streams", 2], {"layout": "segments"}),
            (["--mode", "concurrent"], {}),
            (["--streams", 2], {}),
            (["--streams", 4, "--no-graph"], {}),
            (["--streams", 2, MICRO, 3], {"num_micro_batches": 3}),
            (["--no-graph", "--tail", "zero"], {}),
            ([EP, 8, RANK, 3, "--num-layers", 2], {"ep": 8, "rank": 3, "layers": 2}),
            ([MICRO, 2, "--steps", "2:6"], {"num_micro_batches": 2, "steps": (2, 6)}),
            (["--capacity-factor", "4.5"], {"factor": 4.5}),
            (["--capacity-factor", "6", "--layout", "segments"],
             {"factor": 6, "layout": "segments"}),
            (["--num-sms", 1, "--seed", 77, "--headroom", "1.0"], {}),
        ]
        for order, words in ((ALL_ORDER, ALL), (FIRST_ORDER, FIRST)):
            for flags, meaning in cases:
                with self.subTest(flags=flags, order=words):
                    keys = self.replay(path, *SMALL, *words, *flags)
                    self.check(keys, expect(path, order=order, **{**SIZES, **meaning}))
                    self.assertEqual(keys["launches_per_layer"], 2)

    def test_every_order(self):
        """Each case: flags, and the order that they mean."""
        path = self.trace(steps=16, layers=4)
        for flags, order in (
                ([], Order()),
                (["--stages", 4], Order(stages=4)),
                (["--stages", 4, "--stage", 2], Order(stages=4, stage=2)),
                (["--stages", 4, "--stage", 3], Order(stages=4, stage=3)),
                (["--schedule", "gpipe", "--stages", 2], Order("gpipe")),
                (["--schedule", "gpipe-reversed"], Order("gpipe-reversed")),
                (["--stages", 4, "--sources", 1, "--destinations", 1], Order(stages=4, sources=1,
                                                                             destinations=1)),
                (["--stages", 4, "--destinations", 3], Order(stages=4, destinations=3)),
                (["--stages", 4, "--destinations", 4, "--ahead", 1],
                 Order(stages=4, destinations=4, ahead=1)),
                (["--sources", 3], Order(sources=3)),
                (["--stages", 4, "--keeps-nothing"], Order(stages=4, keeps_nothing=True))):
            for streams in (1, 2):
                with self.subTest(flags=flags, streams=streams):
                    keys = self.replay(path, *SMALL, MICRO, 8, *flags, "--streams", streams)
                    self.check(keys, expect(path, order=order, num_micro_batches=8, **SIZES))

    def test_orders_that_are_simulated(self):
        """The oracle does not know them: the pool has to agree with the simulator, and every byte
        comes back."""
        path = self.trace(steps=16, layers=4)
        for flags in (["--schedule", "interleaved", "--chunks", 2],
                      ["--schedule", "interleaved", "--chunks", 2, "--overlaps-exchange"],
                      ["--schedule", "zb-h1", "--stage", 1], ["--schedule", "zb-h2"],
                      ["--schedule", "zb-v", "--limit", 3], ["--schedule", "dualpipe"],
                      ["--schedule", "dualpipe-v"], ["--rule", "next"],
                      ["--one-ring", "--sources", 3, "--tail", "zero"]):
            for more in ([], ["--streams", 2], ["--no-graph", "--tail", "zero"]):
                if "--rule" in flags and "--streams" in more:
                    continue
                with self.subTest(flags=flags, more=more):
                    keys = self.replay(path, *SMALL, MICRO, 8, "--stages", 4, *flags, *more)
                    self.assertEqual(keys["high_water_pages"], keys["predicted_pages"])
                    for key in ("faults", "leaked_pages", "mismatched_bytes"):
                        self.assertEqual(keys[key], 0, key)
                    self.assertGreater(keys["high_water_pages"], 0)

    def test_orders_that_cannot_be(self):
        path = self.trace()
        for words, *flags in (
                (("--stage 4", "0..3"), "--stages", 4, "--stage", 4),
                (("--streams 3", "1, 2 and 4"), "--streams", 3),
                (("--mode ordered", "--streams 1"), "--streams", 2, "--mode", "ordered"),
                (("--one-ring", "--tail zero"), "--one-ring"),
                (("--destinations 1", "without --one-ring"), "--one-ring", "--tail", "zero",
                 "--destinations", 1),
                (("num_chunks 3",), "--schedule", "zb-v", "--chunks", 3)):
            self.refused(run("replay", "--routing", path, "--device", cli.DEVICE, *flags), 2, *words)

    def test_options_are_reported(self):
        path = self.trace()
        options = self.replay(path, "--hidden-size", 8, "--moe-ffn-hidden-size", 4,
                              "--streams", 2, "--no-graph",
                              "--tail", "zero", "--layout", "segments", "--stages", 3,
                              "--stage", 1, "--sources", 3, "--ahead", 1, "--keeps-nothing",
                              "--dtype", "mxfp8", "--seed", 5, "--num-sms", 1, "--steps", "1:3",
                              "--page-size", 65536, EP, 4, RANK, 2)["options"]
        device = options.pop("device")
        self.assertIn(device, ("host", "cuda"))
        self.assertTrue(options.pop("device_name"))
        self.assertEqual(options, {
            "routing": path, "steps": "1:3", "num_layers": 3, "num_micro_batches": 1,
            "expert_model_parallel_size": 4, "expert_model_parallel_rank": 2, "hidden_size": 8,
            "moe_ffn_hidden_size": 4, "dtype": "mxfp8", "layout": "segments",
            "capacity_factor": None, "page_size": 65536, "pages": None, "headroom": None,
            "host_pages": None, "host_headroom": None, "offload_fraction": "0/1",
            "on_overflow": "fail", "scrub": False, "mode": "concurrent", "streams": 2,
            "schedule": "1f1b", "stages": 3, "stage": 1, "chunks": None, "group": None,
            "overlaps_exchange": False, "limit": None, "sources": 3, "destinations": 2,
            "one_ring": False, "ahead": 1, "rule": "asap", "keeps_nothing": True,
            "no_graph": True, "num_sms": 1, "backend": "auto", "tail": "zero", "seed": 5,
            "num_experts": 8})
        options = self.replay(path, *TINY, "--backend", "auto", "--host-pages", 3,
                              "--offload-fraction", "2/4", "--on-overflow", "retry",
                              "--scrub")["options"]
        self.assertEqual((options["offload_fraction"], options["on_overflow"], options["scrub"]),
                         ("2/4", "retry", True))

    def test_shipped_traces(self):
        for name, ep in (("bytelm-e64-top6-l6.csv", 8), ("bytelm-e8-top2-l4.csv", 2)):
            path = os.path.join(cli.SOURCE, "bench", "data", name)
            keys = self.replay(path, EP, ep, "--hidden-size", 16, "--moe-ffn-hidden-size", 8,
                               "--page-size", "16KiB", MICRO, 4, *FIRST)
            self.check(keys, expect(path, ep=ep, hidden=16, ffn=8, page=TILE, num_micro_batches=4,
                                    order=FIRST_ORDER))

    def test_defaults_on_auto(self):
        path = self.trace(steps=1, layers=1)
        result = run("replay", "--routing", path)
        self.assertEqual(result.returncode, 0, result)
        self.assertTrue(result.stdout.endswith("\nmismatched bytes: 0\n"))

    def test_nothing_live(self):
        path = self.write("step,layer,e0,e1\n0,0,0,0\n0,1,0,0\n")
        for layout in ("prefix", "segments"):
            keys = self.replay(path, "--layout", layout, *TINY)
            self.assertEqual((keys["live_bytes_max"], keys["high_water_pages"]), (0, 0))
            self.assertIsNone(keys["waste_ratio"])
            self.assertIsNone(keys["stash_share_of_copy"])

    def test_same_twice(self):
        path = self.trace()
        flags = ["--hidden-size", 24, "--moe-ffn-hidden-size", 16, "--streams", 2]
        first, second = (self.replay(path, *flags) for _ in range(2))
        self.assertEqual(list(first), list(second))
        for key in set(first) - MEASURED - set(LINK + RECOVER + EXPOSED):
            self.assertEqual(first[key], second[key], key)

    def test_keys_are_documented(self):
        with open(os.path.join(cli.SOURCE, "docs", "formats.md"), encoding="utf-8") as file:
            text = file.read()
        keys = self.replay(self.trace(), *TINY)
        self.assertEqual(next(iter(keys)), "schema_version")
        for key in [*keys, "device_name", "num_experts"]:
            self.assertIn(f"`{key}`", text)
        flags = run("replay", "--help").stdout
        for key in keys["options"].keys() - {"device_name", "num_experts"}:
            self.assertIn("--" + key.replace("_", "-"), flags)

    def test_formats_of_numbers_and_lines(self):
        rows = "7,0,12,3\n7,1,0,9\n8,0,1,1\n8,1,4,4"
        plain = self.write("step,layer,e0,e1\n" + rows + "\n")
        expected = self.replay(plain, *TINY)
        for content in ("step,layer,e0,e1\n" + rows, "\ufeffstep,layer,e0,e1\n" + rows + "\n",
                        ("step,layer,e0,e1\n" + rows + "\n").replace("\n", "\r\n")):
            keys = self.replay(self.write(content), *TINY)
            self.assertEqual(keys["live_bytes_max"], expected["live_bytes_max"])
        with open(plain, encoding="ascii") as file:
            result = run("replay", "--routing", "-", *TINY,
                         "--device", cli.DEVICE, stdin=file)
        self.assertEqual(result.returncode, 0, result)


class HostPages(CommandTest):
    """Spill, planned offload, growth."""
    SHAPES = [
        ([], {}),
        (["--streams", 2], {}),
        (["--streams", 4, MICRO, 2], {"num_micro_batches": 2}),
        (["--layout", "segments", EP, 2, RANK, 1],
         {"layout": "segments", "ep": 2, "rank": 1}),
        (["--dtype", "mxfp8", "--layout", "segments"], {"dtype": "mxfp8", "layout": "segments"}),
        (["--dtype", "mxfp8", "--no-graph"], {"dtype": "mxfp8"}),
        (["--no-graph", "--streams", 2, "--tail", "zero"], {}),
        (["--scrub"], {}),
        (["--scrub", "--streams", 2], {}),
        ([MICRO, 2, *FIRST], {"num_micro_batches": 2, "order": FIRST_ORDER}),
    ]

    def check(self, keys, path, pool, meaning, **policy):
        expected = expect_tiers(path, pool, **{"order": ALL_ORDER, **SIZES, **meaning}, **policy)
        for key, value in expected.items():
            self.assertEqual(keys[key], value, key)
        for key in ("faults", "shortfall_pages", "leaked_pages", "mismatched_bytes", "steps_lost"):
            self.assertEqual(keys[key], 0, key)
        self.assertEqual([keys["num_pages"], keys["num_host_pages"]], pool)
        self.assertEqual(keys["host_tier_bytes"], (pool[1] + keys["grown_host_pages"]) * TILE)
        self.assertEqual(keys["times_grown"], keys["steps_retried"])
        self.assertEqual(keys["graphs_captured"], int(not keys["options"]["no_graph"]))
        pages = (pool[0] + keys["grown_pages"]) * TILE
        self.assertGreaterEqual(keys["pool_bytes"], pages)
        self.assertLess(keys["pool_bytes"], pages + 2 * MIB)
        for names, happened in ((LINK, expected["link_bytes"]),
                                (RECOVER, expected["steps_retried"])):
            for name in names:
                self.assertEqual(keys[name] is not None and keys[name] > 0, happened > 0, name)
        if expected["link_bytes"]:
            for ours, plain in (("stash", "to"), ("restore", "from")):
                share = keys[f"link_{ours}_gb_per_s"] / keys[f"copy_{plain}_host_gb_per_s"]
                self.assertAlmostEqual(keys[f"link_{ours}_share_of_copy"] / share, 1, places=5)
        if expected["steps_retried"]:
            self.assertLessEqual(keys["recover_seconds_median"], keys["recover_seconds_max"])
        return expected

    def test_spill_offload_and_growth(self):
        path = self.trace(steps=6)
        for flags, meaning in self.SHAPES:
            known = {"order": ALL_ORDER, **SIZES, **meaning}
            wanted = expect(path, **known)["high_water_pages"]
            words = () if known["order"] is FIRST_ORDER else ALL
            half, some = wanted // 2, wanted // 5
            for pool, policy, more in (
                    ([half, wanted], {}, ["--host-headroom", "1.0"]),
                    ([half, wanted - half], {}, ["--host-pages", wanted - half]),
                    ([half, 0], {"on_overflow": "grow"}, ["--host-pages", 0]),
                    ([half, 0], {"on_overflow": "retry"}, []),
                    ([half, some], {"on_overflow": "retry", "offload": (1, 1)},
                     ["--host-pages", some]),
                    ([1, some], {"on_overflow": "grow", "offload": (2, 7)}, ["--host-pages", some]),
                    ([wanted, wanted], {"offload": (1, 2)}, ["--host-pages", wanted])):
                for key, flag in (("on_overflow", "--on-overflow"), ("offload", None)):
                    if flag and key in policy:
                        more = [*more, flag, policy[key]]
                    elif key in policy:
                        more = [*more, "--offload-fraction", "{}/{}".format(*policy[key])]
                with self.subTest(flags=flags, more=more):
                    keys = self.replay(path, *SMALL, *words, *flags, "--pages", pool[0], *more)
                    expected = self.check(keys, path, pool, meaning, **policy)
                    if pool == [half, wanted]:
                        self.assertGreater(expected["spilled_bytes"], 0)
                    if pool == [half, 0]:
                        self.assertGreater(expected["steps_retried"], 1)

    def test_shipped_trace(self):
        path = os.path.join(cli.SOURCE, "bench", "data", "bytelm-e8-top2-l4.csv")
        sizes = {"hidden": 16, "ffn": 8, "ep": 2, "page": TILE}
        flags = ["--hidden-size", 16, "--moe-ffn-hidden-size", 8, EP, 2, "--page-size", "16KiB",
                 *ALL]
        wanted = expect(path, order=ALL_ORDER, **sizes)["high_water_pages"]
        keys = self.replay(path, *flags, "--pages", wanted // 2, "--host-headroom", "1.0")
        expected = self.check(keys, path, [wanted // 2, wanted], sizes)
        self.assertGreater(expected["spilled_bytes"], 0)
        keys = self.replay(path, *flags, "--pages", wanted // 2, "--host-pages", 0,
                           "--on-overflow", "grow")
        expected = self.check(keys, path, [wanted // 2, 0], sizes)
        self.assertGreater(expected["grown_pages"], 0)
        self.assertEqual(keys["graphs_captured"], 1)

    def test_nothing_happened(self):
        path = self.trace(steps=1)
        result = run("replay", "--routing", path, *SMALL, "--device", cli.DEVICE)
        for name in LINK + RECOVER:
            self.assertNotIn(name.replace("_", " "), result.stdout)

    def test_both_tiers_are_short(self):
        path = self.trace(steps=3)
        wanted = expect(path, order=ALL_ORDER, **SIZES)["high_water_pages"]
        half, some = wanted // 2, wanted // 5
        keys = self.replay(path, *SMALL, *ALL, "--pages", half, "--host-pages", some, code=1)
        self.assertEqual(keys["shortfall_pages"], wanted - half - some)
        self.assertGreater(keys["steps_lost"], 0)
        self.assertEqual((keys["steps_retried"], keys["leaked_pages"]), (0, 0))
        result = run("replay", "--routing", path, *SMALL, *ALL, "--pages", half, "--host-pages",
                     some, "--device", cli.DEVICE)
        for words in (f"pool of {half} device and {some} host pages", f"--pages {wanted - some} ",
                      "host pages free"):
            self.assertIn(words, result.stderr)

    def test_growth_that_memory_forbids(self):
        """One page each for more layers than there is memory."""
        if cli.DEVICE != "host":
            self.skipTest("asks for the host's memory")
        with open("/proc/meminfo", encoding="ascii") as file:
            memory = next(int(line.split()[1]) << 10 for line in file if "MemTotal" in line)
        layers = memory // (4 * MIB) + 2
        path = self.write("step,layer,e0\n" + "".join(f"0,{i},1\n" for i in range(layers)))
        for policy in ("grow", "retry"):
            flags = [*TINY, *ALL, "--page-size", "4MiB", "--pages", 2,
                     "--on-overflow", policy]
            keys = self.replay(path, *flags, code=1)
            self.assertEqual((keys["steps_retried"], keys["steps_lost"], keys["times_grown"]),
                             (0, 1, 0))
            self.assertEqual(keys["shortfall_pages"], layers - 2)
            self.assertEqual((keys["leaked_pages"], keys["grown_pages"]), (0, 0))
            result = run("replay", "--routing", path, *flags, "--device", cli.DEVICE)
            for words in ("wanted 1 with 0 device and 0 host pages free", "could not grow",
                          f"{(layers - 2) * 4 * MIB} bytes", "layer 2 "):
                self.assertIn(words, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1)


class Answers(CommandTest):
    """Exit code 1."""

    def test_shortfall_is_exact(self):
        path = self.trace(steps=6)
        for order, words, more in ((ALL_ORDER, ALL, ([], ["--streams", 2], ["--no-graph"])),
                                   (FIRST_ORDER, (*FIRST, MICRO, 3), ([], ["--streams", 4]))):
            num = 3 if order is FIRST_ORDER else 1
            wanted = expect(path, order=order, num_micro_batches=num, **SIZES)["high_water_pages"]
            self.assertGreater(wanted, 20)
            for extra in more:
                flags = [*SMALL, *words, *extra]
                for pages in (1, wanted // 2, wanted - 1):
                    keys = self.replay(path, *flags, "--pages", pages, code=1)
                    self.assertEqual(keys["shortfall_pages"], wanted - pages)
                    self.assertGreater(keys["faults"], 0)
                    self.assertGreater(keys["mismatched_bytes"], 0)
                    self.assertEqual(keys["leaked_pages"], 0)
                    self.assertIsNone(keys["waste_ratio"])
                keys = self.replay(path, *flags, "--pages", wanted)
                self.assertEqual(keys["shortfall_pages"], 0)
            result = run("replay", "--routing", path, *SMALL, *words, "--pages", 1, "--device",
                         cli.DEVICE)
            for said in (f"{wanted - 1} pages missing", f"--pages {wanted} ", "step 0", "layer 0"):
                self.assertIn(said, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1)

    def test_headroom_below_one(self):
        path = self.trace()
        keys = self.replay(path, *SMALL, "--headroom", "0.5", code=1)
        self.assertEqual(keys["num_pages"], math.ceil(keys["predicted_pages"] / 2))
        self.assertEqual(keys["shortfall_pages"], keys["predicted_pages"] - keys["num_pages"])

    def test_factor_that_is_needed(self):
        path = self.trace()
        for layout in ("prefix", "segments"):
            flags = [*TINY, EP, 2, "--layout", layout,
                     "--device", cli.DEVICE]
            result = run("replay", "--routing", path, *flags, "--capacity-factor", "0.1")
            self.refused(result, 1, "--capacity-factor 0.1", "needed is --capacity-factor ")
            needed = result.stderr.split()[-1]
            self.replay(path, *flags, "--capacity-factor", needed)
            less = f"{float(needed) * 0.98:.4f}"
            result = run("replay", "--routing", path, *flags, "--capacity-factor", less)
            self.refused(result, 1, "needed is")

    def test_larger_than_memory(self):
        path = self.trace()
        report = self.path("report.json")
        result = run("replay", "--routing", path, "--pages", 2**31 - 1, "--page-size", "4MiB",
                     *TINY, "--device", cli.DEVICE, f"--json={report}")
        self.refused(result, 1, "the pool needs ", " bytes", " are free")
        needed = int(result.stderr.split("needs ")[1].split()[0])
        self.assertGreater(needed, (2**31 - 1) * 4 * MIB)
        self.assertFalse(os.path.exists(report))
        path = self.write("step,layer,e0\n0,0,2147483647\n")
        result = run("replay", "--routing", path, "--hidden-size", 1 << 20,
                     "--moe-ffn-hidden-size", 1 << 20, "--device", cli.DEVICE)
        self.refused(result, 1, "needs ", "are free")

    # Fault rows 63.
    def test_full_disk(self):
        path = self.trace()
        with open("/dev/full", "w", encoding="ascii") as full:
            command = [cli.BINARY, "replay", "--routing", path, "--device", cli.DEVICE]
            result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True,
                                    timeout=600)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (3, 1), result)
        result = run("replay", "--routing", path, "--device", cli.DEVICE, "--json=/dev/full")
        self.assertEqual(result.returncode, 3)
        self.assertIn("--json /dev/full", result.stderr)


class Output(CommandTest):
    def test_json_on_stdout(self):
        result = run("replay", "--routing", self.trace(), *TINY, "--device",
                     cli.DEVICE, "--json=-")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(reports.load(result.stdout)["mismatched_bytes"], 0)
        self.assertTrue(result.stdout.startswith('{\n  "schema_version": 2,\n'))

    # Fault rows 63.
    def test_json_replaces_whole_files(self):
        path = self.trace()
        flags = [*TINY, "--device", cli.DEVICE]
        target = self.write("before", "target.json")
        os.chmod(target, 0o600)
        link = self.path("link.json")
        os.symlink("target.json", link)
        bad = self.write("step,layer,e0\n0,0,x\n", "bad.csv")
        self.assertEqual(run("replay", "--routing", bad, *flags, f"--json={link}").returncode, 3)
        with open(target, encoding="ascii") as file:
            self.assertEqual(file.read(), "before")
        self.assertEqual(run("replay", "--routing", path, *flags, f"--json={link}").returncode, 0)
        self.assertTrue(os.path.islink(link))
        with open(target, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["faults"], 0)
        self.assertEqual(sorted(os.listdir(self.folder)),
                         ["bad.csv", "link.json", "target.json", "trace.csv"])

    def test_json_into_a_pipe(self):
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        received = []

        def read():
            with open(pipe, encoding="utf-8") as file:
                received.append(json.load(file))
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        result = run("replay", "--routing", self.trace(), *TINY, "--device",
                     cli.DEVICE, f"--json={pipe}")
        reader.join(240)
        self.assertEqual((result.returncode, received[0]["faults"]), (0, 0))
        self.assertTrue(os.path.exists(pipe))

    def test_control_characters_reach_no_terminal(self):
        """Of the environment, of names of files and folders: '?' stands for each in the text, \\u001b in JSON."""
        name = self.path("a\x1b[31m\x7fb")
        os.rename(self.trace(), name)
        with open(name + ".memo", "w", encoding="ascii") as file:
            file.write("malloc 1 512\nfree 1\n")
        os.mkdir(name + ".top")
        with open(f"{name}.top/pagestash-\r-0.top", "wb"):
            pass
        schedule = ["--stages", 2, "--micro-batches", 2, "--layers", 2, "--forward-ns", 10, "--backward-ns", 20]
        for flags, env in ((["env"], {"PAGESTASH_LOG_FILE": name + ".log"}),
                           (["replay", "--routing", name, *TINY, "--device", cli.DEVICE], {}),
                           (["simulate", "--schedule", "1f1b", "--routing", name, *schedule], {}),
                           (["trace", "--memo", name + ".memo"], {}), (["plan", "--memo", name + ".memo"], {}),
                           (["top", "--dir", name + ".top"], {})):
            result = run(*flags, env=env)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("a?[31m?b", result.stdout)
            self.assertEqual(re.findall(r"[^\n -~]", result.stdout), [])
            result = run(*flags, "--json", env=env)
            self.assertEqual(re.findall(r"[^\n -~\x7f]", result.stdout), [])
        self.assertIn("  pagestash-?-0.top: unreadable", run("top", "--dir", name + ".top").stdout)

    def test_name_that_is_no_utf8(self):
        name = os.fsdecode(b"tr\xe4ce.csv")
        os.rename(self.trace(), self.path(name))
        keys = self.replay(self.path(name), *TINY)
        self.assertTrue(keys["options"]["routing"].endswith("tr?ce.csv"))

    # Fault rows 65.
    def test_reader_that_went_away(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        report = self.path("report.json")
        command = [cli.BINARY, "replay", "--routing", self.trace(), "--device", cli.DEVICE,
                   f"--json={report}"]
        result = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True,
                                timeout=600)
        os.close(write_end)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        with open(report, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["mismatched_bytes"], 0)

    def test_progress_on_a_terminal_only(self):
        path = self.trace()
        flags = ["replay", "--routing", path, "--device", cli.DEVICE]
        master, slave = pty.openpty()
        result = subprocess.run([cli.BINARY, *flags], stdout=subprocess.PIPE, stderr=slave,
                                text=True, timeout=600, env=dict(os.environ, NO_COLOR="1"))
        os.close(slave)
        shown = cli.read_to_end(master)
        os.close(master)
        self.assertEqual(result.returncode, 0)
        self.assertIn("iteration 3 of 4", shown)
        self.assertTrue(shown.endswith("\r\033[K"), shown)
        self.assertNotIn("iteration 3", result.stdout)
        self.assertEqual(run(*flags).stderr, "")

    def test_progress_of_what_does_not_say_how_far_it_is(self):
        """From the third second on: a trace and a routing whose writer is slow."""
        requests = "malloc 1 512\nfree 1\n"
        with open(self.trace(), encoding="ascii") as file:
            routing = file.read()
        runs = []
        for what, text, *flags in (("reading the trace", requests, "trace", "--memo", "-"),
                                   ("reading the trace", requests, "plan", "--memo", "-", "--out", self.path("p")),
                                   ("reading the routing", routing, "replay", "--routing", "-")):
            master, slave = pty.openpty()
            runs.append((what, text, master, subprocess.Popen(
                [cli.BINARY, *flags], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=slave, text=True)))
            os.close(slave)
        for what, text, master, process in runs:
            shown = ""
            while "second" not in shown:
                shown += os.read(master, 4096).decode()
            process.communicate(text, timeout=600)
            shown += cli.read_to_end(master)
            os.close(master)
            self.assertEqual(process.returncode, 0, shown)
            self.assertRegex(shown, f"^{what}: second [3-9]")
            self.assertTrue(shown.endswith("\r\033[K"), shown)

    def test_progress_of_a_search(self):
        """One for policies that takes long; it need not end."""
        flags = ["--schedule", "1f1b", "--stages", "64", "--micro-batches", "1024", "--layers", "8",
                 "--forward-ns", "10,40,10", "--backward-ns", "20,80,20", "--stash-ns", "90", "--restore-ns",
                 "120", "--solve", "--gpu-memory", "64GiB", "--set-memory", "1GiB"]
        master, slave = pty.openpty()
        with subprocess.Popen([cli.BINARY, "simulate", *flags], stdout=subprocess.DEVNULL, stderr=slave) as process:
            os.close(slave)
            shown = os.read(master, 4096) if select.select([master], [], [], 120)[0] else b""
            process.kill()
        os.close(master)
        self.assertTrue(shown.startswith(b"solving: second 3"), shown)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    cli.BINARY, cli.SOURCE = map(os.path.abspath, sys.argv[1:3])
    cli.DEVICE = sys.argv[3] if len(sys.argv) == 4 else "host"
    unittest.main(argv=sys.argv[:1], verbosity=0)
