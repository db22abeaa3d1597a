#!/usr/bin/env python3
"""test_readme_table.py PAGESTASH SOURCE: README's table of memory saved is what `pagestash replay` says, cell by cell."""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

PAGESTASH, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
ROW = re.compile(r"^\| (?P<ranks>\d+) ranks \| (?P<layout>[^,|]+), bf16 \| (?P<static>\S+ \w+) \| "
                 r"(?P<mean>\S+) / (?P<most>\S+ \w+) \| (?P<pool>\S+ \w+) \| (?P<saved>\S+) % \|$", re.M)
LAYOUTS = {"prefix": "prefix", "segments per expert": "segments"}


def size(num_bytes):
    """As README writes it."""
    mib = num_bytes / (1 << 20)
    return f"{mib / 1024:.2f} GiB" if mib >= 1024 else f"{mib:.1f} MiB"


def demo():
    """The arguments of `make demo`."""
    text = (SOURCE / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    trace, flags = (re.search(rf"^{name} := (.*)$", text, re.M)[1] for name in ("TRACE", "DEMO_FLAGS"))
    return ["--routing", str(SOURCE / trace), *shlex.split(flags)]


def replay(ranks, layout):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report.json"
        flags = demo()
        flags[flags.index("--expert-model-parallel-size") + 1] = ranks
        subprocess.run([PAGESTASH, "replay", *flags, "--layout", layout, "--device", "host", f"--json={path}"],
                       stdout=subprocess.DEVNULL, check=True)
        return json.loads(path.read_text(encoding="utf-8"))


class ReadmeTable(unittest.TestCase):
    def test_each_cell(self):
        rows = list(ROW.finditer((SOURCE / "README.md").read_text(encoding="utf-8")))
        self.assertEqual([(row["ranks"], row["layout"]) for row in rows],
                         [("8", "prefix"), ("16", "prefix"), ("8", "segments per expert")])
        flags = demo()
        self.assertEqual(flags[flags.index("--expert-model-parallel-size") + 1], "8")  # the first row
        for row in rows:
            with self.subTest(row[0]):
                keys = replay(row["ranks"], LAYOUTS[row["layout"]])
                saved = 100 * (1 - (keys["pool_bytes"] + keys["buffer_bytes"]) / keys["static_bytes"])
                self.assertEqual((keys["mismatched_bytes"], keys["faults"]), (0, 0))
                self.assertEqual(row.groupdict(), {
                    "ranks": row["ranks"], "layout": row["layout"], "static": size(keys["static_bytes"]),
                    "mean": size(keys["live_bytes_mean"]).split()[0], "most": size(keys["live_bytes_max"]),
                    "pool": size(keys["pool_bytes"]), "saved": f"{saved:.1f}"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
