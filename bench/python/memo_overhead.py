#!/usr/bin/env python3
"""memo_overhead.py: what memo.run costs the host for each layer: forward and backward of a layer with tiny tensors,
swapped with fractions 1 and 0, beside the same two pieces without swapping and the plain layer; and how many
operators and copies of torch that takes."""
import argparse
import collections
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/python")]

import torch  # noqa: E402  pylint: disable=wrong-import-position
from common import gpt  # noqa: E402  pylint: disable=wrong-import-position
from pagestash import memo  # noqa: E402  pylint: disable=wrong-import-position
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402  pylint: disable=wrong-import-position

LAYERS, HIDDEN, TOKENS, CUT = 8, 16, 64, 32
COPIES = ("aten.copy_.default", "aten.cat.default", "aten.clone.default")
KINDS = {"plain layer": (None, None), "two pieces": (None, CUT), "fraction 1": (1, CUT), "fraction 0": (0, CUT)}


class Counted(TorchDispatchMode):
    """Operators by name."""

    def __init__(self):
        super().__init__()
        self.names = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names[str(func)] += 1
        return func(*args, **(kwargs or {}))


def measured(fraction, cut, rounds):
    """(microseconds, operators, copies) of a layer."""
    torch.manual_seed(0)
    model = gpt.GPT(LAYERS, HIDDEN, 2)
    run = memo.run(model.layers, fraction=fraction, cut=cut, block_tokens=16)
    x = torch.randn(1, TOKENS, HIDDEN, requires_grad=True)

    def step():
        y = x
        for layer in model.layers:
            y = layer(y)
        y.sum().backward()
        run.step()

    step()
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    with Counted() as counted:
        step()
    run.close()
    copies = sum(counted.names[name] for name in COPIES)
    return statistics.median(seconds) / LAYERS * 1e6, counted.names.total() / LAYERS, copies / LAYERS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, metavar="N", help="steps of 8 layers (%(default)s)")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds: allowed is 1 and more")
    torch.set_num_threads(1)
    print(f"{'of a layer':14} {'us':>9} {'operators':>10} {'copies':>7}")
    for name, (fraction, cut) in KINDS.items():
        microseconds, operators, copies = measured(fraction, cut, options.rounds)
        print(f"{name:14} {microseconds:9.1f} {operators:10.1f} {copies:7.1f}")


if __name__ == "__main__":
    sys.exit(main())
