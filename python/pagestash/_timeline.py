"""Pictures of a simulation: a plot of matplotlib, one HTML page, a table."""
import html

from . import _abi, _page
from ._checks import Error, listed, shown
from .schedule._words import LETTERS, key_of

_MOST_EVENTS = 20000
_LANES = ("main", "stash", "restore", "to host", "from host")
# Of each kind of event, as numbered in simulate.h: its name, its lane, its colour.
_KINDS = (("work", 0, "#7aa6c2"), ("recompute", 0, "#b79ec9"), ("stall", 0, "#d1495b"),
          ("bubble", 0, "#e8e8e8"), ("stash", 1, "#66a182"), ("restore", 2, "#edae49"),
          ("demote", 3, "#8d6a9f"), ("promote", 4, "#b08bbb"), ("swap out", 3, "#4f6d7a"),
          ("swap in", 4, "#88a0a8"))
_BACKWARD = "#3d6f8e"  # work of backwards
# The columns of the table of `pagestash simulate`: title, member of the stage's result, place in a pair or None.
_COLUMNS = (("passes", "num_passes", None), ("end", "end_ns", None), ("bubble", "bubble_ns", None),
            ("exp fwd", "exposed_forward_ns", None), ("exp bwd", "exposed_backward_ns", None),
            ("high water", "high_water", 0), ("host", "high_water", 1),
            ("demand", "demand_high_water", None), ("tickets", "num_tickets", None),
            ("faults", "num_faults", None))
_TABLE_WIDTH = 100


def _rows_in(simulation, unit, unit_ns):
    """Titles, and the figures of each rank, as text; of what applies, times in whole units."""
    stages = simulation.raw_stages
    columns = [["rank"] + [str(schedule.stage) for schedule in simulation.schedules]]
    for title, name, place in _COLUMNS:
        figures = [getattr(stage, name) if place is None else getattr(stage, name)[place]
                   for stage in stages]
        if title == "host" and not simulation.has_host_pages or title == "faults" and not any(figures):
            continue
        if name.endswith("_ns"):
            title, figures = f"{title} {unit}", [figure // unit_ns for figure in figures]
        columns.append([title, *map(str, figures)])
    return list(zip(*columns))


def _rows(simulation):
    """The rows, and how wide the columns are: times in the smallest unit with which the table fits."""
    for unit, unit_ns in (("ns", 1), ("us", 10**3), ("ms", 10**6), ("s", 10**9)):
        rows = _rows_in(simulation, unit, unit_ns)
        widths = [max(map(len, column)) for column in zip(*rows)]
        if sum(widths) + 2 * (len(widths) - 1) <= _TABLE_WIDTH:
            break
    return rows, widths


def table(simulation):
    """Text, columns aligned."""
    rows, widths = _rows(simulation)
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)


def _lane(event):
    return _KINDS[event.kind][1]


def _colour(event):
    is_backward = event.kind == _abi.PST_SIMULATED_WORK and event.visit.kind != 0
    return _BACKWARD if is_backward else _KINDS[event.kind][2]


def _by_stage(simulation, most):
    """Events of each stage, and whether some are left out."""
    events = simulation.raw_events()
    stages = [[] for _ in simulation.schedules]
    for event in events[:most] if most else events:
        stages[event.stage].append(event)
    return stages, bool(most) and len(events) > most


def _lanes_of(events):
    """Those that something happens on; main always."""
    used = {_lane(event) for event in events} | {0}
    return [lane for lane in range(len(_LANES)) if lane in used]


def _moves(event):
    return event.pages[0] + event.pages[1] > 0


def _levels(events):
    """(time, pages in use of both tiers) whenever they change; what comes at one time stays in the order
    in which the pool saw it."""
    changes = [(event.begin_ns if event.kind == _abi.PST_SIMULATED_DO_STASH else event.end_ns,
                sum(event.in_use)) for event in events if _moves(event)]
    return [(0, 0)] + sorted(changes, key=lambda change: change[0])


# ---- matplotlib ----

def plot(simulation, figure, numbers):
    """A pair of axes for each stage, a title above them, and beside them a legend."""
    try:
        import matplotlib
        from matplotlib import pyplot
    except ImportError:
        raise Error("plot: matplotlib is not installed (pip install matplotlib); to_html needs none") \
            from None
    if matplotlib.__version_info__ < (3, 7):
        raise Error(f"plot: matplotlib {matplotlib.__version__}: at least 3.7 is wanted")
    stages, _ = _by_stage(simulation, None)
    numbers = listed(range(len(stages)) if numbers is None else numbers, "plot: stages")
    if not numbers or not all(number in range(len(stages)) for number in numbers):
        raise Error(f"plot: stages {shown(numbers)}: allowed are 0 to {len(stages) - 1}")
    if figure is not None and not hasattr(figure, "subplots"):
        raise Error(f"plot: figure {shown(figure)}: a figure of matplotlib is wanted")
    if figure is None:
        figure = pyplot.figure(figsize=(12, 1.4 + 2.2 * len(numbers)))
    figure.figure.set_layout_engine("constrained")  # which makes room for the legend
    ink = pyplot.rcParams["text.color"]
    axes = figure.subplots(2 * len(numbers), 1, sharex=True, squeeze=False,
                           height_ratios=[3, 2] * len(numbers))[:, 0]
    unit, unit_ns = _unit_of(max([event.end_ns for events in stages for event in events], default=0))
    drawn = {}
    for i, number in enumerate(numbers):
        drawn |= _plot_lanes(axes[2 * i], stages[number], unit_ns, ink)
        axes[2 * i].set_title(f"stage {simulation.schedules[number].stage}", loc="left")
        times, levels = zip(*_levels(stages[number]))
        line, = axes[2 * i + 1].step([time / unit_ns for time in times], levels, where="post", color=ink)
        drawn["pages in use"] = line
        axes[2 * i + 1].set_ylabel("pages")
        axes[2 * i + 1].set_ylim(bottom=0)
    axes[-1].set_xlabel(f"time ({unit})")
    figure.suptitle(_title(simulation, stages))
    names = [name for name in ("forward", "backward", *(kind[0] for kind in _KINDS), "pages in use")
             if name in drawn]
    figure.legend([drawn[name] for name in names], names, loc="outside right center", frameon=False)
    return figure


def _unit_of(ns):
    """The largest unit in which a time is 10 or more."""
    units = (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))
    return next((unit for unit in units if ns >= 10 * unit[1]), units[-1])


def _title(simulation, stages):
    """The schedule; the most pages that a stage has in use, and which; the makespan."""
    one = simulation.schedules[0]
    words = ["own list of passes" if one.kind == "list" else one.kind, _many(one.num_stages, "stage")]
    if one.num_chunks > 1:
        words.append(_many(one.num_chunks, "chunk"))
    peaks = [max(level for _, level in _levels(events)) for events in stages]
    unit, unit_ns = _unit_of(simulation.makespan_ns)
    title = (f"{', '.join(words)}, {_many(one.num_micro_batches, 'micro-batch')}\npeak "
             f"{_many(max(peaks), 'page')} of {simulation.page_bytes / 1024:g} KiB on stage "
             f"{simulation.schedules[peaks.index(max(peaks))].stage}, makespan "
             f"{simulation.makespan_ns / unit_ns:.4g} {unit}")
    if simulation.deadlock:
        return title + ", deadlock"
    return title if simulation.fits else f"{title}\ndoes not fit, needs {_many(simulation.demand, 'page')}"


def _many(number, noun):
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('ch') else 's'}"


def _plot_lanes(axes, events, unit_ns, ink):
    """Draws them; of each kind of event that there is, one of its bars."""
    from matplotlib import colors
    lanes, drawn, bars = _lanes_of(events), {}, {}
    paper = colors.to_rgb(axes.get_facecolor())
    gap = [0.88 * p + 0.12 * i for p, i in zip(paper, colors.to_rgb(ink))]  # a bubble recedes in any style
    for event in events:
        span = (event.begin_ns / unit_ns, (event.end_ns - event.begin_ns) / unit_ns)
        name = _KINDS[event.kind][0]
        if event.kind == _abi.PST_SIMULATED_WORK:
            name = "forward" if event.visit.kind == 0 else "backward"
        colour = gap if event.kind == _abi.PST_SIMULATED_BUBBLE else _colour(event)
        bars.setdefault(name, (lanes.index(_lane(event)), colour, []))[2].append(span)
    for name, (lane, colour, spans) in bars.items():
        drawn[name] = axes.broken_barh(spans, (len(lanes) - 1 - lane + 0.1, 0.8), facecolor=colour,
                                       edgecolor=paper, linewidth=0.3)
    axes.set_yticks([len(lanes) - 0.5 - i for i in range(len(lanes))], [_LANES[n] for n in lanes])
    axes.set_ylabel("stream")
    return drawn


# ---- HTML ----

_WIDTH, _LEFT, _LANE, _PAGES = 1100, 90, 16, 50  # pixels


def fragment(simulation):
    """For notebooks: no script, no id."""
    return f'<div class="pst">{_page.style()}{_body(simulation)}</div>'


def page(simulation):
    """A whole page."""
    return _page.page("pagestash simulate", _body(simulation))


def _on_page(colour):
    """Of what fills a gap, which recedes on dark pages, too."""
    return "var(--pst-bubble)" if colour == _KINDS[_abi.PST_SIMULATED_BUBBLE][2] else colour


def _body(simulation):
    stages, leaves_out = _by_stage(simulation, _MOST_EVENTS)
    end = max([event.end_ns for events in stages for event in events], default=0) or 1
    body, top = [], 0
    for number, events in enumerate(stages):
        lines, top = _svg_stage(simulation.schedules[number].stage, events, end, top)
        body += lines
    note = f"<p>The first {_MOST_EVENTS} events are drawn.</p>" if leaves_out else ""
    if simulation.deadlock:
        note += f"<p>{html.escape(simulation.deadlock)}</p>"
    legend = " ".join(f'<span class="key"><i class="box" style="background:{_on_page(colour)}"></i> '
                      f"{name}</span>" for name, _, colour in
                      [("forward", 0, _KINDS[0][2]), ("backward", 0, _BACKWARD), *_KINDS[1:]])
    return (f"<p>{html.escape(repr(simulation))}</p>"
            f'<div class="wide"><svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top}" '
            f'viewBox="0 0 {_WIDTH} {top}">{"".join(body)}</svg></div><p>{legend}</p>{note}'
            f"{_html_table(simulation)}")


def _svg_stage(stage, events, end, top):
    scale = (_WIDTH - _LEFT - 10) / end
    lanes = _lanes_of(events)
    lines = [f'<text x="0" y="{top + 12}" font-weight="bold">stage {stage}</text>']
    for i, lane in enumerate(lanes):
        y = top + 18 + i * _LANE
        lines.append(f'<text x="0" y="{y + 11}">{_LANES[lane]}</text>')
    for event in events:
        y = top + 18 + lanes.index(_lane(event)) * _LANE
        width = max((event.end_ns - event.begin_ns) * scale, 0.5)
        stroke = ' stroke="#d00"' if event.fault else ""
        lines.append(f'<rect x="{_LEFT + event.begin_ns * scale:.2f}" y="{y}" width="{width:.2f}" '
                     f'height="{_LANE - 3}" fill="{_on_page(_colour(event))}"{stroke}>'
                     f"<title>{_words(event)}</title></rect>")
    top += 18 + len(lanes) * _LANE
    return lines + _svg_pages(_levels(events), end, scale, top), top + _PAGES + 14


def _svg_pages(levels, end, scale, top):
    most = max(level for _, level in levels)
    points, before = [], 0
    for time, level in levels + [(end, levels[-1][1])]:
        x = f"{_LEFT + time * scale:.2f}"
        for height in (before, level):
            points.append(f"{x},{top + _PAGES - (_PAGES - 4) * height / (most or 1):.2f}")
        before = level
    return [f'<text x="0" y="{top + 12}">pages</text><text x="50" y="{top + 12}">{most}</text>',
            f'<polyline points="{" ".join(points)}"/>']


def _words(event):
    key = key_of(event.visit)
    text = _KINDS[event.kind][0]
    if event.kind != _abi.PST_SIMULATED_BUBBLE:
        text += (f" {LETTERS[event.visit.kind]} of chunk {key.chunk}, layer {key.layer}, "
                 f"micro-batch {key.micro_batch}")
    text += f": {event.begin_ns} to {event.end_ns} ns"
    if _moves(event):
        text += f"; {sum(event.pages)} pages, then {sum(event.in_use)} in use"
    return text + ("; failed" if event.fault else "")


def _html_table(simulation):
    (head, *ranks), _ = _rows(simulation)
    titles = "".join(f"<th>{title}</th>" for title in head)
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in rank)}</tr>" for rank in ranks)
    return f"<table><tr>{titles}</tr>{rows}</table>"
