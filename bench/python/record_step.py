#!/usr/bin/env python3
"""record_step.py: what PyTorch asks its allocator for in one training step of a GPT, in MiniMalloc's format: the
instance W of pagestash-plan-bench (bench/plan/gpt-l96-step.csv). The GPU is pretended: autograd, the optimizer and
the recording are what they are on one, kernels do nothing. Needs a build of the library with PAGESTASH_TORCH:

    PAGESTASH_LIBRARY=build/release/libpagestash.so build/python/bin/python bench/python/record_step.py > step.csv"""
import argparse
import csv
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/python")]

from common import pretended  # noqa: E402  pylint: disable=wrong-import-position

pretended.start()

from common.trainer import Trainer  # noqa: E402  pylint: disable=wrong-import-position
from pagestash import allocator  # noqa: E402  pylint: disable=wrong-import-position

MARKS = 3  # around two steps, of which the second is taken: the first after the optimizer made its state


def record(layers, path):
    """An allocation trace of a model and its steps."""
    allocator.install(trace=path, device="host")
    trainer = Trainer(layers)
    trainer.step()
    for _ in range(MARKS - 1):
        allocator.mark_iteration()
        trainer.step()
    allocator.mark_iteration()


def last_step(path):
    """(begin, end, bytes) of what the last marked step asked for, which all goes within it; instants count
    its requests."""
    marks, now, live, tensors = 0, 0, {}, []
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            marks += row["op"] == "mark"
            if marks != MARKS - 1 or row["op"] == "mark":
                continue
            if row["op"] == "malloc":
                live[row["id"]] = (now, row["size"])
            elif row["id"] in live:
                begin, size = live.pop(row["id"])
                tensors.append((begin, now, size))
            now += 1
    if live or not tensors:
        sys.exit(f"record_step.py: {len(live)} of {len(live) + len(tensors)} tensors outlive the step: allowed is none")
    return sorted(tensors)


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=96, help="of the model (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.csv")
        record(options.layers, path)
        tensors = last_step(path)
    print("id,lower,upper,size")
    for number, (begin, end, size) in enumerate(tensors):
        print(f"{number},{begin},{end},{size}")


if __name__ == "__main__":
    main()
