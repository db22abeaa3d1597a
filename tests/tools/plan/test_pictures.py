#!/usr/bin/env python3
"""test_pictures.py PICTURE_MAIN: the pictures of plans as text. check_html.py opens them."""
import html.parser
import json
import pathlib
import re
import subprocess
import sys
import unittest

MAIN = sys.argv[1]
STYLE = pathlib.Path(__file__).resolve().parents[3] / "python/pagestash/style.css"
MIB = 1 << 20
VOID = {"meta", "link", "input"}
BAD_TITLES = ["", "plain", "</script><script>alert(1)</script>", "\"quoted\" 'twice' \\ back",
              "<!-- <b>&amp;</b>", "tab\tline\nreturn\r\x01\x7f", "\u00fc \u2028 \u20ac \U0001f600"]


def draw(kind, layers=2, num_micro_batches=None, title="title"):
    if num_micro_batches is None:
        num_micro_batches = 4 if kind == "stage" else 1
    done = subprocess.run([MAIN, kind, str(layers), str(num_micro_batches), title],
                          capture_output=True, timeout=240, check=True)
    return done.stdout.decode("ascii")


class Page(html.parser.HTMLParser):
    """Wants every element closed in order; keeps what stands in scripts and all attributes."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.scripts, self.links = [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")
        self.links += [value for name, value in attrs if name in ("src", "href", "action")]

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data


def data_of(text):
    """What the page's script reads."""
    page = Page(text)
    assert (len(page.scripts), page.links) == (2, ["data:,"])
    return json.loads(page.scripts[0])


class HtmlTest(unittest.TestCase):
    def test_holds_all_tensors(self):
        plan = data_of(draw("html", 3, 2))
        for name in ("id", "bytes", "offset", "begin", "end", "layer", "micro_batch", "phase"):
            self.assertEqual(len(plan[name]), 180, name)
        self.assertEqual(plan["id"], list(range(100, 280)))
        self.assertEqual(plan["bytes"][:6], [size * MIB for size in (128, 128, 384, 128, 512, 512)])
        self.assertEqual(plan["offset"][:4], [0, 128 * MIB, 256 * MIB, 640 * MIB])
        self.assertEqual(plan["layer"][:6] + plan["layer"][16:18], [1] * 6 + [2] * 2)
        self.assertEqual(set(plan["micro_batch"]), {1, 2})
        self.assertEqual({plan["phases"][phase] for phase in plan["phase"]},
                         {"forward", "backward"})
        self.assertEqual(plan["peak"], max(a + b for a, b in zip(plan["offset"], plan["bytes"])))
        instants = sorted(plan["begin"] + plan["end"])
        self.assertEqual(instants, list(range(360)))

    def test_holds_all_events(self):
        data = data_of(draw("stage", 3, 8))
        self.assertEqual(len(data["events"]), 6 * 2 * 3 * 8)
        self.assertEqual((data["stage"], [stage["stage"] for stage in data["stages"]]), (3, [0, 1, 2, 3]))
        self.assertEqual((data["memory"], data["stages"][3]["overhead"]), (80 << 30, 1 << 30))
        self.assertEqual(set(data["events"][::6]), set(range(6)))

    def test_is_self_contained(self):
        for kind in ("html", "stage"):
            text = draw(kind)
            self.assertNotRegex(text, r"https?://|//[a-z]+\.|@import|url\(")
            self.assertIn("default-src 'none'", text)
            self.assertNotRegex(text, "@[A-Z]+@")

    def test_has_the_style_of_all_pages(self):
        for kind in ("html", "stage"):
            self.assertIn("<style>\n" + STYLE.read_text(), draw(kind))

    def test_titles_are_text(self):
        for title in BAD_TITLES:
            for kind in ("html", "stage"):
                self.assertEqual(data_of(draw(kind, title=title))["title"], title)
        plan = data_of(draw("html", title=b"a\xff\xc3(\xed\xa0\x80\xc0\xaf\xf5\xe2\x82"))
        self.assertRegex(plan["title"], r"^a\?\?\(\?+$")

    def test_large_numbers_are_exact(self):
        plan = data_of(draw("html", 0, 1))
        self.assertEqual(plan["id"], [str(2 ** 64 - 1), 0])
        self.assertEqual(plan["bytes"], [str(1 << 62), 1])
        self.assertEqual(plan["offset"], [str((1 << 61) + 1), 0])
        self.assertEqual(plan["end"], [str((1 << 53) + 1)] * 2)
        self.assertEqual(plan["begin"], [0, 1])
        self.assertEqual(plan["layer"] + plan["micro_batch"] + plan["phase"], [0] * 6)

    def test_nothing(self):
        plan = data_of(draw("html", 0, 0))
        self.assertEqual(plan["id"] + plan["bytes"] + plan["end"], [])

    def test_size_of_a_large_page(self):
        self.assertLess(len(draw("html", 80, 25)), 6e6)

    def test_a_full_disk(self):
        for kind in ("html", "stage", "perfetto"):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([MAIN, kind, "2", "4", "x"], stdout=full, check=False,
                                      stderr=subprocess.PIPE, text=True)
            self.assertEqual((done.returncode, done.stderr), (
                3, "pagestash: standard output: No space left on device\n"))


class StyleTest(unittest.TestCase):
    TEXTS = ("ink", "faint", "link", "peak", "bound")

    def colours(self):
        """Light, dark: names and values."""
        blocks = re.findall(r":root[^{]*\{([^}]*)\}", STYLE.read_text().split("/* ", 1)[1].split("*/", 1)[1])
        return [dict(re.findall(r"--pst-(\w+): (#\w{6}\w*|rgba\([^)]*\));", block)) for block in blocks[:2]]

    def luminance(self, colour):
        parts = [int(colour[k:k + 2], 16) / 255 for k in (1, 3, 5)]
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    def test_dark_has_every_colour(self):
        light, dark = self.colours()
        self.assertEqual(list(light), list(dark))
        self.assertLess(set(self.TEXTS), set(light))

    def test_texts_can_be_read(self):
        """The contrast that WCAG 2 wants of text, 4.5, on both backgrounds."""
        for colours in self.colours():
            for text in self.TEXTS:
                for behind in ("page", "panel"):
                    dark, bright = sorted(self.luminance(colours[name]) for name in (text, behind))
                    self.assertGreaterEqual((bright + 0.05) / (dark + 0.05), 4.5, (text, behind, colours))


class PerfettoTest(unittest.TestCase):
    def events(self, *arguments, **options):
        trace = json.loads(draw("perfetto", *arguments, **options))
        return trace["otherData"], trace["traceEvents"]

    def test_slices_and_load(self):
        plan = data_of(draw("html", 3, 2))
        about, events = self.events(3, 2)
        self.assertEqual((about["peak"], about["bound"]), (plan["peak"], plan["bound"]))
        begins = {event["id"]: event for event in events if event["ph"] == "b"}
        ends = {event["id"]: event for event in events if event["ph"] == "e"}
        self.assertEqual(sorted(begins), list(range(180)))
        self.assertEqual(sorted(ends), list(range(180)))
        for i, event in begins.items():
            self.assertEqual(event["name"], f"tensor {plan['id'][i]}")
            self.assertEqual(event["ts"], plan["begin"][i])
            self.assertEqual(event["pid"], plan["layer"][i] + 1)
            self.assertEqual(event["args"], {
                "address": plan["offset"][i], "bytes": plan["bytes"][i],
                "phase": plan["phases"][plan["phase"][i]],
                "micro_batch": plan["micro_batch"][i] - 1})
            self.assertEqual({**ends[i], "ph": "b", "args": 0, "ts": 0},
                             {**event, "args": 0, "ts": 0})
            self.assertEqual(ends[i]["ts"], plan["end"][i])
        loads = [(event["ts"], event["args"]["bytes"]) for event in events if event["ph"] == "C"]
        self.assertEqual(loads, [
            (t, sum(size for size, begin, end in zip(plan["bytes"], plan["begin"], plan["end"])
                    if begin <= t < end)) for t in range(360)])
        self.assertEqual(max(load for _, load in loads), plan["bound"])

    def test_a_process_per_layer(self):
        _, events = self.events(3, 2, title="a plan")
        names = [(event["pid"], event["args"]["name"]) for event in events
                 if event["ph"] == "M" and event["name"] == "process_name"]
        self.assertEqual(names, [(1, "a plan"), (2, "layer 0"), (3, "layer 1"), (4, "layer 2")])

    def test_titles_are_text(self):
        for title in BAD_TITLES:
            about, _ = self.events(title=title)
            self.assertEqual(about["title"], title)

    def test_limits(self):
        _, events = self.events(0, 1)
        event = [event for event in events if event["ph"] == "b"][0]
        self.assertEqual(event["name"], f"tensor {2 ** 64 - 1}")
        self.assertEqual(event["args"], {"address": (1 << 61) + 1, "bytes": 1 << 62})
        self.assertEqual({event["pid"] for event in events}, {1})
        self.assertEqual(sum(event["ph"] == "M" for event in events), 1)
        loads = [(event["ts"], event["args"]["bytes"]) for event in events if event["ph"] == "C"]
        self.assertEqual(loads, [(0, 1 << 62), (1, (1 << 62) + 512), ((1 << 53) + 1, 0)])
        _, events = self.events(0, 0)
        self.assertEqual(len(events), 1)


unittest.main(argv=sys.argv[:1])
