"""Pictures of `pagestash simulate`: Perfetto and HTML as text; check_html.py opens the page."""
import collections
import html.parser
import json

import cli
from cli import run
from scene import SimulateTest, pages3, schedule

LANES = ["main", "stash", "restore", "to host", "from host"]


class Page(html.parser.HTMLParser):
    """Wants every element closed in order; keeps what stands in scripts."""

    def __init__(self, text):
        super().__init__()
        self.open, self.scripts = [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data


class Timelines(SimulateTest):
    def flags(self, kind="1f1b", layers=4, *more):
        return [*schedule(kind, 4, 8), "--layers", layers, "--visit-pages", self.visits(pages3),
                "--forward-ns", "1,4,1", "--backward-ns", "2,8,2", "--weight-ns", "0,2,0",
                "--stash-ns", 9, "--restore-ns", 12, *more]

    def perfetto(self, *flags):
        path = self.path("trace.json")
        whole = self.simulate(*flags, "--perfetto", path)
        with open(path, encoding="ascii") as file:
            return whole, json.load(file)["traceEvents"]

    def test_perfetto(self):
        for flags in (self.flags(), self.flags("zb-h1", 3), self.flags("1f1b", 4, "--streams", 2),
                      self.flags("1f1b", 4, "--rank", 2)):
            whole, events = self.perfetto(*flags)
            of = collections.defaultdict(list)
            for event in events:
                of[event["ph"], event["pid"]].append(event)
            for stage in whole["stages"]:
                rank = stage["rank"]
                threads = [event["args"]["name"] for event in of["M", rank]
                           if event["name"] == "thread_name"]
                self.assertEqual(threads, LANES)
                slices = collections.defaultdict(list)
                for event in of["X", rank]:
                    slices[event["tid"]].append(event)
                self.assertEqual(len(slices[1]), stage["stashed"])
                self.assertEqual(len(slices[2]), stage["restored"])
                nanoseconds = {tid: [(round(1000 * e["ts"]), round(1000 * (e["ts"] + e["dur"])))
                                     for e in events] for tid, events in slices.items()}
                for spans in nanoseconds.values():  # one stream does one thing at a time
                    spans.sort()
                    self.assertTrue(all(a[1] <= b[0] for a, b in zip(spans, spans[1:])), spans)
                stalls = sum(round(1000 * event["dur"]) for event in slices[0]
                             if event["name"].startswith("stall"))
                self.assertEqual(stalls, stage["exposed_forward_ns"] + stage["exposed_backward_ns"])
                self.check_flows(of, rank, stage)
                self.check_counters(of["C", rank], stage, nanoseconds)
            self.assertEqual({pid for _, pid in of}, {stage["rank"] for stage in whole["stages"]})

    def test_visits_have_the_rows_of_the_trace(self):
        """Layers of the model in the order of its virtual stages; a step for each micro-batch."""
        path = self.trace(steps=8, layers=3, experts=4, high=3000)
        tensors = cli.tensors_of("bf16", 64, 64)
        rows = {tuple(row[:2]): cli.usage(tensors, [sum(row[2:])], 16 << 10)[1]
                for row in cli.read(path)}
        base = ["--routing", path, "--hidden-size", 64, "--moe-ffn-hidden-size", 64, "--page-size",
                "16KiB", "--keeps-nothing"]
        for flags, place in (  # what a chunk of a rank is: its virtual stage, what comes before it
                (schedule("interleaved", 2, 4, 2, 2), lambda r, c: (2 * c + r, 0)),
                (schedule("zb-v", 2, 4), lambda r, c: (r if c == 0 else 3 - r, 0)),
                (schedule("dualpipe", 2, 8), lambda r, c: (r if c == 0 else 1 - r, 4 * c))):
            for dense in (0, 2):
                more = ["--layers", 2, *(["--moe-layers", f"{dense}:4"] if dense else [])]
                _, events = self.perfetto(*flags, *base, *more)
                stashes = [event for event in events if event.get("name", "").startswith("stash ")]
                self.assertGreater(len(stashes), 4)
                for event in stashes:
                    args = event["args"]
                    stage, before = place(event["pid"], args["chunk"])
                    layer = 2 * stage + args["layer"] - dense
                    self.assertEqual(args["pages"], rows[before + args["micro_batch"], layer % 3],
                                     (flags, event))

    def check_flows(self, of, rank, stage):
        """From each stash to each of its restores, never back in time."""
        begins = {event["id"]: event["ts"] for event in of["s", rank]}
        self.assertEqual(len(begins), stage["restored"])
        for event in of["f", rank]:
            self.assertLessEqual(begins.pop(event["id"]), event["ts"])
        self.assertEqual(begins, {})

    def check_counters(self, events, stage, nanoseconds):
        """Pages are taken when a stash begins, and freed when a restore ends."""
        live = [(round(1000 * e["ts"]), *e["args"].values()) for e in events
                if e["name"] == "tickets live"]
        for (_, before), (at, after) in zip([(0, 0), *live], live):
            self.assertIn(at, {span[before > after or before == after]
                               for span in nanoseconds[1 if after > before else 2]})
        values = collections.defaultdict(list)
        for event in events:
            values[event["name"]] += event["args"].values()
        self.assertEqual(max(values["pages in use"]), stage["high_water_pages"])
        self.assertEqual((values["pages in use"][-1], values["tickets live"][-1]), (0, 0))
        self.assertLessEqual(max(values["tickets live"]), stage["tickets"])

    def page(self, *flags):
        path = self.path("page.html")
        whole = self.simulate(*flags, "--html", path)
        with open(path, encoding="ascii") as file:
            text = file.read()
        self.assertNotRegex(text, r"https?://|//[a-z]+\.|@import|url\(")
        self.assertNotRegex(text, "@[A-Z]+@")
        self.assertIn("default-src 'none'", text)
        return whole, json.loads(Page(text).scripts[0])

    def test_html(self):
        whole, data = self.page(*self.flags("1f1b", 4, "--streams", 2))
        rows = [data["events"][i:i + 13] for i in range(0, len(data["events"]), 13)]
        self.assertEqual((data["ranks"], data["lanes"]), ([0, 1, 2, 3], LANES))
        self.assertEqual((data["visits"], data["shown"]), (4 * 16 * 4, 0))
        for stage in whole["stages"]:
            kinds = collections.Counter(row[2] for row in rows if row[0] == stage["rank"])
            visits = {tuple(row[3:7]) for row in rows if row[0] == stage["rank"] and row[2] == 0}
            self.assertEqual((len(visits), kinds[4], kinds[5]),
                             (16 * 4, stage["stashed"], stage["restored"]))
        self.assertEqual(max(row[8] for row in rows), whole["makespan_ns"])

    def test_long_schedules_are_cut(self):
        path = self.path("page.html")
        flags = [*schedule("1f1b", 4, 512), "--layers", 16, "--forward-ns", 3, "--backward-ns", 6]
        result = run("simulate", *flags, "--stash-ns", 1, "--restore-ns", 1, "--html", path)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        with open(path, encoding="ascii") as file:
            data = json.loads(Page(file.read()).scripts[0])
        rows = [data["events"][i:i + 13] for i in range(0, len(data["events"]), 13)]
        self.assertEqual((data["visits"], data["shown"]), (4 * 1024 * 16, 2500))
        for rank in range(4):
            work = [row for row in rows if row[0] == rank and row[2] == 0]
            self.assertEqual(len(work), 5000)
            self.assertEqual({row[6] for row in work} & {0, 511}, {0, 511})

    def test_full_disk(self):
        for name in ("html", "perfetto", "list"):
            result = run("simulate", *self.flags(), f"--{name}", "/dev/full")
            self.assertEqual((result.returncode, result.stderr.count("\n")), (3, 1), result)
            self.assertIn(f"--{name} /dev/full: No space left on device", result.stderr)
