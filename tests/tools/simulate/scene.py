"""What the tests of `pagestash simulate` share."""
import concurrent.futures
import os

import cli
import reports
from cli import CommandTest, run

WORK = ("--forward-ns", "1,4,1", "--backward-ns", "2,8,2")


def rows_of(table):
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def pages3(chunk, layer, i):
    return 1 + (5 * i + 3 * layer + 7 * chunk) % 3


def group(chunk, layer, i):
    rows = 100 + (37 * i + 53 * layer + 71 * chunk) % 97
    return cli.usage([(2048, 1), (1024, 1), (64, 32), (4, 1)], [rows], 64 << 10)[1]


def schedule(kind, stages, micro_batches, chunks="1", group_size="-"):
    """Flags; those that the kind knows by itself are left out."""
    flags = ["--schedule", kind, "--stages", stages, "--micro-batches", micro_batches]
    if kind == "interleaved":
        flags += ["--chunks", chunks, "--group", group_size]
    return flags


def way(name):
    """Flags for a column of the tables."""
    if name == "next":
        return ["--rule", "next"]
    sets, *more = name.split(" ")
    sources, destinations = sets.split("+")
    flags = ["--sources", sources, "--destinations", destinations]
    return flags + {"": [], "slot": ["--by-slot"], "kept": ["--keeps-nothing"],
                    "streams": ["--streams", "2"], "1": ["--ahead", "1"]}[more[-1] if more else ""]


class SimulateTest(CommandTest):
    def simulate(self, *flags, code=0):
        result = run("simulate", *flags, "--json")
        self.assertEqual(result.returncode, code, (flags, result))
        self.assertEqual(result.stderr.count("\n"), 1 if code else 0, result)
        return reports.load(result.stdout)

    def stages(self, *flags, code=0):
        return self.simulate(*flags, code=code)["stages"]

    def visits(self, pages, chunks=2, layers=8, micro_batches=12):
        lines = ["chunk,layer,micro_batch,pages"]
        lines += [f"{c},{n},{i},{pages(c, n, i)}" for c in range(chunks) for n in range(layers)
                  for i in range(micro_batches)]
        return self.write("\n".join(lines) + "\n", f"{pages.__name__}.csv")

    def parallel(self, check, cases):
        """A simulation takes milliseconds; starting it takes as long."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for done in [pool.submit(check, *case) for case in cases]:
                done.result()
