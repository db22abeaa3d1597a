#!/usr/bin/env python3
"""Tests of `pagestash simulate`: test_simulate.py BINARY SOURCE_FOLDER

Every vector of vectors.py goes through the command."""
import json
import os
import random
import re
import sys
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))

import cli
import vectors
from cli import run
from scene import WORK, SimulateTest, group, pages3, rows_of, schedule, way

KINDS = ("1f1b", "gpipe", "gpipe-reversed", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe",
         "dualpipe-v")
STAGE_KEYS = ["rank", "passes", "peak_in_flight", "slots", "tickets", "kept_in_place",
              "high_water_pages", "high_water_host_pages", "demand_pages", "spilled_pages",
              "offloaded_pages", "displaced_pages", "demoted_pages", "promoted_pages",
              "stranded_pages", "faults", "span_ns", "end_ns", "exposed_forward_ns",
              "exposed_backward_ns", "bubble_ns", "link_bytes"]


class Vectors(SimulateTest):
    def test_against_the_rule_next(self):
        """With the same sets 30 pages where Megatron's rule wants 36."""
        flags = [*schedule("1f1b", 4, 8), "--layers", 4, "--visit-pages", self.visits(pages3),
                 "--rank", 0, *WORK, "--stash-ns", 3, "--restore-ns", 3]
        for more, pages in (([], 30), (["--rule", "next"], 36)):
            text = run("simulate", *flags, *more).stdout
            self.assertIn(f"\nhigh water pages: {pages} (as many as it takes)\n", text)

    def test_pages(self):
        ways = ("next", "1+1", "2+2", "2+3", "2+2 by slot", "2+2 nothing kept")
        tables = [self.visits(pages) for pages in (pages3, group)]
        self.assertEqual([group(0, 0, i) for i in range(3)] + [group(0, 1, i) for i in range(3)],
                         [6, 8, 9, 8, 10, 7])

        def check(name, what, column, cell):
            kind, stages, rank, micro_batches, chunks, size, layers = what.split()
            flags = [*schedule(kind, stages, micro_batches, chunks, size), "--layers", layers,
                     "--rank", rank, *way(column)]
            water, counts = cell.split("; ")
            counts, *conflicts = counts.split(" c")
            for table, pages in zip(tables, water.split(" / ")):
                stage, = self.stages(*flags, "--visit-pages", table)
                self.assertEqual(stage["high_water_pages"], int(pages), (name, column))
                self.assertEqual([stage[key] for key in ("stashed", "restored", "kept_in_place")],
                                 [int(count) for count in counts.split(", ")], (name, column))
                if conflicts:
                    self.assertEqual(stage["conflicts"], [int(x) for x in conflicts[0].split(",")])
        self.parallel(check, ((name, what, column, cell)
                                   for name, what, *cells in rows_of(vectors.PAGES)
                                   for column, cell in zip(ways, cells) if cell != "-"))

    def test_stalls(self):
        ways = ("next", "1+1", "2+2", "2+2 two streams", "2+2 ahead 1", "2+3", "2+2 by slot")

        def check(name, what, layers, stash, restore, column, cell):
            stages, rank, micro_batches = what.split()
            stage, = self.stages(*schedule("1f1b", stages, micro_batches), "--rank", rank,
                                 "--layers", layers, *WORK, "--stash-ns", stash, "--restore-ns",
                                 restore, *way(column))
            shown = (f"{stage['end_ns']}; {stage['exposed_forward_ns']}"
                     f"+{stage['exposed_backward_ns']}")
            self.assertEqual(shown, cell, (name, column))
        self.parallel(check, ((*row[:5], column, cell) for row in rows_of(vectors.STALLS)
                                   for column, cell in zip(ways, row[5:])))

    def test_pipelines(self):
        def check(name, what, stash, restore, p2p, column, cell):
            kind, stages, micro_batches, chunks, size, layers = what.split()
            whole = self.simulate(*schedule(kind, stages, micro_batches, chunks, size), *WORK,
                                  "--layers", layers, "--stash-ns", stash, "--restore-ns", restore,
                                  "--p2p-ns", p2p, *way(column))
            waits = [stage["exposed_forward_ns"] + stage["exposed_backward_ns"]
                     for stage in whole["stages"]]
            self.assertEqual(f"{whole['makespan_ns']}; {' '.join(map(str, waits))}", cell,
                             (name, column))
        self.parallel(check, ((*row[:5], column, cell) for row in rows_of(vectors.PIPELINES)
                                   for column, cell in zip(("next", "2+2", "2+2 two streams"),
                                                           row[5:])))

    def test_schedules(self):
        def check(name, kind, stages, micro_batches, chunks, size, peaks, slots, passes, makespan,
                  spans):
            kind, *overlaps = kind.split()
            whole = self.simulate(*schedule(kind, stages, micro_batches, chunks, size),
                                  *["--overlaps-exchange"] * len(overlaps), "--layers", 1,
                                  "--forward-ns", 1, "--backward-ns", 1, "--weight-ns", 1)
            ranks = whole["stages"]
            self.assertEqual([rank["peak_in_flight"] for rank in ranks],
                             [int(peak) for peak in peaks.split()], name)
            first, last = ([int(n) for n in part.split("+")] for part in slots.split(" / "))
            self.assertEqual((ranks[0]["slots"], ranks[-1]["slots"]), (first, last), name)
            self.assertEqual(ranks[0]["passes"], int(passes), name)
            self.assertEqual(whole["makespan_ns"], int(makespan), name)
            self.assertEqual([ranks[0]["span_ns"], ranks[-1]["span_ns"]],
                             [int(span) for span in spans.split(" / ")], name)
        self.parallel(check, rows_of(vectors.SCHEDULES))

    def test_tiers(self):
        table = self.visits(pages3)
        keys = ("demand_pages", "spilled_pages", "offloaded_pages", "displaced_pages", "faults")
        for name, pages, host, shares, water, *counts, first in rows_of(vectors.TIERS):
            flags = [*schedule("1f1b", 4, 8), "--layers", 4, "--rank", 0, "--visit-pages", table,
                     "--pages", pages, "--host-pages", host, "--page-size", "16KiB",
                     *([] if shares == "-" else ["--offload", shares])]
            whole = self.simulate(*flags, code=int(first != "-"))
            stage, = whole["stages"]
            self.assertEqual(whole["fits"], first == "-", name)
            self.assertEqual(f"{stage['high_water_pages']}, {stage['high_water_host_pages']}",
                             water, name)
            self.assertEqual([stage[key] for key in keys], [int(count) for count in counts], name)
            if name == "H5":  # out, and in again
                self.assertEqual(stage["link_bytes"], 2 * stage["offloaded_pages"] * 16384)
            fault = stage["first_fault"] or {}
            self.assertEqual(" ".join(str(fault[key]) for key in (
                "micro_batch", "layer", "wanted", "free_pages", "free_host_pages"))
                if fault else "-", first, name)
            self.assertEqual(run("simulate", *flags, "--check", "host").stdout.splitlines()[-1][:6],
                             "check:", name)


class Text(SimulateTest):
    FLAGS = [*schedule("1f1b", 4, 8), "--layers", 4, "--forward-ns", "1,4,1"]

    def table(self, *flags, code=0):
        """The cells below each head, and the text above them."""
        result = run("simulate", *self.FLAGS, *flags)
        self.assertEqual(result.returncode, code, result)
        above, table = result.stdout.split("\nrank ")
        head, *rows = [re.split(" {2,}", line.strip()) for line in ("rank " + table).splitlines()]
        self.assertEqual({len(row) for row in rows}, {len(head)}, result.stdout)
        self.assertEqual(len({len(line) for line in table.splitlines()[1:]}), 1, result.stdout)
        return dict(zip(head, zip(*rows))), above

    def test_says_what_applies(self):
        table, above = self.table("--pages", 5)
        self.assertEqual(list(table), ["rank", "passes", "end ns", "bubble ns", "exp fwd ns",
                                       "exp bwd ns", "high water", "demand", "tickets"])
        self.assertNotRegex(above, "host|link")
        visits = self.visits(pages3)
        table, above = self.table("--visit-pages", visits, "--pages", 90, "--host-pages", 90,
                                  "--offload", "0=1/2", "--link-gb/s", "1,1")
        self.assertIn("\nhigh water host pages: ", above)
        self.assertIn("\nlink share: ", above)
        self.assertGreater(int(table["host"][0]), 0)
        table, _ = self.table("--visit-pages", visits, "--pages", 1, code=1)
        self.assertGreater(int(table["faults"][0]), 0)

    def test_large_figures(self):
        """In whole milliseconds, where nanoseconds leave no room."""
        flags = ["--backward-ns", "0,9000000000000000,0", "--host-pages", 7]
        nanoseconds = [stage["end_ns"] for stage in self.stages(*self.FLAGS, *flags)]
        table, _ = self.table(*flags)
        self.assertEqual([int(end) for end in table["end ms"]],
                         [end // 10 ** 6 for end in nanoseconds])


class Check(SimulateTest):
    def test_shipped_trace(self):
        """Every figure of pages is the pool's, for all kinds."""
        def check(kind, chunks, *more):
            flags = [*schedule(kind, 4, 8, chunks, 4), "--layers", 2, "--check", "host"]
            whole = self.simulate(
                *flags, "--routing", os.path.join(cli.SOURCE, "bench/data/bytelm-e64-top6-l6.csv"),
                "--expert-model-parallel-size", 16, "--hidden-size", 16, "--moe-ffn-hidden-size", 8,
                "--page-size", "16KiB", "--steps", "0:16", *more)
            self.assertEqual(whole["check"]["differences"], 0, kind)
            self.assertGreater(whole["check"]["operations"], 30, kind)
            self.assertEqual(whole["iterations"], 2)
            if "demote" in more:
                self.assertGreater(whole["stages"][0]["demoted_pages"], 0)
        cases = [(kind, 2 if kind == "interleaved" else 1) for kind in KINDS]
        cases += [("1f1b", 1, "--streams", 2, "--move", "demote", "--host-pages", "auto",
                   "--offload", "0=1/2"), ("1f1b", 1, "--rule", "next"),
                  ("1f1b", 1, "--layout", "segments"), ("gpipe", 1, "--streams", 4),
                  ("zb-v", 1, "--offload", "0.1=1/1,1=1/3", "--host-pages", 100)]
        self.parallel(check, cases)

    def test_pool_too_small(self):
        """Faults are counted as the pool counts them."""
        table = self.visits(pages3)
        draw = random.Random(3)
        for _ in range(4):
            flags = [*schedule(draw.choice(["1f1b", "gpipe", "zb-h1"]), 4, 6), "--layers", 3,
                     "--visit-pages", table, "--pages", draw.randrange(4, 12), "--host-pages",
                     draw.randrange(1, 8), "--offload", "1=1/2", "--page-size", "16KiB", "--check",
                     "host"]
            whole = self.simulate(*flags, code=1)
            self.assertEqual(whole["check"]["differences"], 0, flags)
            self.assertGreater(whole["stages"][0]["faults"], 0, flags)


class Output(SimulateTest):
    def test_keys(self):
        whole = self.simulate(*schedule("interleaved", 4, 8, 2, 4), "--layers", "2,1", "--compare")
        self.assertEqual(list(whole)[:3], ["schema_version", "command", "version"])
        for stage in whole["stages"] + whole["compare"]["stages"]:
            self.assertEqual(list(stage)[:len(STAGE_KEYS)], STAGE_KEYS)
        self.assertEqual([stage["rank"] for stage in whole["stages"]], [0, 1, 2, 3])
        self.assertEqual(whole["stages"][0]["slots"], [8, 4])
        self.assertEqual(whole["stages"][0]["tickets"], 2 * 8 + 1 * 4)

    def test_many_chunks(self):
        """What is made of a list takes time as its passes do, not as their square: four times as many."""
        taken = []
        for num in (15000, 60000):
            rows = "".join(f"0,F,{n},0\n" for n in range(num)) + "".join(f"0,B,{n},0\n" for n in range(num)[::-1])
            path = self.write("rank,kind,chunk,micro_batch\n" + rows, "chunks.csv")
            begin = sum(os.times()[2:4])  # of the command
            whole = self.simulate("--schedule", f"list:{path}", "--model-layers", 7)
            taken.append(sum(os.times()[2:4]) - begin)
            self.assertEqual(whole["stages"][0]["passes"], 2 * num)
            self.assertEqual(whole["stages"][0]["tickets"], 7)
        self.assertLess(taken[1], 8 * max(taken[0], 0.1))  # 16

    def test_compare_is_of_one_form(self):
        """Megatron-LM's rule has two rings and no slots, whatever is beside it."""
        flags = [*schedule("1f1b", 4, 8), "--layers", 2, "--stash-ns", 3, "--restore-ns", 3, "--compare"]
        plain = self.simulate(*flags)["compare"]
        self.assertEqual(self.simulate(*flags, "--by-slot")["compare"], plain)
        self.assertEqual(self.simulate(*flags, "--one-ring")["compare"], plain)

    def test_times_of_ranks(self):
        """A rank begins when the first forward comes to it; what runs beside a copy is slower."""
        flags = [*schedule("1f1b", 4, 8), "--layers", 4, *WORK, "--stash-ns", 3, "--restore-ns", 3]
        for stage in self.stages(*flags):
            self.assertEqual(stage["end_ns"] - stage["span_ns"], 4 * 6 * stage["rank"])
            self.assertEqual(stage["busy_ns"], 8 * 4 * (6 + 12))
        whole = [stage["busy_ns"] for stage in self.stages(*flags, "--weight-ns", "3,2,1")]
        self.assertEqual(whole, [8 * 4 * (6 + 12 + 6)] * 4)
        self.assertGreater(self.simulate(*flags, "--interference", 500)["makespan_ns"], 792)
        flags = [*schedule("zb-h2", 4, 8), "--layers", 1, "--forward-ns", 1, "--backward-ns", 1,
                 "--weight-ns", 1, "--num-steps"]
        self.assertEqual([self.simulate(*flags, num)["makespan_ns"] for num in (1, 2)], [27, 24])

    def test_stable(self):
        flags = ["simulate", *schedule("zb-v", 4, 8), "--layers", 2, *WORK, "--stash-ns", 9,
                 "--restore-ns", 9, "--streams", 2, "--visit-pages", self.visits(pages3), "--json"]
        first, second = run(*flags), run(*flags)
        self.assertEqual((first.returncode, first.stdout), (0, second.stdout))

    def test_one_rank_alone(self):
        table = self.visits(pages3)
        for rank, (pages, end) in enumerate(((30, 576), (22, 576), (14, 576), (6, 576))):
            stage, = self.stages(*schedule("1f1b", 4, 8), "--layers", 4, *WORK, "--visit-pages",
                                 table, "--rank", rank)
            self.assertEqual((stage["rank"], stage["high_water_pages"], stage["end_ns"],
                              stage["bubble_ns"]), (rank, pages, end, 0))

    def test_lists(self):
        """What --list writes is read again, and simulates the same."""
        for kind, order in (("1f1b", []), ("interleaved", []), ("zb-v", ["--chunk-order", "v"]),
                            ("dualpipe", ["--chunk-order", "directions"])):
            path = self.path("list.csv")
            flags = ["--layers", 2, *WORK, "--stash-ns", 5, "--restore-ns", 7]
            first = self.stages(*schedule(kind, 4, 8, 2, 4), *flags, "--list", path)
            with open(path, encoding="ascii") as file:
                self.assertIn(file.readline(), ("rank,kind,chunk,micro_batch\n",
                                                "rank,kind,chunk,micro_batch,pair\n"))
            again = self.stages("--schedule", f"list:{path}", *order, *flags)
            self.assertEqual(first, again, kind)

    def test_megatron_integers(self):
        path = self.write("1 1 1 2 2 2 -2 1 -2 1 -2 2 -1 2 -1 -1 -2 -2 -1 -1\n", "integers")
        flags = ["--layers", 1, *WORK]
        listed, = self.stages("--schedule", f"megatron:{path}", *flags)
        made, = self.stages(*schedule("interleaved", 2, 5, 2, 3), *flags, "--rank", 0)
        for key in ("passes", "peak_in_flight", "end_ns", "tickets"):
            self.assertEqual(listed[key], made[key], key)

    def test_model_layers(self):
        """Earlier virtual stages have one more; dense layers are not stashed."""
        flags = [*schedule("interleaved", 2, 4, 2, 2), "--model-layers", 7]
        tickets = [stage["tickets"] for stage in self.stages(*flags)]
        slots = [stage["slots"] for stage in self.stages(*flags)]
        self.assertEqual(tickets, [2 * slots[0][0] + 2 * slots[0][1], 2 * slots[1][0] + slots[1][1]])
        table = self.write("chunk,layer,micro_batch,pages\n" +
                           "".join(f"1,0,{i},1\n" for i in range(4)))
        dense = self.stages(*flags, "--moe-layers", "6:7", "--visit-pages", table, "--rank", 1)
        self.assertEqual(dense, self.stages(*flags, "--moe-layers", "6:7", "--visit-pages", table,
                                            "--rank", 1))
        self.refused(run("simulate", *flags, "--moe-layers", "5:7", "--visit-pages", table), 3,
                     "no row for chunk 1, layer 1, micro-batch 0")
        self.refused(run("simulate", *flags, "--moe-layers", "6:8"), 2, "--moe-layers 6:8", "0:7")

    def test_recommended(self):
        """Over all iterations of a trace; the one with most pages is shown."""
        path = self.trace(steps=9, layers=2, experts=4, high=900)
        flags = [*schedule("gpipe", 1, 2), "--layers", 2, "--routing", path, "--hidden-size", 64,
                 "--moe-ffn-hidden-size", 64, "--page-size", "16KiB", "--keeps-nothing"]
        whole = self.simulate(*flags)
        rows = cli.read(path)
        tensors = cli.tensors_of("bf16", 64, 64)
        pages = [cli.usage(tensors, [sum(row[2:])], 16 << 10)[1] for row in rows]
        self.assertEqual(whole["iterations"], 4)
        demands = []
        for i in range(4):
            part = self.simulate(*flags, "--steps", f"{2 * i}:{2 * i + 2}")
            demands.append(part["stages"][0]["demand_pages"])
            self.assertGreater(demands[-1], max(pages[4 * i:4 * i + 4]))
        self.assertEqual(whole["iteration"], demands.index(max(demands)))
        self.assertEqual([whole[f"recommended_pages_{share}"] for share in ("p50", "p99", "all")],
                         [sorted(demands)[1], max(demands), max(demands)])
        self.assertEqual(whole["stages"][0]["demand_pages"], max(demands))

    def test_one_ring(self):
        """As many sets for both directions keep more in place."""
        flags = [*schedule("1f1b", 4, 8), "--layers", 4, "--rank", 0, "--visit-pages",
                 self.visits(pages3), "--check", "host", "--page-size", "16KiB"]
        (two,), (one,) = self.stages(*flags), self.stages(*flags, "--one-ring", "--sources", 4)
        self.assertGreater(one["kept_in_place"], two["kept_in_place"])
        self.assertEqual(one["stashed"] + one["kept_in_place"], 32)

    def test_balanced(self):
        path = self.write("step,layer,e0,e1\n0,0,10,20\n1,0,30,41\n")
        flags = [*schedule("gpipe", 1, 8), "--layers", 1, "--routing", path, "--balanced",
                 "--hidden-size", 8192, "--page-size", "16KiB"]
        stage, = self.stages(*flags)
        wanted = cli.usage(cli.tensors_of("bf16", 8192, 512), [51], 16 << 10)[1]
        self.assertEqual(stage["high_water_pages"] % wanted, 0)  # the mean of 30 and 71, rounded up
        self.assertEqual(stage["high_water_pages"], 4 * wanted)  # of 8: 2 kept, 2 restored early

    def test_times_file(self):
        header = "rank,chunk,layer,pass,before_ns,core_ns,after_ns\n"
        flags = [*schedule("1f1b", 2, 2), "--layers", 2]
        path = self.write(header + "*,0,0,F,1,4,1\n*,0,0,B,2,8,2\n*,0,1,F,1,4,1\n*,0,1,B,2,8,2\n")
        self.assertEqual(self.simulate(*flags, "--times", path)["makespan_ns"],
                         self.simulate(*flags, *WORK)["makespan_ns"])
        path = self.write(header + "*,0,0,F,0,1,0\n*,0,0,B,0,1,0\n*,0,0,W,0,1,0\n1,0,0,F,0,5,0\n"
                          "*,0,1,F,0,0,0\n*,0,1,B,0,0,0\n")
        busy = [stage["busy_ns"] for stage in self.stages(*flags, "--times", path)]
        self.assertEqual(busy, [2 * 3, 2 * 7])

    def test_rates_of_the_benchmark(self):
        def row(op, num_bytes, seconds):
            return {"op": op, "sweep": "bytes", "state": "cold", "backend": "auto",
                    "bytes": num_bytes, "seconds_median": seconds}
        report = {"rows": [row("stash", 1000, 3e-6), row("stash", 9000, 11e-6),
                           row("restore", 1000, 2e-6), row("restore", 9000, 6e-6)]}
        path = self.write(json.dumps(report), "rates.json")
        flags = [*schedule("1f1b", 1, 1), "--layers", 8, "--page-size", "16KiB", "--visit-pages",
                 self.visits(lambda c, n, i: 1), "--rates"]
        stage, = self.stages(*flags, path)
        self.assertEqual((stage["stash_busy_ns"], stage["restore_busy_ns"]),
                         (6 * (2000 + 16384), 6 * (1500 + 8192)))
        shipped = os.path.join(cli.SOURCE,
                               "bench/results/2026-11-21-epyc-host-721ae40d03f3/bytes.json")
        self.assertGreater(self.stages(*flags, shipped)[0]["stash_busy_ns"], 0)

    def test_deadlock(self):
        """Each of two ranks begins with what needs the other."""
        path = self.write("rank,kind,chunk,micro_batch\n0,F,1,0\n0,F,0,0\n0,B,1,0\n0,B,0,0\n"
                          "1,F,0,0\n1,F,1,0\n1,B,1,0\n1,B,0,0\n")
        result = run("simulate", "--schedule", f"list:{path}", "--layers", 1, "--forward-ns", 1)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1), result)
        self.assertIn("deadlock", result.stderr)

    def test_shortfall(self):
        flags = [*schedule("1f1b", 4, 8), "--layers", 4, "--visit-pages", self.visits(pages3)]
        result = run("simulate", *flags, "--pages", 22)
        self.assertEqual(result.returncode, 1)
        for word in ("rank 0", "14 faults", "micro-batch 3", "layer 0", "wanted 1", "free 0 + 0",
                     "--pages 30 would do"):
            self.assertIn(word, result.stderr)
        self.assertEqual(run("simulate", *flags, "--pages", 30).returncode, 0)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    cli.BINARY, cli.SOURCE = map(os.path.abspath, sys.argv[1:3])
    from refusals import Fuzz, Refusals  # unittest runs what it finds here
    from solving import Solving
    from timelines import Timelines
    unittest.main(argv=sys.argv[:1], verbosity=0)
