#!/usr/bin/env python3
"""Whether a change made stash and restore slower: runs pagestash-bench of two builds in turn, on the host
device, and pairs what each round measured. Copies go by their time over that of a plain copy of the same
bytes, sampled in turn with them. The programs must be built alike."""
import json
import os
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
from common import script  # noqa: E402

SCHEMA_VERSION = 1
MOST = 1.02  # times the time of before
# a small cache keeps the anchor small
COPIES = ("--device", "host", "--quick", "--cache", "64MiB", "--bytes")


def measure(build, *arguments):
    """One report of a build's benchmark."""
    program = os.path.join(build, "bin", "pagestash-bench")
    done = subprocess.run([program, *arguments, "--json=-"], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise script.Stop(script.NO, f"{program}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def call_figures(report):
    """Seconds, and what ratios are made of: the same. Older reports have stashes only."""
    rows = report["call_cost"]["rows"]
    return {("call", row.get("call", "stash"), row["tensors"]): (row["ns_median"] * 1e-9,) * 2
            for row in rows}


def copy_figures(report, mib):
    """Seconds, and what ratios are made of: the time over that of the plain copy."""
    return {(row["op"], row["state"], mib): (row["seconds_median"], 1 / row["share_of_own_copy"])
            for row in report["rows"]}


def figures(build, mib):
    copies = measure(build, *COPIES, f"{mib}MiB")
    return {**call_figures(measure(build, "--call-cost")), **copy_figures(copies, mib)}


def run_rounds(builds, rounds, mib):
    """For each round the figures of before and after; they take turns to be first."""
    found = []
    for i in range(rounds):
        order = (0, 1) if i % 2 == 0 else (1, 0)
        pair = {which: figures(builds[which], mib) for which in order}
        found.append((pair[0], pair[1]))
    return found


def compare(found):
    """A dictionary for each figure of after: medians, and the median of the ratios of the rounds."""
    for key in found[0][1]:
        after = [pair[1][key][0] for pair in found]
        before = [pair[0][key][0] for pair in found if key in pair[0]]
        ratios = [pair[1][key][1] / pair[0][key][1] for pair in found if key in pair[0]]
        yield {"what": key[0], "of": key[1], "size": key[2], "seconds_after": statistics.median(after),
               "seconds_before": statistics.median(before) if before else None,
               "ratio": statistics.median(ratios) if ratios else None,
               "ratio_min": min(ratios, default=None), "ratio_max": max(ratios, default=None)}


def line(row):
    scale, unit = (1e9, "ns") if row["what"] == "call" else (1e3, "ms")
    size = f"{row['size']} tensors" if row["what"] == "call" else f"{row['size']} MiB"
    name = f"{row['what']:<8} {row['of']:<14} {size:<11}"
    if row["ratio"] is None:
        return f"{name} {'-':>10} {row['seconds_after'] * scale:10.3f} {unit}"
    start = f"{name} {row['seconds_before'] * scale:10.3f} {row['seconds_after'] * scale:10.3f} {unit}" \
            f" {row['ratio']:7.3f} ({row['ratio_min']:.3f} to {row['ratio_max']:.3f})"
    if row["what"] == "call":
        return start
    return f"{start} (<= {MOST}) {'reached' if row['ratio'] <= MOST else 'missed'}"


def main():
    parser = script.Parser("compare.py", SCHEMA_VERSION, description=__doc__)
    parser.add_argument("before", metavar="BEFORE", help="build folder, with bin/pagestash-bench")
    parser.add_argument("after", metavar="AFTER", help="the other build folder")
    parser.add_argument("--rounds", type=int, default=11, help="of both builds (%(default)s)")
    parser.add_argument("--mib", type=int, default=64, help="live MiB of a stash (%(default)s)")
    parser.add_json()
    options = parser.parse_args()
    parser.check_json(options.json)
    if options.rounds < 1 or options.mib < 1:
        parser.error("--rounds and --mib: allowed are 1 and more")
    rows = list(compare(run_rounds((options.before, options.after), options.rounds, options.mib)))
    if options.json != "-":
        print(f"{'':<35} {'before':>10} {'after':>10}      ratio, median of {options.rounds} rounds",
              *map(line, rows), sep="\n")
    if options.json:
        script.write_json({"schema_version": SCHEMA_VERSION, "rounds": options.rounds, "rows": rows},
                          options.json)
    return script.DONE


if __name__ == "__main__":
    script.run("compare.py", main)
