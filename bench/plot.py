#!/usr/bin/env python3
"""Draws reports of pagestash-bench as SVG: bandwidth over size, over SMs and over page size, skew
and ring order, and a GEMM running beside the stash."""
import argparse
import io
import json
import math
import os
import sys

DONE, NOTHING, USAGE, BAD_FILE, ABSENT = range(5)
SCHEMA_VERSION = 2
# Okabe and Ito: told apart by colour-blind readers; markers and dashes tell them apart in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "os^DvPX"
DASHES = ("-", "--", "-.", ":")
OPS = ("stash", "restore")
BANDWIDTH = "GB/s, live bytes (10⁹ a second)"
COUNT, TEXT, REAL = "a whole number", "text", "a number or null"
ROW_FIELDS = {"op": TEXT, "sweep": TEXT, "state": TEXT, "backend": TEXT, "pattern": TEXT,
              "ring": TEXT, "bytes": COUNT, "num_sms": COUNT, "page_size": COUNT, "gbps": REAL,
              "seconds_min": REAL, "seconds_max": REAL}
OVERLAP_FIELDS = {"backend": TEXT, "num_sms": COUNT, "gemm_slowdown": REAL, "sm_share": REAL,
                  "start_delay_seconds": REAL}


class BadFile(Exception):
    """The text names file, field, value and what is allowed."""


# ---- reports


def fits(value, kind):
    if kind is TEXT:
        return isinstance(value, str)
    if isinstance(value, bool):
        return False
    if kind is COUNT:
        return isinstance(value, int) and 0 <= value < 1 << 63
    return value is None or (isinstance(value, (int, float)) and abs(value) < 1e18)


class Report:
    def __init__(self, path):
        self.path = path
        document = self._read()
        version = document.get("schema_version")
        if version != SCHEMA_VERSION:
            self._fail("schema_version", version, f"{SCHEMA_VERSION}, from pagestash-bench")
        self.name = self._object(document, "machine").get("device_name")
        if not fits(self.name, TEXT):
            self._fail("machine.device_name", self.name, TEXT)
        self.commit = str(document.get("commit"))
        self.rows = self._list(document, "rows", ROW_FIELDS)
        self.overlap = self._list(self._object(document, "overlap"), "rows", OVERLAP_FIELDS,
                                  "overlap.")
        self.a0 = self._a0(document)

    def _fail(self, field, value, wanted):
        raise BadFile(f"{self.path}: {field}: {json.dumps(value)[:60]}: wanted is {wanted}")

    def _read(self):
        def refuse(constant):
            raise ValueError(f"{constant} is not JSON")
        try:
            with open(self.path, encoding="utf-8") as file:
                document = json.load(file, parse_constant=refuse)
        except OSError as error:
            raise BadFile(f"{self.path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise BadFile(f"{self.path}: not JSON: {error}") from error
        if not isinstance(document, dict):
            self._fail("report", document, "an object")
        return document

    def _object(self, document, key):
        value = document.get(key)
        if not isinstance(value, dict):
            self._fail(key, value, "an object")
        return value

    def _list(self, document, key, fields, prefix=""):
        value = document.get(key)
        if not isinstance(value, list):
            self._fail(prefix + key, value, "a list")
        for i, row in enumerate(value):
            if not isinstance(row, dict):
                self._fail(f"{prefix}{key}[{i}]", row, "an object")
            for field, kind in fields.items():
                if field not in row or not fits(row[field], kind):
                    self._fail(f"{prefix}{key}[{i}].{field}", row.get(field), kind)
        return value

    def _a0(self, document):
        """GB/s of the best contiguous copy; None if it was not measured."""
        anchors = self._list(document, "anchors", {"name": TEXT, "gbps": REAL})
        index = document.get("a0")
        if index is None:
            return None
        if not fits(index, COUNT) or index >= len(anchors):
            self._fail("a0", index, "null or an index in anchors")
        return anchors[index]["gbps"]

    def select(self, sweep, op, state="cold"):
        return [row for row in self.rows
                if (row["sweep"], row["op"], row["state"]) == (sweep, op, state)
                and row["gbps"] is not None and row["bytes"] and row["page_size"]]


def label_reports(reports):
    """Short names that differ: the device's, with the commit and the file where they must."""
    for name in (lambda r: r.name, lambda r: f"{r.name} {r.commit}", lambda r: r.path):
        labels = [name(report) for report in reports]
        if len(set(labels)) == len(labels):
            break
    for report, label in zip(reports, labels):
        report.label = "".join(c if c.isprintable() else "?" for c in label)


# ---- drawing


class Canvas:
    """A row of panels with a common look. Draws nothing until save()."""

    def __init__(self, pyplot, titles, reports, share_y=True):
        self.figure, self.panels = pyplot.subplots(
            1, len(titles), figsize=(4.6 * len(titles), 3.6), sharey=share_y, squeeze=False)
        self.panels = self.panels[0]
        self.reports, self.series = reports, []
        self.several = len(reports) > 1
        for panel, title in zip(self.panels, titles):
            panel.set_title(title)
            panel.grid(True, color="#d0d0d0", linewidth=0.6)
            panel.spines[["top", "right"]].set_visible(False)

    def style(self, report, series):
        """Colour and marker tell series apart, dashes and filling reports."""
        if series not in self.series:
            self.series.append(series)
        number, turn = self.series.index(series), self.reports.index(report)
        colour = COLOURS[number % len(COLOURS)]
        return {"color": colour, "marker": MARKERS[number % len(MARKERS)],
                "linestyle": DASHES[turn % len(DASHES)],
                "markerfacecolor": "white" if turn % 2 else colour,
                "label": f"{report.label}, {series}" if self.several else series}

    def line(self, panel, report, series, points):
        points = sorted(points)
        panel.plot([x for x, _ in points], [y for _, y in points], markersize=4.5, linewidth=1.5,
                   **self.style(report, series))

    def a0(self, panel):
        for report in self.reports:
            if report.a0 is not None:
                name = f"A0, {report.label}" if self.several else "A0"
                panel.axhline(report.a0, color="#404040", linewidth=1.0, linestyle=(0, (6, 3)))
                panel.annotate(f"{name}: {report.a0:.4g}", (0.98, report.a0), (0, 2),
                               xycoords=("axes fraction", "data"), textcoords="offset points",
                               ha="right", fontsize=8, color="#404040",
                               bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0})

    def finish(self, xlabel, ylabels):
        for panel, ylabel in zip(self.panels, ylabels):
            panel.set_xlabel(xlabel)
            panel.set_ylabel(ylabel)
        handles = {label: handle for panel in self.panels
                   for handle, label in zip(*panel.get_legend_handles_labels())}
        columns = min(4, len(handles))
        self.figure.tight_layout(rect=(0, 0.06 * math.ceil(len(handles) / columns) + 0.02, 1, 1))
        self.figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=columns,
                           frameon=False)
        return self.figure


def size_axis(panel, values):
    """Powers of two, at most seven of them, written as sizes."""
    first, last = math.floor(math.log2(min(values)) + 0.1), math.ceil(math.log2(max(values)) - 0.1)
    ticks = [1 << power for power in range(first, last + 1, max(1, -(-(last - first) // 6)))]
    panel.set_xscale("log", base=2)
    panel.set_xticks(ticks, [size_text(value) for value in ticks])
    panel.minorticks_off()


def size_text(value):
    unit, name = next(pair for pair in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"),
                                        (1, "B")) if value >= pair[0])
    return f"{value // unit} {name}"


# ---- pictures: each gives a figure, or None when no report has rows for it


def over(pyplot, reports, sweep, xkey, xlabel, series_of):
    """Bandwidth of stash and restore over one key; series_of(report, op) gives (name, rows)."""
    found = {(report, op): [(name, rows) for name, rows in series_of(report, op) if rows]
             for report in reports for op in OPS}
    if not any(found.values()):
        return None
    canvas = Canvas(pyplot, OPS, reports)
    for panel, op in zip(canvas.panels, OPS):
        for report in reports:
            for name, rows in found[report, op]:
                canvas.line(panel, report, name, [(row[xkey], row["gbps"]) for row in rows])
        values = [row[xkey] for report in reports for _, rows in found[report, op] for row in rows]
        if xkey == "num_sms":
            panel.set_xlim(left=0)
        elif values:
            size_axis(panel, values)
        canvas.a0(panel)
    canvas.panels[0].set_ylim(bottom=0)  # once all lines stand: it ends the scaling of both panels
    return canvas.finish(xlabel, [BANDWIDTH, ""])


def draw_bytes(pyplot, reports):
    def series(report, op):
        return [(state, report.select("bytes", op, state)) for state in ("cold", "warm")]
    return over(pyplot, reports, "bytes", "bytes", "live bytes of the group", series)


def draw_num_sms(pyplot, reports):
    def series(report, op):
        rows = report.select("num_sms", op)
        return [(backend, [row for row in rows if row["backend"] == backend])
                for backend in sorted({row["backend"] for row in rows})]
    return over(pyplot, reports, "num_sms", "num_sms", "SM budget", series)


def draw_page_size(pyplot, reports):
    def series(report, op):
        return [(state, report.select("page_size", op, state)) for state in ("cold", "warm")]
    return over(pyplot, reports, "page_size", "page_size", "page size", series)


def draw_skew(pyplot, reports):
    """Medians, with bars from the slowest to the fastest sample."""
    def cases(report, op):
        rows = report.select("pattern", op) + report.select("ring", op)
        return {(row["sweep"], row[row["sweep"]]): row for row in rows
                if row["bytes"] and row["seconds_min"] and row["seconds_max"]}
    found = {(report, op): cases(report, op) for report in reports for op in OPS}
    keys = list(dict.fromkeys(key for rows in found.values() for key in rows))
    if not keys:
        return None
    canvas = Canvas(pyplot, OPS, reports)
    for panel, op in zip(canvas.panels, OPS):
        for number, report in enumerate(reports):
            shift = (number - (len(reports) - 1) / 2) * 0.2
            rows = [(keys.index(key) + shift, row) for key, row in found[report, op].items()]
            style = dict(canvas.style(report, "median, slowest and fastest"), linestyle="none",
                         color=COLOURS[number % len(COLOURS)])
            middle = [row["gbps"] for _, row in rows]
            ends = [[row["bytes"] / row[key] * 1e-9 for _, row in rows]
                    for key in ("seconds_max", "seconds_min")]
            spread = [[abs(y - end) for y, end in zip(middle, side)] for side in ends]
            panel.errorbar([x for x, _ in rows], middle, yerr=spread, markersize=5, capsize=3,
                           **style)
        panel.set_xticks(range(len(keys)), [f"{value}\n({sweep})" for sweep, value in keys],
                         rotation=35, ha="right", fontsize=8)
        canvas.a0(panel)
    canvas.panels[0].set_ylim(bottom=0)
    return canvas.finish("rows over segments (pattern); order of free pages (ring)",
                         [BANDWIDTH, ""])


def draw_overlap(pyplot, reports):
    if not any(report.overlap for report in reports):
        return None
    titles = ("GEMM beside a stash", "the stash beside a GEMM")
    canvas = Canvas(pyplot, titles, reports, share_y=False)
    slowdown, delay = canvas.panels
    for report in reports:
        for backend in sorted({row["backend"] for row in report.overlap}):
            rows = [row for row in report.overlap if row["backend"] == backend]
            for panel, key, scale in ((slowdown, "gemm_slowdown", 100),
                                      (delay, "start_delay_seconds", 1e6)):
                canvas.line(panel, report, backend, [(row["num_sms"], row[key] * scale)
                                                     for row in rows if row[key] is not None])
    shares = sorted({(row["num_sms"], row["sm_share"] * 100) for report in reports
                     for row in report.overlap if row["sm_share"] is not None})
    slowdown.plot([x for x, _ in shares], [y for _, y in shares], "x", color="#606060",
                  label="share of the SMs")
    for panel in canvas.panels:
        panel.axhline(0, color="#404040", linewidth=0.8)
        panel.set_xlim(left=0)
    return canvas.finish("SM budget of the stash", ["GEMM slower by, %", "start delayed by, µs"])


PICTURES = (("bandwidth", draw_bytes, "rows of sweep bytes"),
            ("num_sms", draw_num_sms, "rows of sweep num_sms"),
            ("page_size", draw_page_size, "rows of sweep page_size"),
            ("skew", draw_skew, "rows of sweep pattern or ring"),
            ("gemm", draw_overlap, "rows in overlap"))


# ---- the program


def load_pyplot():
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as pyplot
    # text stays text, ids come from the salt: the same report gives the same bytes
    pyplot.rcParams.update({"svg.hashsalt": "pagestash", "svg.fonttype": "none",
                            "text.parse_math": False, "font.family": "sans-serif",
                            "font.size": 9, "axes.axisbelow": True})
    return pyplot


def svg_of(pyplot, figure):
    text = io.BytesIO()
    figure.savefig(text, format="svg", facecolor="white",
                   metadata={"Date": None, "Creator": "pagestash bench/plot.py"})
    pyplot.close(figure)
    return text.getvalue()


def fail(code, text):
    print(f"plot.py: {text}", file=sys.stderr)
    return code


class Parser(argparse.ArgumentParser):
    def error(self, message):
        sys.exit(fail(USAGE, message))


def main(arguments):
    parser = Parser(
        prog="plot.py", description=__doc__, allow_abbrev=False,
        epilog="Writes bandwidth.svg, num_sms.svg, page_size.svg, skew.svg and gemm.svg, as far as "
        "the reports have rows for. Exit codes: 0 done; 1 nothing could be drawn or written; 2 "
        "usage; 3 a report is not what pagestash-bench writes; 4 matplotlib is absent.")
    parser.add_argument("--out", metavar="DIR", default=".", help="where to; made if absent (.)")
    parser.add_argument("reports", metavar="REPORT", nargs="+", help="from pagestash-bench --json")
    options = parser.parse_args(arguments)
    try:
        reports = [Report(path) for path in options.reports]
    except BadFile as error:
        return fail(BAD_FILE, str(error))
    label_reports(reports)
    try:
        pyplot = load_pyplot()
    except ImportError as error:
        return fail(ABSENT, f"matplotlib cannot be loaded: {error}")
    try:
        return draw(pyplot, reports, options.out)
    except OSError as error:
        return fail(NOTHING, f"--out {options.out}: {error.strerror}")


def draw(pyplot, reports, folder):
    os.makedirs(folder, exist_ok=True)
    drawn = 0
    for name, picture, needs in PICTURES:
        figure = picture(pyplot, reports)
        if figure is None:
            fail(DONE, f"{name}.svg skipped: no report has {needs}")
            continue
        with open(os.path.join(folder, f"{name}.svg"), "wb") as file:
            file.write(svg_of(pyplot, figure))
        drawn += 1
    return DONE if drawn else NOTHING


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
