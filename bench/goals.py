#!/usr/bin/env python3
"""Judges reports of pagestash-bench and pagestash-schedule-bench: the worst figure of the run for each goal, whether that is
enough, and where it stood. A goal is reached or missed; either way the exit code is 0."""
import sys

sys.dont_write_bytecode = True
from common import script  # noqa: E402

SCHEMA_VERSION = 2
SCHEDULE_BENCH = "pagestash-schedule-bench"
MIB = 1 << 20
KIB = 1 << 10
OPS = ("stash", "restore")
TICKETS = ("take", "give", "take_captured", "give_captured")
FEW_SMS = 8
NO_HOST_TIER = "sweep host, or what it skipped"


def ratio(above, below):
    return None if above is None or below is None else above / below


def asked_mib(row):
    """The size that was asked for: live bytes are whole rows, a little fewer or more."""
    return round(row["bytes"] / MIB)


class Run:
    """One report, with the views of it that the goals are stated in."""

    def __init__(self, report):
        self.report = report
        self.is_host = report["machine"]["device"] == "host"
        self.num_sms = report["machine"]["num_sms"]
        self.rows = report["rows"]
        self.cold = [row for row in self.rows if row["state"] == "cold"]
        # a configuration has four rows: cold stash and restore, warm stash and restore
        self.configurations = [self.rows[i:i + 4] for i in range(0, len(self.rows), 4)]
        self.tier = report["host_tier"] or {"rows": [], "recovery": {
            "samples": 0, "unavailable": None, "mismatched_bytes": 0}}
        self.pairs = report["pairs"]

    def of_sweep(self, sweep, op=None):
        return [row for row in self.cold
                if row["sweep"] == sweep and op in (None, row["op"])]

    def whole_groups(self):
        """Rows of the pinned tier in which all pages lie there."""
        return [row for row in self.tier["rows"]
                if not row["part"] and row["offload_num"] == row["offload_den"]]


# ---- figures: pairs of value and place, of which the worst counts; None was not measured


def share_of_a0(low, high):
    def figures(run):
        return [(row["share_of_a0"], f"{row['op']} of {asked_mib(row)} MiB") for row in run.cold
                if row["sweep"] in ("bytes", "custom") and row["backend"] == "auto"
                and row["num_sms"] == run.num_sms and low <= asked_mib(row) < high]
    return figures


def usual(rows):
    return [row for row in rows if asked_mib(row) >= 64 and row["alignment"] == 16
            and row["page_size"] >= 64 * KIB and row["sweep"] != "pitch"]


def over_own_copy(run):
    return [(ratio(1, row["share_of_own_copy"]),
             f"{row['op']}, {row['sweep']}, {asked_mib(row)} MiB, {row['backend']}, "
             f"{row['num_sms']} SMs") for row in usual(run.cold)]


def on_host(key):
    def figures(run):
        return [(row[key], f"{row['op']}, {row['sweep']}, {asked_mib(row)} MiB, {row['state']}")
                for row in usual(run.rows)] if run.is_host else []
    return figures


def nodes(run):
    return [(stash["nodes"] + restore["nodes"], "one stash, one restore")
            for stash, restore, *_ in run.configurations]


def fewest_sms(run):
    """Of the budgets with which stash and restore come to 0.9 of A0; one figure."""
    pairs = [pair[:2] for pair in run.configurations if pair[0]["sweep"] == "num_sms"]
    enough = [(stash["num_sms"], stash["backend"]) for stash, restore in pairs
              if min(stash["share_of_a0"], restore["share_of_a0"]) >= 0.9]
    if not enough:
        return [(float("inf"), "no budget came to 0.9")] if pairs else []
    return [min(enough, key=lambda one: one[0])]


def bulk_over_ldg(run):
    rows = run.of_sweep("num_sms")
    ldg = {(row["num_sms"], row["op"]): row for row in rows if row["backend"] == "ldg"}
    return [(ldg[row["num_sms"], row["op"]]["seconds_median"] / row["seconds_median"],
             f"{row['op']} with {row['num_sms']} SMs") for row in rows
            if row["backend"] == "bulk" and row["num_sms"] <= 32
            and (row["num_sms"], row["op"]) in ldg]


def gemm_slowdown(run):
    return [(row["gemm_slowdown"] - row["sm_share"],
             f"{row['backend']} with {row['num_sms']} SMs")
            for row in run.report["overlap"]["rows"] if row["gemm_num_sms"] < run.num_sms]


def spread(sweep):
    """Of the seconds per byte over the rows of a sweep."""
    def figures(run):
        found = []
        for op in OPS:
            each = [row["seconds_median"] / row["bytes"] for row in run.of_sweep(sweep, op)
                    if row["bytes"]]
            if len(each) > 1:
                found.append((max(each) / min(each) - 1, op))
        return found
    return figures


def over_best_page_size(run):
    found = []
    for op in OPS:
        rows = run.of_sweep("page_size", op)
        best = min((row["seconds_median"] for row in rows), default=None)
        found += [(best / row["seconds_median"], f"{op}, pages of {row['page_size'] // KIB} KiB")
                  for row in rows if row["page_size"] >= 64 * KIB]
    return found


def empty_stash(run):
    anchors = run.report["anchors"]
    return [((row["seconds_median"] - anchors[row["anchors"]["empty_node"]]["seconds_median"])
             * 1e6, row["state"]) for row in run.rows
            if row["op"] == "stash" and "empty_node" in row["anchors"]]


def many_tensors(run):
    seconds = {(row["op"], row["tensors"]): row["seconds_median"]
               for row in run.of_sweep("tensors")}
    return [((seconds[op, 64] - seconds[op, 1]) * 1e6, op) for op in OPS
            if (op, 1) in seconds and (op, 64) in seconds]


def pitched_over_packed(run):
    """Each beside a copy of as many contiguous bytes, so that what the machine did meanwhile is in both."""
    rows = run.of_sweep("pitch")
    packed = {(row["op"], row["row_bytes"]): row["share_of_own_copy"] for row in rows
              if row["row_stride"] == row["row_bytes"]}
    return [(ratio(row["share_of_own_copy"], packed.get((row["op"], row["row_bytes"]))),
             f"{row['op']}, rows of {row['row_bytes']} every {row['row_stride']} bytes")
            for row in rows if row["row_stride"] != row["row_bytes"]]


def call_ns(calls, low, high):
    def figures(run):
        return [(row["ns_median"], f"{row['call']}, {row['tensors']} tensors")
                for row in run.report["call_cost"]["rows"]
                if row.get("call") in calls and low <= row["tensors"] <= high]
    return figures


def glu_speedup(run):
    return [(row["speedup"], f"{row['form']}, {row['bytes'] >> 20} MiB")
            for row in run.report.get("glu", [])]


def on_host_glu(run):
    return glu_speedup(run) if run.is_host else []


def no_call_cost(run):
    return run.report["call_cost"]["unavailable"] or "call_cost has no such row"


def differing_bytes(run):
    report = run.report
    parts = [*report["anchors"], *(one[0] for one in run.configurations),
             *report["overlap"]["rows"], *(row for row in run.tier["rows"] if row["op"] == "stash"),
             *report.get("glu", []), run.tier["recovery"], *([run.pairs] if run.pairs else [])]
    return [(sum(part["mismatched_bytes"] for part in parts), "all checks of this run")]


def moved_pages(run):
    return [(run.pairs["moved_pages"], "ordered pool, same history twice")] if run.pairs else []


def lost_pages(run):
    pairs = run.pairs
    return [(pairs["check_errors"] + pairs["faults"],
             f"errors and faults of {pairs['pairs']} pairs")] if pairs else []


def best_share(op, key, most_sms=None):
    """The best of the budgets that may be used, in the smallest pool; one figure."""
    def figures(run):
        found = [(row[key], f"{op} with {row['num_sms']} SMs") for row in run.whole_groups()
                 if row["op"] == op and row["num_sms"] <= (most_sms or run.num_sms)
                 and row["pool_pinned_bytes"] == run.tier["rows"][0]["pool_pinned_bytes"]
                 and row[key] is not None]
        return [max(found, key=lambda one: one[0])] if found else []
    return figures


def mixed_over_part(run):
    rows = [row for row in run.tier["rows"] if row["op"] == "stash"]
    parts = {(row["num_sms"], row["offload_num"] != 0): row["seconds_median"]
             for row in rows if row["part"]}
    return [(row["seconds_median"] / max(parts[row["num_sms"], False], parts[row["num_sms"], True]),
             f"{row['offload_num']}/{row['offload_den']} with {row['num_sms']} SMs, "
             f"pool of {row['pool_pinned_bytes'] // MIB} MiB") for row in rows
            if not row["part"] and row["offload_num"] != row["offload_den"]
            and {(row["num_sms"], False), (row["num_sms"], True)} <= set(parts)]


def large_pool(run):
    return [(small["seconds_median"] / large["seconds_median"],
             f"{large['op']} with {large['num_sms']} SMs, {large['pool_pinned_bytes'] // MIB} over "
             f"{small['pool_pinned_bytes'] // MIB} MiB")
            for small in run.whole_groups() for large in run.whole_groups()
            if (small["op"], small["num_sms"]) == (large["op"], large["num_sms"])
            and small["pool_pinned_bytes"] < large["pool_pinned_bytes"]]


def recovery(run):
    one = run.tier["recovery"]
    return [(one["seconds_median"] * 1e3, f"grow by {one['grown_bytes'] // MIB} MiB")] \
        if one["samples"] else []


# ---- the goals: id, what, figures, operator and bound, what it takes where nothing was measured

GOALS = (
    ("G1", "share of A0, 512 MiB and more", share_of_a0(512, float("inf")), ">=", 0.95,
     "sweep bytes has no 512 MiB in this run"),
    ("G1", "share of A0, 256 MiB", share_of_a0(256, 512), ">=", 0.93,
     "sweep bytes has no 256 MiB in this run"),
    ("G1", "share of A0, 64 MiB", share_of_a0(64, 256), ">=", 0.85,
     "sweep bytes has no 64 MiB in this run"),
    ("G1", "share of A0, 16 MiB", share_of_a0(16, 64), ">=", 0.65,
     "sweep bytes has no 16 MiB in this run"),
    ("G2", "seconds over own contiguous copy, 64 MiB and more", over_own_copy, "<=", 1.03,
     "no configuration of 64 MiB and more"),
    ("G3", "times the speed of the Triton peer", lambda run: [], ">=", 1.3,
     "bench/peers/run.py does; instead 0.93 of A0 suffices, see G1"),
    ("G3", "graph nodes of a layer", nodes, "<=", 2, "no configuration"),
    ("G4", "SMs that suffice for 0.9 of A0", fewest_sms, "<=", 48, "sweep num_sms"),
    ("G4", "speed of bulk over ldg, up to 32 SMs", bulk_over_ldg, ">=", 1,
     "sweep num_sms with bulk"),
    ("G5", "GEMM's slowdown beyond the stash's share of SMs", gemm_slowdown, "<=", 0.03,
     lambda run: run.report["overlap"]["unavailable"] or "sweep gemm"),
    ("G7", "spread of time over row distributions", spread("pattern"), "<=", 0.03,
     "sweep pattern"),
    ("G7", "spread of time over orders of the ring", spread("ring"), "<=", 0.03, "sweep ring"),
    ("G8", "speed over that of the best page size, from 64 KiB", over_best_page_size, ">=", 0.95,
     "sweep page_size"),
    ("G9", "us of an empty stash over an empty node", empty_stash, "<=", 1.5, "sweep pattern"),
    ("G9", "us of 64 tensors over one of the same bytes", many_tensors, "<=", 2,
     "sweep tensors"),
    ("T1", "stash to host: share of the engine, at most 8 SMs",
     best_share("stash", "share_of_engine", FEW_SMS), ">=", 0.92, NO_HOST_TIER),
    ("T2", "restore from it: share of the best SM copy", best_share("restore", "share_of_sm_copy"),
     ">=", 0.95, NO_HOST_TIER),
    ("T3", "seconds of a mixed stash over its larger part", mixed_over_part, "<=", 1.1,
     NO_HOST_TIER),
    ("T4", "speed in 16 GiB of host pages over that in 1 GiB", large_pool, ">=", 0.9,
     "sweep host without --quick, and memory for both"),
    ("T5", "ms to grow by 1 GiB of device pages, and reset", recovery, "<=", 50,
     lambda run: run.tier["recovery"]["unavailable"] or NO_HOST_TIER),
    ("G11", "speed of pitched rows over packed ones", pitched_over_packed, ">=", 0.9,
     "sweep pitch"),
    ("C1", "ns of a stash or restore call, up to 6 tensors", call_ns(OPS, 1, 6), "<=", 150,
     no_call_cost),
    ("C1", "ns of a stash or restore call, up to 64 tensors", call_ns(OPS, 7, 64), "<=", 300,
     no_call_cost),
    ("C2", "ns to take a ticket of a slab, or give it back", call_ns(TICKETS, 1, 64), "<=", 1000,
     no_call_cost),
    ("G10", "differing bytes", differing_bytes, "<=", 0, ""),
    ("G10", "page ids that differ between replays", moved_pages, "<=", 0, "sweep pairs"),
    ("G10", "pages lost after random pairs", lost_pages, "<=", 0, "sweep pairs"),
    ("F1", "GLU with pages: times as fast as GLU, stash, restore and its backward", glu_speedup,
     ">=", 1.3, "sweep glu"),
    ("H2", "host: the same", on_host_glu, ">=", 1,
     lambda run: "sweep glu" if run.is_host else "for the host device"),
    ("H1", "host: share of A0, a memcpy; 64 MiB and more", on_host("share_of_a0"), ">=", 0.9,
     lambda run: "no configuration of 64 MiB and more" if run.is_host else "for the host device"),
    ("H1", "host: share of memcpy of the same bytes", on_host("share_of_own_copy"), ">=", 0.9,
     lambda run: "no configuration of 64 MiB and more" if run.is_host else "for the host device"),
)
OF_ANY_DEVICE = ("G10", "G11", "C1", "C2", "H1", "H2", "S1", "S2", "S3", "S4")


# ---- pagestash-schedule-bench


class ScheduleRun:
    """One report of it."""

    def __init__(self, report):
        self.hooks, self.pure = report["hooks"], report["pure"]
        self.hidden = report["hidden"] or {"device": "host", "ways": []}
        self.is_host = self.hidden["device"] == "host"

    def of_hooks(self, key):
        return [(row[key]["median"], f"{row['num_micro_batches']} micro-batches")
                for row in self.hooks["rows"]]

    def way(self, name):
        return next((way for way in self.hidden["ways"] if way["way"] == name), None)


def paged_visit(run):
    return run.of_hooks("paged_visit_ns") if run.hooks["has_cuda_path"] else []


def policies(run):
    return [(run.pure[key]["median"], words) for key, words in (
        ("policy_seconds", "enough memory"), ("scarce_policy_seconds", "3/4 of it"))]


def against_next(run):
    ours, other = run.way("2 + 2, two streams"), run.way("rule next, 2 + 2")
    return [(ours["exposed_us_of_a_visit"] - other["exposed_us_of_a_visit"], "2 + 2, two streams")] \
        if ours and other else []


def off_simulated(run):
    return [(abs(way["exposed_us_of_a_visit"] / way["simulated_us_of_a_visit"] - 1), way["way"])
            for way in run.hidden["ways"] if way["simulated_us_of_a_visit"]]


SCHEDULE_GOALS = (
    ("S1", "ns of a hook with nothing to enqueue", lambda run: run.of_hooks("hook_ns"), "<=", 150,
     ""),
    ("S2", "ns of a paged visit, launches' arguments as for cuda", paged_visit, "<=", 1500,
     "a library built with CUDA"),
    ("S3", "ns to compile a visit",
     lambda run: [(run.pure["compile_ns_of_a_visit"]["median"], f"{run.pure['visits']} visits")],
     "<=", 100, ""),
    ("S4", "s to solve for 61 layers on 16 ranks", policies, "<=", 2, ""),
    ("S5", "us of a visit exposed beyond rule next", against_next, "<=", 0, "--costs was given"),
    ("S6", "measured exposure, off the simulated one by", off_simulated, "<=", 0.15,
     "nothing is simulated to be exposed"),
)


def judge(run, goals=GOALS):
    """A dictionary for each goal, in the order of the table."""
    for name, what, figures, operator, bound, missing in goals:
        verdict = {"goal": name, "what": what, "operator": operator, "bound": bound,
                   "value": None, "reached": None, "where": None, "missing": None}
        if run.is_host and name not in OF_ANY_DEVICE:
            yield {**verdict, "missing": "a goal of GPUs"}
            continue
        worst = (max if operator == "<=" else min)(
            (one for one in figures(run) if one[0] is not None), key=lambda one: one[0],
            default=None)
        if worst is None:
            yield {**verdict, "missing": missing(run) if callable(missing) else missing}
        else:
            value, where = worst
            yield {**verdict, "value": value, "where": where,
                   "reached": value <= bound if operator == "<=" else value >= bound}


def line(verdict):
    start = f"{verdict['goal']:<3} {verdict['what']:<52} "
    if verdict["value"] is None:
        return f"{start}not measured here: {verdict['missing']}"
    return (f"{start}{verdict['value']:8.3f} ({verdict['operator']} {verdict['bound']:.4g}) "
            f"{'reached' if verdict['reached'] else 'missed':<7} {verdict['where']}")


def main():
    parser = script.Parser("goals.py", SCHEMA_VERSION, description=__doc__)
    parser.add_argument("report", metavar="REPORT", help="from pagestash-bench or -schedule-bench --json; - is stdin")
    parser.add_json()
    options = parser.parse_args()
    parser.check_json(options.json)
    report = script.read_report(options.report, SCHEMA_VERSION, {SCHEDULE_BENCH: 1})
    is_schedule = report.get("command") == SCHEDULE_BENCH
    verdicts = list(judge(ScheduleRun(report), SCHEDULE_GOALS) if is_schedule else judge(Run(report)))
    if options.json:
        script.write_json({"schema_version": 1, "goals": verdicts}, options.json)
    if options.json != "-":
        print("goals: the worst of this run", *map(line, verdicts), sep="\n")
    return script.DONE


if __name__ == "__main__":
    script.run("goals.py", main)
