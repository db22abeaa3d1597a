#!/usr/bin/env python3
"""What comes out of pagestash.simulate and pagestash.policy, pictures, and what they refuse."""
import contextlib
import html.parser
import io
import os
import pickle
import re
import sys
import tempfile
import unittest
from unittest import mock

from common import vectors
from common.needs import needs
from common.vectors import WORK, paged

import pagestash
from pagestash import Error, SimulatedLayer, SimulatedPart, simulate
from pagestash.pool import Form, Rows, Space
from pagestash.schedule import Schedule

scene, _ = vectors.load()


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
        with open(os.path.join(os.path.dirname(pagestash.__file__), "style.css"), encoding="utf-8") as file:
            rules = file.read()
        self.assertIn(rules, self.whole.to_html())
        self.assertIn(rules, self.whole._repr_html_())
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

    def test_pickle(self):
        """As a pool of processes gives it back."""
        other = pickle.loads(pickle.dumps(self.whole))
        self.assertEqual(other.to_html(), self.whole.to_html())
        self.assertEqual(bytes(other.raw_events()), bytes(self.whole.raw_events()))
        self.assertEqual([bytes(one) for one in other.raw_stages], [bytes(one) for one in self.whole.raw_stages])
        schedules = Schedule.pipeline("1f1b", 2, 4)
        chosen = pagestash.policy(schedules, paged(scene.pages3, 4, schedules[0]), gpu_bytes=1 << 30,
                                  set_bytes=1 << 20)
        other = pickle.loads(pickle.dumps(chosen))
        self.assertEqual(repr(other), repr(chosen))
        self.assertEqual(str(other.stages), str(chosen.stages))

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

    @needs("matplotlib")
    def test_plot_with_old_matplotlib(self):
        import matplotlib
        with mock.patch.multiple(matplotlib, __version__="3.6.3", __version_info__=(3, 6, 3)):
            with self.assertRaisesRegex(Error, "matplotlib 3.6.3: at least 3.7 is wanted"):
                self.whole.plot()


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
