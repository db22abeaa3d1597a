#!/usr/bin/env python3
"""test_nvtx.py SOURCE RECORDER CALLS SCHEDULE: what a profiler is told by nvtx_calls and example_05_schedule on
the host device, through a tool that NVTX loads as it loads Nsight's."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

RECORDER, CALLS, SCHEDULE = sys.argv[2:5]
BYTES = 256 << 10
OPERATIONS = (("ticket_stash", "stash"), ("ticket_demote", "demote"), ("ticket_promote", "promote"),
              ("ticket_restore", "restore"), ("ticket_stash", "stash"), ("ticket_release", "release"),
              ("glu_forward", "GLU forward"), ("glu_backward", "GLU backward"))


def record(program, **environment):
    """The lines that the tool wrote."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "record")
        subprocess.run([program, "host"], check=True, capture_output=True, timeout=240,
                       env={**os.environ, "NVTX_INJECTION64_PATH": RECORDER, "NVTX_RECORD": path, **environment})
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()


class Nvtx(unittest.TestCase):
    def test_ranges(self):
        lines = record(CALLS)
        self.assertEqual(lines[0], "domain pagestash")
        self.assertEqual([line for line in lines if line.startswith("category")],
                         ["category 1 stash", "category 2 scheduler", "category 3 comm", "category 4 linear"])
        self.assertEqual([line for line in lines if "; operation: " in line],
                         [f"push pst_{name}; category: 1; operation: {operation}; bytes at capacity: {BYTES}; "
                          "ticket: 1" for name, operation in OPERATIONS])
        self.assertEqual(lines.count("push pst_pool_step; category: 1"), 3)

    def test_ranges_nest_and_strings_are_registered_once(self):
        for program in (CALLS, SCHEDULE):
            lines, depth, categories = record(program), 0, set()
            for line in lines:
                depth += line.startswith("push") - (line == "pop")
                self.assertGreaterEqual(depth, 0)
                categories.update(re.findall("category: (.)", line))
            self.assertEqual(depth, 0)
            strings = [line for line in lines if line.startswith("string pst_")]
            self.assertEqual(len(strings), len(set(strings)))
            self.assertEqual(categories, {"1"} if program == CALLS else {"1", "2"})
            self.assertFalse([line for line in lines if "unexpected" in line])

    def test_counters(self):
        lines = "\n".join(record(CALLS))
        names = dict(re.findall(r"counter (\d+) (.*)", lines))
        self.assertEqual(list(names.values()), ["pool 0: device pages in use", "pool 0: host pages in use"])
        samples = [(names[number].split()[2], int(value))
                   for number, value in re.findall(r"sample (\d+) (-?\d+)", lines)]
        self.assertEqual(samples, [("device", 16), ("host", 0), ("device", 0), ("host", 16),
                                   ("device", 0), ("host", 0)])

    def test_switched_off(self):
        self.assertEqual(record(CALLS, PAGESTASH_NVTX="0"), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
