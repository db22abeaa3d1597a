"""What the tests of the command share: running it, and computing its figures a second time from the
trace and the formula in group.h alone."""
import contextlib
import csv
import math
import os
import random
import select
import subprocess
import tempfile
import unittest

import reports

BINARY = SOURCE = DEVICE = None  # set by test_cli.py
MIB = 1 << 20
TILE = 16 << 10


def run(*arguments, env=None, **options):
    """The command; its tables are held to 100 columns, but for what --compat repeats of another tool."""
    result = subprocess.run([BINARY, *map(str, arguments)], text=True, errors="surrogateescape",
                            capture_output=True, timeout=600,
                            env=dict(os.environ, **(env or {})), **options)
    if "--compat" not in arguments:
        reports.check_tables(result.stdout)
    return result


def run_measured(*arguments):
    """The exit code, the most memory that the command had, in bytes, and what it wrote to stdout."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        os.execv(BINARY, [BINARY, *map(str, arguments)])
    os.close(writing)
    with os.fdopen(reading) as output:
        text = output.read()
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10, text


def read_to_end(terminal):
    """What a terminal holds after its other side was closed: reads give parts, then EIO."""
    parts = []
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:
            part = b""
        if not part:
            return b"".join(parts).decode()
        parts.append(part)


def shown_on_terminal(*command, until=None):
    """What the command shows there, on stderr: all of it, or until the text comes, and then it is ended."""
    main, terminal = os.openpty()
    shown = b""
    with subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL, stderr=terminal) as process:
        os.close(terminal)
        with contextlib.suppress(OSError):  # the other side was closed, and all was read
            while until is None or until.encode() not in shown:
                if not select.select([main], [], [], 600)[0]:
                    break
                shown += os.read(main, 4096)
            process.kill()
    os.close(main)
    return shown.decode()


def up(value, unit):
    return -(-value // unit) * unit


def tensors_of(dtype, hidden, ffn):
    """(row bytes, rows per row) of each tensor of a layer"""
    def mx(width):
        return [(width, 1), (-(-width // 32), 1), (width, 1), (width, 32)]
    if dtype == "mxfp8":
        return mx(hidden) + [(4 * ffn, 1)] + mx(ffn) + [(4, 1)]
    return [(2 * hidden, 1), (4 * ffn, 1), (2 * ffn, 1), (4, 1)]


def usage(tensors, counts, page):
    """live bytes and pages of one stash"""
    live = stream = 0
    for row_bytes, den in tensors:
        sizes = [-(-count // den) * row_bytes for count in counts]
        live += sum(sizes)
        stream += up(sum(up(size, 16) for size in sizes), TILE)
    return live, -(-stream // page)


def live_of_pages(tensors, counts, page):
    """live bytes of each page of one stash, in the order of the byte stream"""
    live = {}
    end = 0
    for row_bytes, den in tensors:
        for count in counts:
            left = -(-count // den) * row_bytes
            end = up(end, 16)
            while left:
                part = min(left, page - end % page)
                live[end // page] = live.get(end // page, 0) + part
                end += part
                left -= part
        end = up(end, TILE)
    return [live.get(i, 0) for i in range(-(-end // page))]


def passes(kind, stages, stage, num):
    """(is forward, micro-batch) in the order in which a stage runs them."""
    forward = [(True, m) for m in range(num)]
    backward = [(False, m) for m in range(num)]
    if kind == "gpipe":
        return forward + backward
    if kind == "gpipe-reversed":
        return forward + backward[::-1]
    warm = min(stages - 1 - stage, num)
    steady = [one for pair in zip(forward[warm:], backward) for one in pair]
    return forward[:warm] + steady + backward[num - warm:]


class Order:
    """What the scheduler does with one chunk and sets of fixed addresses: by the words of
    docs/scheduler.md, without its program. Places are micro-batch * layers + layer."""

    def __init__(self, kind="1f1b", stages=1, stage=0, sources=2, destinations=2, ahead=0,
                 keeps_nothing=False):
        self.shape = kind, stages, stage
        self.sources, self.destinations = sources, destinations
        self.ahead = ahead or destinations
        self.keeps_nothing = keeps_nothing

    def visits(self, layers, num):
        for forward, micro_batch in passes(*self.shape, num):
            for layer in range(layers) if forward else reversed(range(layers)):
                yield forward, micro_batch * layers + layer

    def kept(self, visits):
        """Places whose source nobody writes before their backward."""
        writers = [place for forward, place in visits if forward]
        at = {visit: i for i, visit in enumerate(visits)}
        return {place for i, place in enumerate(writers)
                if not self.keeps_nothing and
                (i + self.sources >= len(writers) or
                 at[True, writers[i + self.sources]] > at[False, place])}

    def operations(self, layers, num):
        """("stash" or "restore", place) in the order of the calls."""
        visits = list(self.visits(layers, num))
        kept = self.kept(visits)
        waiting = [place for forward, place in visits if not forward and place not in kept]
        done, begun, ended, issued = [], 0, 0, 0  # done: forwards; others count restored backwards

        def issue(least=0):
            nonlocal issued
            while issued < len(waiting) and waiting[issued] in done and (
                    issued < least or (issued - ended < self.destinations and
                                       issued - begun < self.ahead)):
                yield "restore", waiting[issued]
                issued += 1
        for forward, place in visits:
            if forward:
                if place not in kept:
                    yield "stash", place
                done.append(place)
            elif place not in kept:
                yield from issue(least=begun + 1)
                begun += 1
                ended += 1
            yield from issue()

    def most_live(self, layers, num, payload):
        live = [0]
        for forward, place in self.visits(layers, num):
            live.append(live[-1] + (payload[place] if forward else -payload[place]))
        return max(live)


def high_water(operations, pages, payload):
    """Most pages in use at once, and the live bytes in them then."""
    best, in_use, live = (0, 0), 0, 0
    for what, place in operations:
        sign = 1 if what == "stash" else -1
        in_use += sign * pages[place]
        live += sign * payload[place]
        if in_use > best[0]:
            best = in_use, live
    return best


def tiers(stashes, pool, operations, offload=(0, 1), on_overflow="grow"):
    """What the pages of both tiers are used for. stashes: [iteration][place], the live bytes of each
    page; pool: device and host pages; operations: of an iteration."""
    pool = list(pool)
    keys = dict.fromkeys(("spilled", "offloaded", "displaced", "link_bytes", "steps_retried"), 0)
    grown = [0, 0]
    high = [0, 0]
    for iteration in stashes:
        sizes = [len(pages) for pages in iteration]
        missing = high_water(operations, sizes, sizes)[0] - sum(pool)
        if missing > 0:
            tier = ("grow", "retry").index(on_overflow)
            high[0], high[1] = [max(pair) for pair in zip(high, failed(operations, sizes, pool,
                                                                       offload))]
            pool[tier] += missing
            grown[tier] += missing
            keys["steps_retried"] += 1
        free = list(pool)
        held = {}
        for what, place in operations:
            if what == "restore":
                for tier in held.pop(place):
                    free[tier] += 1
                continue
            pages = iteration[place]
            wish = len(pages) * offload[0] // offload[1]
            held[place] = []
            for i, live in enumerate(pages):
                tier = 1 if i < wish else 0
                if free[tier] == 0:
                    tier = 1 - tier
                    keys["displaced" if i < wish else "spilled"] += 1
                elif tier == 1:
                    keys["offloaded"] += 1
                free[tier] -= 1
                keys["link_bytes"] += live * tier
                held[place].append(tier)
            high = [max(most, pool[i] - free[i]) for i, most in enumerate(high)]
    return {**keys, "grown_pages": grown[0], "grown_host_pages": grown[1],
            "high_water_pages": high[0], "high_water_host_pages": high[1]}


def failed(operations, sizes, pool, offload):
    """High-water marks of an iteration in which stashes fail: those take nothing."""
    free, held, high = list(pool), {}, [0, 0]
    for what, place in operations:
        if what == "restore":
            for tier, number in enumerate(held.pop(place)):
                free[tier] += number
            continue
        wanted = sizes[place]
        held[place] = [0, 0]
        if wanted <= sum(free):
            lead = min(wanted * offload[0] // offload[1], free[1])
            device = min(wanted - lead, free[0])
            held[place] = [device, wanted - device]
        free = [free[tier] - held[place][tier] for tier in (0, 1)]
        high = [max(high[tier], pool[tier] - free[tier]) for tier in (0, 1)]
    return high


def read(path):
    with open(path, newline="", encoding="ascii") as file:
        return [list(map(int, row)) for row in list(csv.reader(file))[1:]]


def expect_tiers(path, pool, dtype="bf16", hidden=1024, ffn=512, ep=1, rank=0, num_micro_batches=1,
                 page=256 << 10, layout="prefix", order=None, **policy):
    """tiers() of a file."""
    rows = read(path)
    local = (len(rows[0]) - 2) // ep
    counts = [row[2 + rank * local:2 + (rank + 1) * local] for row in rows]
    if layout == "prefix":
        counts = [[sum(row)] for row in counts]
    tensors = tensors_of(dtype, hidden, ffn)
    stashes = [live_of_pages(tensors, row, page) for row in counts]
    layers = max(row[1] for row in rows) + 1
    slots = layers * num_micro_batches
    operations = list((order or Order()).operations(layers, num_micro_batches))
    keys = tiers([stashes[i:i + slots] for i in range(0, len(stashes), slots)], pool, operations,
                 **policy)
    for name in ("spilled", "offloaded", "displaced"):
        keys[f"{name}_bytes"] = keys.pop(name) * page
    return keys


def recommended(pages, share):
    """The quantile, at the upper end of its bucket: 16 to each power of two from 32 on."""
    value = sorted(pages)[math.ceil(share * len(pages)) - 1]
    width = 2 ** max(0, value.bit_length() - 5)
    return min((value // width + 1) * width - 1, max(pages))


def expect(path, dtype="bf16", hidden=1024, ffn=512, ep=1, rank=0, layers=None, num_micro_batches=1,
           factor=None, page=256 << 10, steps=None, layout="prefix", order=None):
    """What the report must say, from the file alone."""
    order = order or Order()
    rows = read(path)
    layers = layers or max(row[1] for row in rows) + 1
    rows = [row for row in rows if row[1] < layers]
    experts = len(rows[0]) - 2
    local = experts // ep
    parts = local if layout == "segments" else 1

    def mine(row):
        counts = row[2 + rank * local:2 + (rank + 1) * local]
        return counts if layout == "segments" else [sum(counts)]
    mean = sum(sum(row[2:]) for row in rows) / (len(rows) * ep * parts)
    capacity = math.ceil(factor * mean) if factor else max(max(mine(row)) for row in rows)
    chosen = [row for row in rows if steps is None or steps[0] <= row[0] < steps[1]]
    slots = layers * num_micro_batches
    tensors = tensors_of(dtype, hidden, ffn)
    iterations = [[usage(tensors, mine(row), page) for row in chosen[i:i + slots]]
                  for i in range(0, len(chosen), slots)]
    operations = list(order.operations(layers, num_micro_batches))
    live = [order.most_live(layers, num_micro_batches, [place[0] for place in iteration])
            for iteration in iterations]
    used = [high_water(operations, [place[1] for place in iteration],
                       [place[0] for place in iteration]) for iteration in iterations]
    pages = [most for most, _ in used]
    top = pages.index(max(pages))
    tickets = order.most_live(layers, num_micro_batches, [1] * slots)
    visits = list(order.visits(layers, num_micro_batches))
    return {
        "moved": sum(place[0] for iteration in iterations for place in iteration),
        "iterations": len(iterations),
        "capacity_rows": max(capacity, 1),
        "visits": slots,
        "tickets": tickets,
        "kept_in_place": len(order.kept(visits)),
        "static_bytes": tickets * usage(tensors, [max(capacity, 1)] * parts, page)[0],
        "live_bytes_mean": math.floor(sum(live) / len(live) + 0.5),
        "live_bytes_max": max(live),
        "high_water_pages": max(pages),
        "predicted_pages": max(pages),
        "recommended_pages_p50": recommended(pages, 0.5),
        "recommended_pages_p99": recommended(pages, 0.99),
        "recommended_pages_all": max(pages),
        "waste_ratio": pages[top] * page / used[top][1] - 1 if pages[top] else None,
    }


def hidden_keys(report):
    """Figures of a replay that do not apply, which its text leaves out."""
    grows = report["options"]["on_overflow"] != "fail"
    hidden = set()
    if report["num_host_pages"] + report["grown_host_pages"] == 0:
        hidden |= {"num_host_pages", "grown_host_pages", "host_tier_bytes", "high_water_host_pages", "spilled_bytes",
                   "offloaded_bytes", "displaced_bytes", "link_bytes"}
    if not grows:
        hidden.add("grown_pages")
    if not grows and report["steps_lost"] == 0:
        hidden |= {"steps_retried", "steps_lost", "times_grown", "graphs_captured"}
    return hidden


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, content, name="trace.csv"):
        with open(self.path(name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return self.path(name)

    def trace(self, steps=4, layers=3, experts=8, high=60, first=0, seed=1):
        """A small trace with skewed and with empty experts."""
        draw = random.Random(seed)
        lines = ["step,layer," + ",".join(f"e{e}" for e in range(experts))]
        for step in range(first, first + steps):
            for layer in range(layers):
                counts = [draw.choice([0, draw.randrange(high), draw.randrange(4 * high)])
                          for _ in range(experts)]
                lines.append(",".join(map(str, [step, layer, *counts])))
        return self.write("\n".join(lines) + "\n")

    def refused(self, result, code, *words):
        """One line that says all of words, nothing on stdout."""
        self.assertEqual(result.returncode, code, result)
        self.assertEqual(result.stdout, "", result)
        self.assertEqual(result.stderr.count("\n"), 1, result)
        for word in words:
            self.assertIn(str(word), result.stderr)

    def replay(self, path, *flags, code=0):
        """Runs with --json; returns the object, having checked the text against it."""
        report = self.path("report.json")
        result = run("replay", "--routing", path, "--device", DEVICE, f"--json={report}", *flags)
        self.assertEqual(result.returncode, code, result)
        self.assertEqual(result.stderr == "", code == 0, result)
        self.assertEqual(os.listdir(self.folder).count("report.json"), 1)
        with open(report, encoding="utf-8") as file:
            text = file.read()
        self.assertTrue(text.endswith("}\n"))
        keys = reports.load(text)
        os.unlink(report)
        lines = result.stdout.splitlines()
        self.assertEqual(lines[-1], f"mismatched bytes: {keys['mismatched_bytes']}")
        self.assertNotIn("\033", result.stdout + result.stderr)
        hidden = hidden_keys(keys)
        for key, value in keys.items():
            if isinstance(value, int) and key != "schema_version":
                start = f"{key.replace('_', ' ')}: {value}"
                self.assertEqual(any(line.startswith(start) for line in lines), key not in hidden, start)
        self.assertFalse([line for line in lines if line.endswith(": -")])
        self.assertLessEqual(max(len(line) for line in lines[1:]), 100)  # the first has a path
        return keys
