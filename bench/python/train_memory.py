#!/usr/bin/env python3
"""train_memory.py: what our MoE (tests/python/common/moe.py) holds on the CPU while it trains, with pages and
without, in both layouts, dtypes and schedules; and for how many steps its bits are the same. Bytes are of
torch's allocator, and the pool is in them. $PAGESTASH_LIBRARY names the library of a build.
Exit codes: 0 done; 1 bits, pages or memory are not as they must be; 2 usage; 4 torch is absent."""
import argparse
import dataclasses
import importlib.util
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/python")]
sys.dont_write_bytecode = True


def parse():
    parser = argparse.ArgumentParser(description=__doc__.rsplit("\n", maxsplit=1)[0],
                                     epilog=__doc__.rsplit("\n", maxsplit=1)[1],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="(%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the rows there, too")
    options = parser.parse_args()
    if options.steps < 2:
        parser.error("--steps: allowed is 2 or more")
    return options


def main():
    options = parse()
    if importlib.util.find_spec("torch") is None:
        print("train_memory.py: torch is not installed", file=sys.stderr)
        return 4
    import torch
    from common import moe, table
    torch.set_num_threads(1)
    rows = []
    for layout in ("prefix", "segments"):
        for dtype in (torch.float32, torch.bfloat16):
            rows += table.rows(moe.Shape(layout=layout, dtype=dtype, **table.SHAPE), options.steps)
    print(table.text(rows))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump([dataclasses.asdict(row) for row in rows], out, indent=2)
            out.write("\n")
    wrong = [problem for row in rows for problem in row.problems()]
    print("\n".join(wrong), end="\n" * bool(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
