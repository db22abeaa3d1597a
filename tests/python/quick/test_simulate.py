#!/usr/bin/env python3
"""pagestash.simulate and pagestash.policy: the vectors and the command say the same."""
import json
import os
import re
import subprocess
import tempfile
import unittest

from common import built, vectors
from common.vectors import WORK, paged

import pagestash
from pagestash import Error, SimulatedLayer, SimulatedPart, simulate
from pagestash.pool import Form, Rows, Space
from pagestash.schedule import Schedule, read_lists, write_lists

scene, tables = vectors.load()
KEYS = {"high_water_pages": ("high_water", 0), "high_water_host_pages": ("high_water", 1),
        "demand_pages": ("demand_high_water", None), "link_out_bytes": ("link_bytes", 0),
        "link_in_bytes": ("link_bytes", 1), "link_out_busy_ns": ("link_busy_ns", 0),
        "link_in_busy_ns": ("link_busy_ns", 1), "faults": ("num_faults", None),
        "passes": ("num_passes", None), "tickets": ("num_tickets", None)}
SAME = ("peak_in_flight", "kept_in_place", "stashed", "restored", "spilled_pages", "offloaded_pages",
        "displaced_pages", "demoted_pages", "promoted_pages", "stranded_pages", "span_ns", "end_ns",
        "exposed_forward_ns", "exposed_backward_ns", "bubble_ns", "busy_ns", "recompute_ns",
        "stash_busy_ns", "restore_busy_ns", "program_bytes")


def kind_of(text):
    """Schedules of the stages, the stage and the layers of a case of vectors.py."""
    kind, stages, rank, micro_batches, chunks, group, layers = text.split()
    fields = {}
    if kind == "interleaved":
        fields = {"num_chunks": int(chunks), "group": int(group)}
    return Schedule(kind, num_stages=int(stages), stage=int(rank),
                    num_micro_batches=int(micro_batches), **fields), int(layers)


class Vectors(unittest.TestCase):
    def test_pages(self):
        ways = ("next", "1+1", "2+2", "2+3", "2+2 by slot", "2+2 nothing kept")
        num = 0
        for name, what, *cells in scene.rows_of(tables.PAGES):
            schedule, layers = kind_of(what)
            given = [paged(pages, layers, schedule) for pages in (scene.pages3, scene.group)]
            for column, cell in zip(ways, cells):
                if cell == "-":
                    continue
                water, counts = cell.split("; ")
                for one, pages in zip(given, water.split(" / ")):
                    stage = simulate(schedule, one, events=False,
                                     **vectors.fields_of(scene.way(column))).raw_stages[0]
                    self.assertEqual(stage.high_water[0], int(pages), (name, column))
                    self.assertEqual(f"{stage.stashed}, {stage.restored}, {stage.kept_in_place}",
                                     counts.split(" c")[0], (name, column))
                    num += 1
        self.assertGreater(num, 100)

    def test_stalls(self):
        ways = ("next", "1+1", "2+2", "2+2 two streams", "2+2 ahead 1", "2+3", "2+2 by slot")
        for name, what, layers, stash, restore, *cells in scene.rows_of(tables.STALLS):
            stages, rank, micro_batches = map(int, what.split())
            schedule = Schedule(num_stages=stages, stage=rank, num_micro_batches=micro_batches)
            given = SimulatedLayer.repeat(int(layers), **WORK)
            for column, cell in zip(ways, cells):
                stage = simulate(schedule, given, events=False, stash_ns=int(stash),
                                 restore_ns=int(restore),
                                 **vectors.fields_of(scene.way(column))).raw_stages[0]
                self.assertEqual(f"{stage.end_ns}; {stage.exposed_forward_ns}"
                                 f"+{stage.exposed_backward_ns}", cell, (name, column))

    def test_pipelines(self):
        for name, what, stash, restore, p2p, *cells in scene.rows_of(tables.PIPELINES):
            kind, stages, micro_batches, chunks, group, layers = what.split()
            fields = {"num_chunks": int(chunks), "group": int(group)} if group != "-" else {}
            schedules = Schedule.pipeline(kind, int(stages), int(micro_batches), **fields)
            given = SimulatedLayer.repeat(int(layers), num_chunks=int(chunks), **WORK)
            for column, cell in zip(("next", "2+2", "2+2 two streams"), cells):
                whole = simulate(schedules, given, events=False, stash_ns=int(stash),
                                 restore_ns=int(restore), p2p_ns=int(p2p),
                                 **vectors.fields_of(scene.way(column)))
                waits = [s.exposed_forward_ns + s.exposed_backward_ns for s in whole.raw_stages]
                self.assertEqual(f"{whole.makespan_ns}; {' '.join(map(str, waits))}", cell,
                                 (name, column))

    def test_schedules(self):
        for name, kind, stages, micro_batches, chunks, group, peaks, slots, passes, makespan, _ in \
                scene.rows_of(tables.SCHEDULES):
            kind, *overlaps = kind.split()
            fields = {}
            if kind == "interleaved":
                fields = {"num_chunks": int(chunks), "group": int(group),
                          "overlaps_exchange": bool(overlaps)}
            schedules = Schedule.pipeline(kind, int(stages), int(micro_batches), **fields)
            self.assertEqual([s.info.peak for s in schedules], list(map(int, peaks.split())), name)
            self.assertEqual(" / ".join("+".join(str(s.slots(c)) for c in range(s.num_chunks))
                                        for s in (schedules[0], schedules[-1])), slots, name)
            self.assertEqual(len(schedules[0]), int(passes), name)
            layers = SimulatedLayer.repeat(1, num_chunks=schedules[0].num_chunks,
                                           forward_ns=(0, 1, 0), backward_ns=(0, 1, 0),
                                           weight_ns=(0, 1, 0))
            self.assertEqual(simulate(schedules, layers, events=False).makespan_ns, int(makespan))

    def test_tiers(self):
        schedule = Schedule(num_stages=4, num_micro_batches=8)
        for name, pages, host, shares, water, demand, spilled, offloaded, displaced, faults, first in \
                scene.rows_of(tables.TIERS):
            share = dict(one.split("=") for one in shares.split(",")) if shares != "-" else {}
            layers = paged(scene.pages3, 4, schedule, host_share=lambda c, n: share.get(str(n), 0))
            whole = simulate(schedule, layers, pages=int(pages), host_pages=int(host),
                             page_bytes=16384)
            stage = whole.raw_stages[0]
            self.assertEqual(f"{stage.high_water[0]}, {stage.high_water[1]}", water, name)
            self.assertEqual([stage.demand_high_water, stage.spilled_pages, stage.offloaded_pages,
                              stage.displaced_pages, stage.num_faults],
                             list(map(int, (demand, spilled, offloaded, displaced, faults))), name)
            self.assertEqual(whole.fits, first == "-", name)
            if first == "-":
                self.assertIsNone(whole.fault(0))
                continue
            micro_batch, layer, wanted, free, free_host = first.split()
            self.assertIn(f"layer {layer}, micro-batch {micro_batch}: ", whole.fault(0), name)
            self.assertIn(f": wanted {wanted}, free {free} and {free_host} on", whole.fault(0), name)


class Usages(unittest.TestCase):
    def test_bytes_are_rows_of_a_form(self):
        """What one tensor takes, whichever way it is said."""
        form = Form([Space(10**6)], [Rows(16)])
        for rows in (0, 1, 1023, 1024, 1025, 99999):
            said = [SimulatedPart(**fields).usages(1 << 15, "it")[0] for fields in (
                {"bytes": 16 * rows}, {"form": form, "counts": rows}, {"form": form, "counts": [rows]})]
            self.assertEqual(len({(u.payload_bytes, u.stream_bytes, u.pages) for u in said}), 1, rows)


class Command(unittest.TestCase):
    """What `pagestash simulate --json` says."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def asked(self, *flags):
        """What the report has, and the text."""
        done = subprocess.run([built.command(), "simulate", *map(str, flags), "--json=" + self.path("report")],
                              text=True, capture_output=True, check=False)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        with open(self.path("report"), encoding="utf-8") as file:
            return {**json.load(file), "text": done.stdout}

    def same(self, whole, said):
        self.assertIn(f"\n{whole.table()}\n", said["text"])
        self.assertLessEqual(max(map(len, whole.table().splitlines())), 100)
        self.assertEqual((whole.makespan_ns, whole.fits), (said["makespan_ns"], said["fits"]))
        self.assertEqual(len(whole.stages), len(said["stages"]))
        for stage, of_rank in zip(whole.raw_stages, said["stages"]):
            for key in (*KEYS, *SAME):
                name, pair = KEYS.get(key, (key, None))
                value = getattr(stage, name)
                self.assertEqual(value if pair is None else value[pair], of_rank[key], key)
            self.assertEqual(list(stage.conflicts), of_rank["conflicts"])
            self.assertEqual(list(stage.high_water_bounds), of_rank["demand_pages_bounds"])
            self.assertEqual(stage.worst_ns, (of_rank["worst"] or {"ns": 0}).get("ns", stage.worst_ns))

    def test_a_list_that_is_empty(self):
        open(self.path("list.csv"), "w", encoding="ascii").close()
        with self.assertRaisesRegex(Error, "list.csv:1: header"):
            read_lists(self.path("list.csv"))

    def test_own_lists_shares_and_streams(self):
        """Lists of an own order, on four streams, with shares that move to the host, in a pool that is
        too small."""
        schedules = Schedule.pipeline("dualpipe", 4, 8)
        write_lists(self.path("list.csv"), schedules)
        self.assertEqual([list(s) for s in read_lists(self.path("list.csv"))],
                         [list(s) for s in schedules])
        with open(self.path("pages.csv"), "w", encoding="ascii") as file:
            file.write("chunk,layer,micro_batch,pages\n" + "".join(
                f"{c},{n},{i},{scene.pages3(c, n, i)}\n"
                for c in range(2) for n in range(2) for i in range(4)))
        layers = paged(scene.pages3, 2, schedules[0], host_share="1/2", move="demote", **WORK,
                       weight_ns=(0, 2, 0), max_demote_pages=1)
        whole = simulate(read_lists(self.path("list.csv")), layers, num_streams=4, pages=9,
                         host_pages="auto", page_bytes=16384, stash_ns=9, restore_ns=12, p2p_ns=2,
                         out_rate=10**10, in_rate=2 * 10**10, interference_per_mille=250,
                         chunk_order="directions", num_destinations=3, ahead=2)
        self.same(whole, self.asked(
            "--schedule", f"list:{self.path('list.csv')}", "--chunk-order", "directions", "--layers",
            2, "--visit-pages", self.path("pages.csv"), "--offload", "0=1/2,1=1/2", "--move", "demote",
            "--streams", 4, "--pages", 9, "--host-pages", "auto", "--page-size", 16384, "--stash-ns",
            9, "--restore-ns", 12, "--p2p-ns", 2, "--link-gb/s", "10,20", "--interference", 250,
            "--destinations", 3, "--ahead", 2, "--forward-ns", "1,4,1", "--backward-ns", "2,8,2",
            "--weight-ns", "0,2,0"))
        self.assertGreater(whole.raw_stages[0].demoted_pages, 0)

    def test_tables(self):
        """Times that leave no room in nanoseconds, host pages, faults, all ranks and one alone."""
        with open(self.path("pages.csv"), "w", encoding="ascii") as file:
            file.write("chunk,layer,micro_batch,pages\n" + "".join(
                f"0,{layer},{i},3\n" for layer in range(2) for i in range(13)))
        units = set()
        for ns in (0, 10**11, 10**13, 10**15):
            layers = SimulatedLayer.repeat(2, pages=[3] * 13, forward_ns=(ns, 4, 1), backward_ns=(ns, 8, 2))
            for pages, host_pages in (("auto", 0), (9, 3), ("auto", "auto"), (4, 0)):
                for schedules, rank in ((Schedule.pipeline("1f1b", 12, 13), "all"),
                                        (Schedule(num_stages=12, stage=10, num_micro_batches=13), 10)):
                    whole = simulate(schedules, layers, stash_ns=ns, pages=pages, host_pages=host_pages,
                                     page_bytes=16384)
                    said = self.asked(
                        "--schedule", "1f1b", "--stages", 12, "--micro-batches", 13, "--layers", 2,
                        "--visit-pages", self.path("pages.csv"), "--stash-ns", ns, "--pages", pages,
                        "--host-pages", host_pages, "--page-size", 16384, "--rank", rank,
                        "--forward-ns", f"{ns},4,1", "--backward-ns", f"{ns},8,2")
                    with self.subTest(ns=ns, pages=pages, rank=rank):
                        self.same(whole, said)
                    units.update(re.findall(" end (m?u?n?s) ", whole.table()))
        self.assertEqual(units, {"ns", "us", "ms", "s"})

    def test_routing_trace(self):
        """The shipped trace: an iteration takes as many of its steps as there are micro-batches."""
        trace = os.path.join(vectors.ROOT, "bench", "data", "bytelm-e8-top2-l4.csv")
        for kind, chunks, kind_of_rows in (("1f1b", 1, "prefix"), ("interleaved", 2, "segments"),
                                           ("dualpipe", 2, "prefix"), ("zb-v", 2, "prefix")):
            said = self.asked(
                "--schedule", kind, "--stages", 2, "--micro-batches", 4, *(
                    ["--chunks", chunks] if kind == "interleaved" else []), "--layers", 3, "--routing",
                trace, "--steps", "0:8", "--expert-model-parallel-size", 2,
                "--expert-model-parallel-rank", 1, "--hidden-size", 64, "--moe-ffn-hidden-size", 32,
                "--layout", kind_of_rows, "--page-size", "16KiB", "--one-ring" if kind == "1f1b" else
                "--keeps-nothing")
            space = Space(1 << 20, *(() if kind_of_rows == "prefix" else (kind_of_rows, 4)))
            form = Form([space], [Rows(width) for width, _ in scene.cli.tensors_of("bf16", 64, 32)])
            schedules = Schedule.pipeline(kind, 2, 4)
            layers = pagestash.routed_layers(
                schedules, trace, form, 3, expert_model_parallel_size=2,
                expert_model_parallel_rank=1, iteration=said["iteration"])
            whole = simulate(schedules, layers, page_bytes=16384,
                             **{"one_ring" if kind == "1f1b" else "keeps_nothing": True})
            self.same(whole, said)
            self.assertGreater(whole.demand, 10)


if __name__ == "__main__":
    unittest.main()
