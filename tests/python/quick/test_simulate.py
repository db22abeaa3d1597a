#!/usr/bin/env python3
"""pagestash.simulate and pagestash.policy: the vectors and the command say the same; pictures; bad input."""
import contextlib
import html.parser
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from common import built, vectors
from common.needs import needs

import pagestash
from pagestash import Error, SimulatedLayer, SimulatedPart, simulate
from pagestash.pool import Form, Rows, Space
from pagestash.schedule import Schedule, read_lists, write_lists

scene, tables = vectors.load()
WORK = {"forward_ns": (1, 4, 1), "backward_ns": (2, 8, 2)}
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


def paged(pages, num_layers, schedule, **fields):
    """Layers whose visits take pages(chunk, layer, micro_batch)."""
    return SimulatedLayer.repeat(
        num_layers, num_chunks=schedule.num_chunks,
        pages=lambda c, n: [pages(c, n, i) for i in range(schedule.num_micro_batches)], **fields)


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
        done = subprocess.run([built.command(), "simulate", *map(str, flags), "--json"], text=True,
                              capture_output=True, check=False)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return json.loads(done.stdout)

    def same(self, whole, said):
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


class Page(html.parser.HTMLParser):
    """Wants every element closed in order, and nothing that loads or runs."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rects, self.text = [], 0, ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "link", "img", "iframe"), tag
        self.rects += tag == "rect"
        if tag not in ("meta", "polyline"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.rects += tag == "rect"

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        self.text += data


class Results(unittest.TestCase):
    def setUp(self):
        schedules = Schedule.pipeline("zb-h1", 2, 4)
        layers = paged(scene.pages3, 2, schedules[0], **WORK)
        self.whole = simulate(schedules, layers, stash_ns=9, restore_ns=12, pages=8)

    @needs("numpy")
    def test_arrays(self):
        import numpy
        stages, events = self.whole.stages, self.whole.events
        self.assertIsInstance(stages, numpy.ndarray)
        self.assertEqual(len(stages), 2)
        self.assertNotIn("padding", stages.dtype.names)
        self.assertEqual(stages["demand_high_water"].tolist(),
                         [s.demand_high_water for s in self.whole.raw_stages])
        for number, stage in enumerate(stages):
            mine = events[events["stage"] == number]
            stashes = mine[mine["kind"] == 4]
            self.assertEqual(len(stashes), stage["stashed"])
            self.assertEqual(mine["in_use"][:, 0].max(), stage["high_water"][0])
            spans = mine["end_ns"] - mine["begin_ns"]
            self.assertEqual(spans[mine["kind"] == 2].sum(),
                             stage["exposed_forward_ns"] + stage["exposed_backward_ns"])
        with self.assertRaisesRegex(Error, "events=False"):
            simulate(self.whole.schedules, self.whole.layers, events=False).events

    def test_pages(self):
        page = Page(self.whole.to_html())
        self.assertEqual(page.rects, len(self.whole.events))
        self.assertIn("stash F of chunk 0, layer 0, micro-batch 0: ", page.text)
        schedules = Schedule.pipeline("1f1b", 2, 4)
        whole = simulate(schedules, paged(scene.pages3, 4, schedules[0]))
        waters = [stage.high_water[0] for stage in whole.raw_stages]
        self.assertNotEqual(*waters)
        self.assertEqual(re.findall(r"pages(\d+)", Page(whole.to_html()).text), list(map(str, waters)))
        self.assertEqual(page.text.count("restore B of chunk 0, layer 0, micro-batch 0: "), 0)
        self.assertEqual(page.text.count("restore W of chunk 0, layer 0, micro-batch 0: "), 2)
        Page(self.whole._repr_html_())
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "timeline.html")
            self.whole.to_html(path)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), self.whole.to_html())

    def test_table(self):
        lines = self.whole.table().splitlines()
        self.assertEqual(len(lines), 3)
        self.assertEqual(len({len(line) for line in lines}), 1)
        self.assertIn("does not fit", repr(self.whole))

    def test_deadlock(self):
        """Two stages that each wait for the other."""
        orders = [[("F", 0, 0), ("B", 0, 0), ("F", 0, 1), ("B", 0, 1)],
                  [("F", 0, 1), ("B", 0, 1), ("F", 0, 0), ("B", 0, 0)]]
        whole = simulate([Schedule.of(order, num_stages=2, stage=i) for i, order in enumerate(orders)],
                         SimulatedLayer.repeat(1, **WORK))
        self.assertFalse(whole.fits)
        self.assertIn("micro-batch 0", whole.deadlock)
        self.assertIn(whole.deadlock, Page(whole.to_html()).text)

    def test_plot_without_matplotlib(self):
        saved = {name: module for name, module in sys.modules.items()
                 if name.split(".")[0] == "matplotlib"}
        try:
            sys.modules.update(dict.fromkeys(saved, None), matplotlib=None)
            with self.assertRaisesRegex(Error, "matplotlib is not installed"):
                self.whole.plot()
        finally:
            del sys.modules["matplotlib"]
            sys.modules.update(saved)


class WithoutNumpy(unittest.TestCase):
    def test_structs_and_lists(self):
        with mock.patch.dict(sys.modules, numpy=None):
            whole = simulate(Schedule(), SimulatedLayer.repeat(1, **WORK))
            self.assertEqual(whole.stages[0].end_ns, whole.makespan_ns)
            self.assertEqual({type(event.kind) for event in whole.events}, {int})
            Page(whole.to_html())
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "routing.csv")
                with open(path, "w", encoding="ascii") as file:
                    file.write("step,layer,e0,e1\n0,0,5,6\n0,1,7,8\n")
                self.assertEqual(pagestash.read_routing(path), [[[5, 6], [7, 8]]])


class Policy(unittest.TestCase):
    def test_choice_is_simulated(self):
        schedules = Schedule.pipeline("1f1b", 4, 8)
        layers = paged(scene.pages3, 4, schedules[0], **WORK)
        chosen = pagestash.policy(schedules, layers, gpu_bytes=1 << 30, set_bytes=1 << 20,
                                  stash_ns=6, restore_ns=6)
        self.assertTrue(chosen.fits and not chosen.is_scarce)
        whole = simulate(schedules, layers, stash_ns=6, restore_ns=6, **chosen.fields())
        self.assertTrue(whole.fits)
        self.assertEqual(whole.demand, chosen.num_pages)
        exposed = [s.exposed_forward_ns + s.exposed_backward_ns for s in whole.raw_stages]
        self.assertEqual(max(exposed), chosen.exposed_ns)
        self.assertEqual(len(chosen.choices), 16)
        self.assertEqual({choice.keep for choice in chosen.choices}, {"paged"})

    def test_pages_are_of_one_size(self):
        """Where a layer says how many it takes no other size is chosen; where it says bytes, one is."""
        for fields, chosen in (({"pages": 4}, 1 << 16), ({"bytes": 1 << 18}, 1 << 18)):
            self.assertEqual(pagestash.policy(
                Schedule(num_micro_batches=2), SimulatedLayer.repeat(4, **fields), gpu_bytes=1 << 30,
                set_bytes=1 << 20, page_bytes=1 << 16).page_bytes, chosen)

    @needs("numpy")
    def test_scarce(self):
        """With less memory something leaves; with hardly any, what is missing is said."""
        schedule = Schedule(num_stages=4, num_micro_batches=8)
        layers = paged(scene.pages3, 4, schedule, treatments=("recomputed",), recompute_ns=50, **WORK)
        fields = {"set_bytes": 1 << 20, "stash_ns": 6, "restore_ns": 6}
        chosen = pagestash.policy(schedule, layers, gpu_bytes=7 << 20, **fields)
        self.assertTrue(chosen.fits and chosen.is_scarce, chosen)
        self.assertIn("recomputed", {choice.keep for choice in chosen.choices})
        self.assertEqual(chosen.stages["recompute_ns"].tolist(), [chosen.recompute_ns])
        chosen = pagestash.policy(schedule, paged(scene.pages3, 4, schedule), gpu_bytes=1 << 19,
                                  **fields)
        self.assertFalse(chosen.fits)
        self.assertIn(f"lacks {chosen.missing_gpu_bytes} bytes", repr(chosen))

    def test_refusals(self):
        schedule, layers = Schedule(num_micro_batches=2), SimulatedLayer.repeat(1)
        for said, fields in (("given 'sises'", {"given": ["sises"]}),
                             ("objective 'best'", {"objective": "best"}),
                             ("static_bytes: 2: there are 1 stages", {"static_bytes": [1, 2]}),
                             ("gpu_bytes -1", {"gpu_bytes": -1})):
            with self.assertRaisesRegex(Error, said):
                pagestash.policy(schedule, layers, **{"gpu_bytes": 1 << 30, "set_bytes": 1, **fields})


class Documentation(unittest.TestCase):
    @needs("torch")
    def test_docs_scheduler(self):
        """What docs/scheduler.md says of Python runs as it stands."""
        with open(os.path.join(vectors.ROOT, "docs", "scheduler.md"), encoding="utf-8") as file:
            blocks = re.findall("```python\n(.*?)```", file.read(), re.DOTALL)
        self.assertEqual(len(blocks), 2)
        for block in blocks:
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(block, "docs/scheduler.md", "exec"), {})  # pylint: disable=exec-used
        self.assertIn("Policy(fits: ", said.getvalue())


class Refusals(unittest.TestCase):
    def test_layers_and_fields(self):
        schedule = Schedule(num_micro_batches=3)
        form = Form([Space(8)], [Rows(64)])
        for said, layers, fields in (
                ("schedules", [], None),
                ("layers: a list of SimulatedLayer", [[], []], {}),
                ("one of pages, bytes, and form with counts", [SimulatedLayer(pages=1, bytes=1)], {}),
                ("one of pages, bytes, and form with counts", [SimulatedLayer(counts=[1])], {}),
                ("pages 0 -1", [SimulatedLayer(pages=[-1])], {}),
                ("pages 0 'x'", [SimulatedLayer(pages=["x"])], {}),
                ("pages: none", [SimulatedLayer(pages=[])], {}),
                ("counts 0: 2: the form has 1", [SimulatedLayer(form=form, counts=[[1, 2]])], {}),
                ("outside 0 to 8|capacity|9", [SimulatedLayer(form=form, counts=[9])], {}),
                ("keep 'kept'", [SimulatedLayer(keep="kept")], {}),
                ("host_share 1.5", [SimulatedLayer(host_share=1.5)], {}),
                ("host_share 'x'", [SimulatedLayer(host_share="x")], {}),
                ("forward_ns: 2 times", [SimulatedLayer(forward_ns=(1, 2))], {}),
                ("its parts have", [SimulatedLayer(parts=[SimulatedPart(pages=[1, 2]),
                                                          SimulatedPart(pages=[1, 2, 3])])], {}),
                ("5 parts", [SimulatedLayer(parts=[SimulatedPart()] * 5)], {}),
                ("parts, and pages", [SimulatedLayer(pages=1, parts=[SimulatedPart()])], {}),
                ("layer", [SimulatedLayer(layer=1)], {}),
                ("num_sources 4294967296", [SimulatedLayer()], {"num_sources": 1 << 32}),
                ("num_sources", [SimulatedLayer()], {"num_sources": 9}),
                ("rule 'soon'", [SimulatedLayer()], {"rule": "soon"}),
                ("pages 'many'", [SimulatedLayer()], {"pages": "many"}),
                ("page_bytes", [SimulatedLayer()], {"page_bytes": 5}),
                ("num_usages", [SimulatedLayer(pages=[1, 1])], {})):
            with self.subTest(said):
                with self.assertRaisesRegex(Error, said):
                    simulate(schedule if fields is not None else [], layers, **(fields or {}))

    def test_routing_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "routing.csv")
            for text, said in (("", ":1: header"), ("step,layer,e1\n", ":1: header"),
                               ("step,layer,e0\n0,0,x\n", ":2: a field is no integer"),
                               ("step,layer,e0\n0,1,2\n", ":2: layer 1"),
                               ("step,layer,e0\n0,0,2\n0,1,2\n1,0,1\n", "not all as many layers")):
                with open(path, "w", encoding="ascii") as file:
                    file.write(text)
                with self.assertRaisesRegex(Error, said):
                    pagestash.read_routing(path)
        schedules = Schedule.pipeline("1f1b", 2, 2)
        form = Form([Space(8)], [Rows(64)])
        routing = [[[1, 2, 3, 4]]] * 3
        with self.assertRaisesRegex(Error, "routing: a file, or"):
            pagestash.routed_layers(schedules, [1, 2], form, 1)
        both = pagestash.routed_layers(schedules, [[[1, 2, 3, 4]] * 2] * 3, form, 1)
        self.assertEqual(pagestash.routed_layers(schedules[1], [[[1, 2, 3, 4]] * 2] * 3, form, 1),
                         both[1:])
        for said, fields in (("the routing has 4 experts", {"expert_model_parallel_size": 3}),
                             ("expert_model_parallel_size 0", {"expert_model_parallel_size": 0}),
                             ("rank 2: the routing", {"expert_model_parallel_size": 2,
                                                      "expert_model_parallel_rank": 2}),
                             ("iteration 1: the routing has 3 steps", {"iteration": 1})):
            with self.assertRaisesRegex(Error, said):
                pagestash.routed_layers(schedules, routing, form, 1, **fields)


if __name__ == "__main__":
    unittest.main()
