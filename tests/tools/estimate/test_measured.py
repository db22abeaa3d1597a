"""`pagestash estimate` against peaks that others have measured (tests/data/measured).

test_measured.py BINARY SOURCE [--show]: the latter prints the tables.
"""
import math
import os
import re
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import cli
import reports
from cli import CommandTest, run

TABLES = os.path.join(os.path.dirname(__file__), *[os.pardir] * 2, "data", "measured")


def rows():
    """Of all tables: name, GiB measured, percent allowed, flags, whether the last stage was measured."""
    for table in sorted(name for name in os.listdir(TABLES) if name.endswith(".txt")):
        kinds, is_last = {}, False
        with open(os.path.join(TABLES, table), encoding="ascii") as file:
            for line in file:
                words = line.split()
                if not words or words[0].startswith("#"):
                    continue
                if words[0] == "kind":
                    kinds[words[1]] = kinds.get(words[2], [words[2]]) + words[3:]
                elif words[0] == "measured":
                    is_last = words[1:] == ["last", "stage"]
                else:
                    name, measured, allowed, kind, *flags = words
                    yield name, float(measured), float(allowed), kinds[kind] + flags, is_last


def estimate(flags, is_last):
    """The stage that was measured, else the one that needs most: GiB of torch's tensors, its report."""
    result = run("estimate", "--json", "--overhead", 0, "--fragmentation", 0, *flags)
    if result.returncode:
        raise AssertionError(f"{flags}: {result.stderr}")
    stages = reports.load(result.stdout)["stages"]
    stage = stages[-1] if is_last else max(stages, key=lambda of: of["bytes"]["peak"])
    return stage["bytes"]["peak"] / (1 << 30), stage


class Measured(CommandTest):
    def test_errors(self):
        """No error is above what the table allows, nor so far below it that the table is out of date."""
        for name, measured, allowed, flags, is_last in rows():
            peak, _ = estimate(flags, is_last)
            error = abs(peak / measured - 1) * 100
            self.assertLessEqual(error, allowed, (name, peak))
            self.assertGreater(error, allowed - 0.11, (name, peak))
            if error > 5:  # and the verdict says so, and why
                text = run("estimate", *flags).stdout
                self.assertIn(" needs at least ", text, name)
                self.assertRegex(text, r"(?m)^(left out|not counted, and it matters): ", name)


def reserved():
    """Of each run that says so: name, GiB of torch's tensors, GiB that its allocator had, flags."""
    runs = {name: (measured, flags) for name, measured, _, flags, _ in rows()}
    with open(os.path.join(TABLES, "reserved", "b200.txt"), encoding="ascii") as file:
        for line in file:
            if not line.startswith("#"):
                name, had = line.split()
                yield name, runs[name][0], float(had), runs[name][1]


class Reserved(CommandTest):
    def test_default(self):
        """The share of fragmentation is the 90th percentile of the runs, rounded up."""
        shares = sorted(had / measured - 1 for _, measured, had, _ in reserved())
        self.assertEqual(len(shares), 19)
        wanted = math.ceil(1000 * shares[math.ceil(len(shares) * 0.9) - 1])
        with open(os.path.join(cli.SOURCE, "include", "pagestash", "estimate.h"), encoding="ascii") as file:
            self.assertEqual(re.search(r"#define PST_ESTIMATE_FRAGMENTATION (\d+)", file.read())[1], str(wanted))

    def test_verdicts(self):
        """On a GPU that the allocator alone would fill no run fits, as measured. For one of them it is not the share
        of its tensors that says so, but context and NCCL. On a GPU with a tenth more each fits."""
        wrong = []
        for name, _, had, flags in reserved():
            size = ["--gpu-memory", f"{had}GiB"]
            self.assertEqual(run("estimate", "--fit", *flags, *size).returncode, 1, name)
            wrong += [name] * (run("estimate", "--fit", *flags, *size, "--overhead", 0).returncode == 0)
            size = ["--gpu-memory", f"{had * 1.1 + 4:.2f}GiB"]
            self.assertEqual(run("estimate", "--fit", *flags, *size).returncode, 0, name)
        self.assertEqual(wrong, ["405b.cp8.32k"])


def show():
    for name, measured, allowed, flags, is_last in rows():
        peak, stage = estimate(flags, is_last)
        print(f"{name:20} measured {measured:7.2f} estimated {peak:7.2f} {(peak / measured - 1) * 100:+6.2f} %"
              f" (allowed {allowed}): stage {stage['stage']}, {stage['transient']}")


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE = sys.argv[1:3]
    if sys.argv[3:] == ["--show"]:
        show()
    else:
        unittest.main(argv=sys.argv[:1] + sys.argv[3:])
