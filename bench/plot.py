#!/usr/bin/env python3
"""Draws reports of pagestash-bench as SVG: bandwidth over size, over SMs, over page size, over skew and
ring order, and what a GEMM and a stash beside it cost each other."""
import io
import math
import os
import sys
import textwrap

sys.dont_write_bytecode = True
from common import script  # noqa: E402

SCHEMA_VERSION = 2
# Okabe and Ito: told apart by colour-blind readers; markers and dashes tell them apart in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "os^DvPX"
DASHES = ("-", "--", "-.", ":")
A0_DASHES = ((6, 3), (2, 2), (8, 2, 2, 2), (1, 3))
OPS = ("stash", "restore")
BANDWIDTH = "GB/s, live bytes (10⁹ a second)"


class Report:
    def __init__(self, path):
        self.path, self.document = path, script.read_report(path, SCHEMA_VERSION)
        self.rows, self.overlap = self.document["rows"], self.document["overlap"]["rows"]
        a0 = self.document["a0"]
        self.a0 = None if a0 is None else self.document["anchors"][a0]

    def select(self, sweep, op, state="cold"):
        return [row for row in self.rows
                if (row["sweep"], row["op"], row["state"]) == (sweep, op, state)
                and row["gbps"] and row["bytes"]]

    def origin(self):
        machine = self.document["machine"]
        return printable(f"{machine['device_name']}; {machine['cpu']}, {machine['num_cpus']} CPUs; "
                         f"commit {self.document['commit']}")


def printable(text):
    return "".join(c if c.isprintable() else "?" for c in text)


def label(reports):
    """Short names that differ: the device's, with the commit and the file where they must."""
    for name in (lambda r: r.document["machine"]["device_name"],
                 lambda r: f"{r.document['machine']['device_name']} {r.document['commit']}",
                 lambda r: r.path):
        labels = [name(report) for report in reports]
        if len(set(labels)) == len(labels):
            break
    for report, text in zip(reports, labels):
        report.label = printable(text)


class Canvas:
    """Two panels with a common look; above them what is drawn and where it was measured, below them the
    legend: nothing but curves stands in the panels."""

    def __init__(self, pyplot, title, panels, reports, share_y=True):
        self.figure, self.panels = pyplot.subplots(1, 2, sharey=share_y)
        self.title = title
        self.reports, self.series = reports, []
        for panel, name in zip(self.panels, panels):
            panel.set_title(name)
            panel.grid(True, color="#d0d0d0", linewidth=0.6)
            panel.spines[["top", "right"]].set_visible(False)

    def name(self, report, text, form="{0}, {1}"):
        return form.format(report.label, text) if len(self.reports) > 1 else text

    def style(self, report, series):
        """Colour and marker tell series apart, dashes and filling reports."""
        if series not in self.series:
            self.series.append(series)
        number, turn = self.series.index(series), self.reports.index(report)
        colour = COLOURS[number % len(COLOURS)]
        return {"color": colour, "marker": MARKERS[number % len(MARKERS)],
                "linestyle": DASHES[turn % len(DASHES)],
                "markerfacecolor": "white" if turn % 2 else colour,
                "label": self.name(report, series)}

    def line(self, panel, report, series, points):
        panel.plot(*zip(*sorted(points)), markersize=4.5, linewidth=1.5,
                   **self.style(report, series))

    def a0(self, panel):
        for number, report in enumerate(self.reports):
            if report.a0 is None:
                continue
            gbps, gib = report.a0["gbps"], report.a0["bytes"] / (1 << 30)
            panel.axhline(gbps, color="#404040", linewidth=1.0,
                          linestyle=(0, A0_DASHES[number % len(A0_DASHES)]),
                          label=self.name(report, f"A0 = {gbps:.4g} GB/s, the fastest plain copy "
                                          f"({report.a0['name']} of {gib:.3g} GiB)", "{0}: {1}"))

    def head(self):
        lines = [self.name(report, report.origin(), "{0}: {1}") for report in self.reports]
        return [part for line in lines for part in textwrap.wrap(line, 110)]

    def legend(self):
        """As many columns as there is room for."""
        handles = {label: handle for panel in self.panels
                   for handle, label in zip(*panel.get_legend_handles_labels())}
        for columns in range(min(4, len(handles)), 0, -1):
            legend = self.figure.legend(handles.values(), handles.keys(), loc="lower center",
                                        ncol=columns, frameon=False, borderaxespad=0.3)
            extent = legend.get_window_extent()
            if extent.width < 0.97 * self.figure.bbox.width or columns == 1:
                return extent.height / self.figure.dpi
            legend.remove()

    def finish(self, xlabel, ylabels=(BANDWIDTH, "")):
        for panel, ylabel in zip(self.panels, ylabels):
            panel.set_xlabel(xlabel)
            panel.set_ylabel(ylabel)
        head, wide, panels = self.head(), 9.2, 3.3  # inches
        self.figure.set_size_inches(wide, panels)
        below, above = self.legend() + 0.1, 0.36 + 0.16 * len(head)
        high = panels + below + above
        self.figure.set_size_inches(wide, high)
        self.figure.text(0.01, 1 - 0.08 / high, self.title, fontsize=12, fontweight="bold", va="top")
        for number, line in enumerate(head):
            self.figure.text(0.01, 1 - (0.34 + 0.16 * number) / high, line, fontsize=8,
                             color="#404040", va="top")
        self.figure.tight_layout(rect=(0, below / high, 1, 1 - above / high))
        return self.figure


def size_axis(panel, values):
    """Powers of two, at most seven of them, written as sizes."""
    first, last = math.floor(math.log2(min(values)) + 0.1), math.ceil(math.log2(max(values)) - 0.1)
    powers = range(first, last + 1, max(1, -(-(last - first) // 6)))
    units = ("B", "KiB", "MiB", "GiB")
    texts = [f"{1 << power - min(power // 10, 3) * 10} {units[min(power // 10, 3)]}"
             for power in powers]
    panel.set_xscale("log", base=2)
    panel.set_xticks([1 << power for power in powers], texts)
    panel.minorticks_off()


# ---- pictures: each gives a figure, or None when no report has rows for it


def over(sweep, key, title, xlabel):
    """Bandwidth over one key: a line for each state, over SMs for each backend, cold."""
    def series(report, op):
        if key != "num_sms":
            return {state: report.select(sweep, op, state) for state in ("cold", "warm")}
        rows = report.select(sweep, op)
        return {name: [row for row in rows if row["backend"] == name]
                for name in sorted({row["backend"] for row in rows})}

    def draw(pyplot, reports):
        if not any(report.select(sweep, op) for report in reports for op in OPS):
            return None
        canvas = Canvas(pyplot, title, OPS, reports)
        for panel, op in zip(canvas.panels, OPS):
            lines = [(report, name, rows) for report in reports
                     for name, rows in series(report, op).items() if rows]
            for report, name, rows in lines:
                canvas.line(panel, report, name, [(row[key], row["gbps"]) for row in rows])
            if key == "num_sms":
                panel.set_xlim(left=0)
            else:
                size_axis(panel, [row[key] for *_, rows in lines for row in rows])
            canvas.a0(panel)
        canvas.panels[0].set_ylim(bottom=0)  # once all lines stand: it ends the scaling of both
        return canvas.finish(xlabel)
    return draw


def draw_skew(pyplot, reports):
    """Medians, with bars from the slowest to the fastest sample."""
    found = {(report, op): {(row["sweep"], row[row["sweep"]]): row
                            for sweep in ("pattern", "ring") for row in report.select(sweep, op)}
             for report in reports for op in OPS}
    keys = list(dict.fromkeys(key for rows in found.values() for key in rows))
    if not keys:
        return None
    canvas = Canvas(pyplot, "Bandwidth over skew and over the order of free pages", OPS, reports)
    for panel, op in zip(canvas.panels, OPS):
        for number, report in enumerate(reports):
            rows = found[report, op]
            places = [keys.index(key) + (number - (len(reports) - 1) / 2) * 0.2 for key in rows]
            spread = [[abs(row["gbps"] - row["bytes"] / row[end] * 1e-9) for row in rows.values()]
                      for end in ("seconds_max", "seconds_min")]
            style = dict(canvas.style(report, "median, slowest and fastest"), linestyle="none",
                         color=COLOURS[number % len(COLOURS)])
            panel.errorbar(places, [row["gbps"] for row in rows.values()], yerr=spread,
                           markersize=5, capsize=3, **style)
        panel.set_xticks(range(len(keys)), [f"{value}\n({sweep})" for sweep, value in keys],
                         rotation=35, ha="right", fontsize=8)
        canvas.a0(panel)
    canvas.panels[0].set_ylim(bottom=0)
    return canvas.finish("rows over segments (pattern); order of free pages (ring)")


def draw_gemm(pyplot, reports):
    if not any(report.overlap for report in reports):
        return None
    canvas = Canvas(pyplot, "What a GEMM and a stash cost each other",
                    ("GEMM beside a stash", "the stash beside a GEMM"), reports, False)
    for report in reports:
        for backend in sorted({row["backend"] for row in report.overlap}):
            for panel, key, scale in zip(canvas.panels, ("gemm_slowdown", "start_delay_seconds"),
                                         (100, 1e6)):
                canvas.line(panel, report, backend,
                            [(row["num_sms"], row[key] * scale) for row in report.overlap
                             if row["backend"] == backend])
    shares = sorted({(row["num_sms"], row["sm_share"] * 100)
                     for report in reports for row in report.overlap})
    canvas.panels[0].plot(*zip(*shares), "x", color="#606060", label="share of the SMs")
    for panel in canvas.panels:
        panel.axhline(0, color="#404040", linewidth=0.8)
        panel.set_xlim(left=0)
    return canvas.finish("SM budget of the stash", ("GEMM slower by, %", "start delayed by, µs"))


PICTURES = {
    "bandwidth": (over("bytes", "bytes", "Bandwidth over live bytes", "live bytes of the group"),
                  "rows of sweep bytes"),
    "num_sms": (over("num_sms", "num_sms", "Bandwidth over the SM budget", "SM budget"),
                "rows of sweep num_sms"),
    "page_size": (over("page_size", "page_size", "Bandwidth over the page size", "page size"),
                  "rows of sweep page_size"),
    "skew": (draw_skew, "rows of sweep pattern or ring"),
    "gemm": (draw_gemm, "rows in overlap"),
}


def load_pyplot():
    try:
        import matplotlib
        matplotlib.use("svg")
        import matplotlib.pyplot as pyplot
    except ImportError as error:
        raise script.Stop(script.ABSENT, f"matplotlib cannot be loaded: {error}") from error
    # text stays text, ids come from the salt: the same report gives the same bytes
    pyplot.rcParams.update({"svg.hashsalt": "pagestash", "svg.fonttype": "none",
                            "text.parse_math": False, "font.family": "sans-serif",
                            "font.size": 9, "axes.axisbelow": True})
    return pyplot


def draw(pyplot, reports, folder):
    """Names of the files; says what is skipped."""
    drawn = []
    os.makedirs(folder, exist_ok=True)
    for name, (picture, needs) in PICTURES.items():
        figure, text = picture(pyplot, reports), io.BytesIO()
        if figure is None:
            print(f"plot.py: {name}.svg skipped: no report has {needs}", file=sys.stderr)
            continue
        # white in dark pages, too: an SVG in a page of Markdown does not know the page's colours
        figure.savefig(text, format="svg", facecolor="white",
                       metadata={"Date": None, "Creator": "pagestash bench/plot.py"})
        pyplot.close(figure)
        with open(os.path.join(folder, f"{name}.svg"), "wb") as file:
            file.write(text.getvalue())
        drawn.append(f"{name}.svg")
    return drawn


def main():
    parser = script.Parser(
        "plot.py", SCHEMA_VERSION, description=__doc__,
        epilog="Exit codes: 0 done; 1 nothing could be drawn or written; 2 usage; 3 a report is not "
        "what pagestash-bench writes; 4 matplotlib is absent.")
    parser.add_argument("--out", metavar="DIR", default=".", help="where to; made if absent (.)")
    parser.add_argument("reports", metavar="REPORT", nargs="+", help="from pagestash-bench --json")
    parser.add_json()
    options = parser.parse_args()
    parser.check_json(options.json)
    try:
        reports = [Report(path) for path in options.reports]
        label(reports)
        drawn = draw(load_pyplot(), reports, options.out)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise script.Stop(script.BAD_FILE, f"not a report of pagestash-bench: "
                          f"{type(error).__name__}: {error}") from error
    if options.json:
        script.write_json({"schema_version": 1, "pictures": drawn}, options.json)
    return script.DONE if drawn else script.NO


if __name__ == "__main__":
    script.run("plot.py", main)
