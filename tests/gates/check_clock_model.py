#!/usr/bin/env python3
"""check_clock_model.py ROOT BUILD [--short | --table | --record | --self-test] [--kernels FOLDER]

Holds the kernels against tests/gates/clock.json by the clock over their PTX (tests/ptx/README.md), which is a
model. BUILD is the folder with clock_main and kernels-*.ptx. Fails where a launch takes more than 3 % more
cycles than recorded, in whole, to its first load, after its last store or per tile, or needs more trips to
memory or membars; where another backend copies faster than the one that is picked; where it misses a goal that is not
among those known to be missed, or by 3 % more than is known; and where a launch that is recorded was not timed.
--short      a few cases, which take seconds
--table      prints all figures, to read; --json PREFIX also writes the raw lines, a file each architecture
--record     writes clock.json anew; goals that are met now are no longer known to be missed
--self-test  plants a membar and a trip in the PTX, and wants both found
--kernels    other PTX, of another commit say
Exit 77: no nvcc, so no PTX.
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ARCHITECTURES = (80, 90, 100)
SLOWER = 1.03
CYCLES = ("cycles", "first_load", "after_store", "tile_cycles")
COUNTS = ("trips_before", "trips_after", "trips", "membars_before", "membars_after", "membars")
KEY = ("architecture", "op", "backend", "pool", "case")
STASHES, RESTORES = ("stash", "glu_forward"), ("restore", "glu_backward")


def goals_of(record):
    """(figure, is it met, what is wanted) of the goals that are this launch's: of paging alone."""
    _, op, backend, pool, case = (record[name] for name in KEY)
    if pool != "ordered" or op not in STASHES + RESTORES:
        return
    if case.startswith("live0"):
        yield "over_empty_us", record["over_empty_us"] <= 2.0, "at most 2.0"
        return
    if case != "pages1024":
        after = 3 if op in STASHES else 4
        yield "trips_before", record["trips_before"] <= 3, "at most 3"
        yield "trips_after", record["trips_after"] <= after, f"at most {after}"
    if case.endswith("_all_sms"):  # they share DRAM
        return
    if backend == "bulk":
        yield "gb_per_s", record["gb_per_s"] >= 100, "at least 100"
    if backend == "ldg":
        yield "duty", record["duty"] >= 0.75, "at least 0.75"


def key_of(record):
    return "/".join(str(record[name]) for name in KEY)


def time_one(root, program, ptx, options):
    done = subprocess.run([program, root / "tests/ptx/architectures.txt", *options, "--kernels", ptx],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"clock_main failed on {ptx}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def time_all(root, build, folder, options):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        parts = pool.map(lambda a: time_one(root, build / "clock_main", folder / f"kernels-{a}.ptx",
                                            options), reversed(ARCHITECTURES))
        return [record for part in reversed(list(parts)) for record in part]


def slower_choices(records):
    """Where another backend copies faster than the one that host/stash/launch.c picks."""
    cycles = {key_of(r): r["cycles"] for r in records}
    for record in records:
        _, op, backend, pool, case = (record[name] for name in KEY)
        picked = record["picked"]
        chosen = cycles.get(key_of({**record, "backend": picked}))
        if op == "migrate" or pool != "ordered" or case.startswith("live0") or not chosen:
            continue
        if record["cycles"] * SLOWER < chosen:
            yield f"{key_of(record)}: {backend} is faster than {picked}, which host/stash/launch.c picks"


def misses_more(name, now, known):
    """Of a goal that is missed: by more than SLOWER beyond what is known."""
    more_is_worse = name in ("over_empty_us", "trips_before", "trips_after")
    return now > known * SLOWER if more_is_worse else now * SLOWER < known


def compare(records, recorded, is_short=False):
    """Sentences about what is worse, and about what is so much better that it should be recorded."""
    worse, better = [], []
    launches, known = recorded["launches"], recorded["known"]
    timed = {key_of(record) for record in records}
    worse += [f"{key} is recorded and was not timed" for key in launches if not is_short and key not in timed]
    if not records:
        worse.append("no launch was timed")
    for record in records:
        key = key_of(record)
        if key not in launches:
            worse.append(f"{key} is not recorded")
            continue
        for name in (*CYCLES, *COUNTS):
            now, before = record[name], launches[key][name]
            limit = before * (SLOWER if name in CYCLES else 1)
            sentence = f"{key}: {name} {now}, recorded {before}"
            if now > limit:
                worse.append(sentence)
            elif now * (SLOWER if name in CYCLES else 1) < before:
                better.append(sentence)
        for name, is_met, wanted in goals_of(record):
            missed = f"{key} {name}"
            if not is_met and (missed not in known or misses_more(name, record[name], known[missed])):
                worse.append(f"{missed} {record[name]}, wanted is {wanted}")
            elif is_met and missed in known:
                better.append(f"{missed} {record[name]} is met and still among the known misses")
    return worse + list(slower_choices(records)), better


def record_all(path, records, known):
    missed = {f"{key_of(r)} {name}": r[name]
              for r in records for name, is_met, _ in goals_of(r) if not is_met}
    lines = [f'  {json.dumps(key_of(r))}: {json.dumps({n: r[n] for n in (*CYCLES, *COUNTS)})}'
             for r in records]
    kept = [f"  {json.dumps(key)}: {json.dumps(missed[key])}" for key in sorted(known) if key in missed]
    path.write_text('{"known": {\n' + ",\n".join(kept) + '\n},\n"launches": {\n' + ",\n".join(lines)
                    + "\n}}\n")
    print(f"{path.name}: {len(lines)} launches, {len(kept)} goals known to be missed")


def print_table(records):
    print("A model, see tests/ptx/README.md: nothing here was measured. Cycles, and what they come to.")
    architecture = None
    for r in records:
        if r["architecture"] != architecture:
            architecture = r["architecture"]
            print(f"\ncompute_{architecture}\n"
                  f"{'op':13}{'backend':8}{'pool':11}{'case':16}{'us':>9}{'empty+us':>9} |{'first':>7}"
                  f"{'trips':>6}{'membar':>7} |{'after':>7}{'trips':>6}{'membar':>7} |{'tile':>9}"
                  f"{'B/cycle':>8}{'GB/s':>7}{'duty':>6} |{'slots':>9}")
        print(f"{r['op']:13}{r['backend']:8}{r['pool']:11}{r['case']:16}{r['microseconds']:9.2f}"
              f"{r['over_empty_us']:9.2f} |{r['first_load']:7.0f}{r['trips_before']:6}"
              f"{r['membars_before']:7} |{r['after_store']:7.0f}{r['trips_after']:6}"
              f"{r['membars_after']:7} |{r['tile_cycles']:9.1f}{r['bytes_per_cycle']:8.1f}"
              f"{r['gb_per_s']:7.1f}{r['duty']:6.2f} |{r['slots']:9}")


PLANTED = {
    "membar": "fence.acq_rel.gpu;",
    # two loads, the second one's address from the first, and everybody waits for it
    "trip": "{{.reg .b64 %planted<3>;\n.reg .pred odd;\nld.param.u64 %planted0, [{args}+{address}];\n"
            "ld.relaxed.gpu.global.u64 %planted1, [%planted0];\nand.b64 %planted1, %planted1, 0;\n"
            "add.s64 %planted0, %planted0, %planted1;\n"
            "ld.relaxed.gpu.global.u64 %planted2, [%planted0];\n"
            "setp.ne.s64 odd, %planted2, %planted2;\n@odd ret;\n}}",
}


# Of the self-test: a move's kernel, and one each of those that compute, control and fill; what of a membar is
# more than 3 % of the launch; and at which byte of its arguments an address stands.
TRIED = {
    "stash_ldg": (["--case", "live0", "--op", "stash", "--backend", "ldg"], ("membars ", "cycles "), 0),
    "glu_forward_ldg": (["--case", "tiles4", "--op", "glu_forward"], ("membars ", "first_load "), 0),
    "reset": (["--case", "pages4096", "--op", "reset"], ("membars ", "cycles "), 0),
    "fill": (["--case", "tiles16", "--op", "fill"], ("membars ",), 48),
}


def only(text, kernel):
    """The PTX without other kernels."""
    first, *kernels = re.split(r"^(?=\.entry )", text, flags=re.M)
    return first + next(k for k in kernels if re.match(rf"\.entry _Z\d+{kernel}_kernel", k))


def planted(text, what, address=0):
    """The PTX of one kernel with something in it: where it has waited for the launch before, or at its begin."""
    begin = text.index(".entry ")
    args = re.compile(r"(\w+_param_0)\b").search(text, begin)[1]
    wait = re.compile(r"griddepcontrol\.wait;").search(text, begin)
    at = wait.end() if wait else re.compile(r"^\s*mov\.\w+\s", re.M).search(text, begin).start()
    return text[:at] + "\n" + what.format(args=args, address=address) + "\n" + text[at:]


def self_test(root, build, folder):
    source = (folder / "kernels-90.ptx").read_text()
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "kernels.ptx"

        def timed(text, options):
            path.write_text(text)
            return time_one(root, build / "clock_main", path, ["--short", *options])
        for kernel, (options, words, address) in TRIED.items():
            try_planted(kernel, only(source, kernel), lambda text: timed(text, options), words, address)
        options = TRIED["stash_ldg"][0]
        try_comparison(timed(only(source, "stash_ldg"), options))
        path.write_text(planted(only(source, "stash_ldg"), "brev.b32 %r1, %r1;"))
        done = subprocess.run([build / "clock_main", root / "tests/ptx/architectures.txt", *options,
                               "--kernels", path], capture_output=True, text=True)
        if done.returncode == 0 or "brev.b32" not in done.stderr:
            sys.exit(f"an instruction that nobody knows: {done.returncode} {done.stderr}")
    print("planted faults found")


def record_of(records):
    known = {f"{key_of(r)} {name}": r[name] for r in records for name, is_met, _ in goals_of(r) if not is_met}
    return {"launches": {key_of(r): r for r in records}, "known": known}


def try_planted(kernel, source, timed, words_of_membar, address):
    """The same again takes the same time, and what is planted is reported."""
    first = timed(source)
    recorded = record_of(first)
    if not first or timed(source) != first or compare(first, recorded) != ([], []):
        sys.exit(f"{kernel}: the same took another time: {compare(first, recorded)}")
    for what, wanted in (("membar", words_of_membar), ("trip", ("trips ",))):
        worse, _ = compare(timed(planted(source, PLANTED[what], address)), recorded)
        for word in wanted:
            if not any(f": {word}" in sentence for sentence in worse):
                sys.exit(f"{kernel}: the planted {what} was not reported as {word}: {worse}")


def try_comparison(first):
    """What is better, a rival that is faster, a goal that is missed, or missed by more, and what was not timed."""
    recorded = record_of(first)
    _, better = compare(first, {**recorded, "launches": {key_of(r): {**r, "cycles": 2 * r["cycles"]}
                                                         for r in first}})
    slow = [{**r, "case": picked, "backend": picked, "picked": picked}
            for r in first for picked in ("ldg", "bulk")]
    other = {"ldg": "bulk", "bulk": "ldg"}
    rival = slow + [{**r, "backend": other[r["backend"]], "cycles": 0.9 * r["cycles"]} for r in slow]
    worse, _ = compare([{**r, "over_empty_us": 9} for r in first], {**recorded, "known": {}})
    if len(list(slower_choices(rival))) != len(slow) or len(better) != 1 or not any(
            "over_empty_us 9" in sentence for sentence in worse):
        sys.exit(f"not reported: {better}, {worse}")
    missed = record_of([{**r, "over_empty_us": 9} for r in first])
    same, _ = compare([{**r, "over_empty_us": 9} for r in first], missed)
    more, _ = compare([{**r, "over_empty_us": 10} for r in first], missed)
    if same or not any("over_empty_us 10" in sentence for sentence in more):
        sys.exit(f"a known miss that is missed by more was not reported: {same}, {more}")
    if len(compare([], recorded)[0]) != len(first) + 1 or compare([], recorded, True)[0] != ["no launch was timed"]:
        sys.exit("launches that were not timed were not reported")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--kernels", type=pathlib.Path)
    parser.add_argument("--json")
    for flag in ("--short", "--table", "--record", "--self-test"):
        parser.add_argument(flag, action="store_true")
    given = parser.parse_args()
    folder = given.kernels or given.build
    if not (folder / "kernels-90.ptx").exists():
        print("no PTX: nvcc is wanted, and the target kernels_ptx")
        return 77
    if given.self_test:
        return self_test(given.root, given.build, folder)
    records = time_all(given.root, given.build, folder, ["--short"] if given.short else [])
    path = given.root / "tests/gates/clock.json"
    if given.json:
        for a in ARCHITECTURES:
            pathlib.Path(f"{given.json}-{a}.jsonl").write_text(
                "".join(json.dumps(r) + "\n" for r in records if r["architecture"] == a))
    if given.table:
        print_table(records)
        return 0
    recorded = json.loads(path.read_text())
    if given.record:
        return record_all(path, records, recorded["known"])
    worse, better = compare(records, recorded, given.short)
    if better:
        print("better than recorded (check_clock_model.py ROOT BUILD --record):", *better, sep="\n  ")
    print(*worse or [f"{len(records)} launches are no slower; {len(recorded['known'])} goals are known to "
                     "be missed"], sep="\n")
    return 1 if worse else 0


sys.exit(main())
