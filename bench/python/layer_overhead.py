#!/usr/bin/env python3
"""What `stash.layer` costs the host per layer and step, beside the launches and above a hook that does nothing.

    python bench/python/layer_overhead.py [--layers 16] [--rounds 300] [--output result.json]

A layer saves 6 tensors of CAPACITY rows, none of them live. A round runs, one after the other and in an order
that changes: a step with identity hooks, one with `stash.layer` by ctypes, one by the operators' library where
there is one. What is subtracted, too: the launches themselves, four calls of the C library (take, stash,
restore, give), timed alone, less what ctypes needs to make four calls. Microseconds; medians of the rounds'
differences, so that what the machine does besides falls on all alike."""
import argparse
import ctypes
import json
import random
import statistics
import sys
import time

import torch

import pagestash
from pagestash import _abi, pool as pools
from pagestash._c import lib
from pagestash.torch import Stash, ops

TENSORS, CAPACITY, WIDTH = 6, 64, 16
LIMITS = {"ops": 25.0, "ctypes": 60.0}  # microseconds per layer and step


class Saves(torch.autograd.Function):
    """Saves what it is given."""

    @staticmethod
    def forward(ctx, x, *tensors):
        ctx.save_for_backward(*tensors)
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        assert len(ctx.saved_tensors) == TENSORS
        return (dy,) + (None,) * TENSORS


class Bench:
    """Steps of one kind each."""

    def __init__(self, layers):
        self.layers, self.counts = layers, torch.zeros(1, dtype=torch.int64)
        self.x = torch.randn(CAPACITY, WIDTH, requires_grad=True)
        self.stashes = {"ctypes": self._stash(False)}
        if ops.kind == "stable":
            self.stashes["ops"] = self._stash(True)

    def _stash(self, by_ops):
        stash = Stash("cpu", pages=64, page_bytes=1 << 14, tickets=4 * self.layers)
        if not by_ops:
            stash.known = None
        return stash

    def _sources(self):
        return [[self.x * float(i + 1) for i in range(TENSORS)] for _ in range(self.layers)]

    def step(self, context):
        """Microseconds per layer of a forward and backward of all layers."""
        sources = self._sources()
        y = self.x[:1].sum()
        start = time.perf_counter()
        for tensors in sources:
            with context():
                y = Saves.apply(y, *tensors)
        y.backward()
        return (time.perf_counter() - start) / self.layers * 1e6

    def contexts(self):
        """By name, what makes the context of a layer."""
        def identity():
            return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)

        found = {"identity": identity}
        for name, stash in self.stashes.items():
            found[name] = lambda stash=stash: stash.layer(self.counts, CAPACITY)
        return found

    def run(self, rounds):
        """Times of each round, by name."""
        contexts = self.contexts()
        names, times = list(contexts), {name: [] for name in contexts}
        for number in range(rounds + 20):
            random.shuffle(names)
            for name in names:
                took = self.step(contexts[name])
                if number >= 20:
                    times[name].append(took)
            for stash in self.stashes.values():
                stash.step()
        return times


def launches(rounds):
    """Microseconds of take, stash, restore and give, without ctypes."""
    pool = pools.Pool(pools.Device.open("host"), 64, page_bytes=1 << 14)
    tensors = [torch.zeros(CAPACITY, WIDTH) for _ in range(TENSORS)]
    counts = torch.zeros(1, dtype=torch.int64)
    form = pools.Form([pools.Space(CAPACITY)], [pools.Rows(4 * WIDTH)] * TENSORS)
    buffers = ctypes.byref(form.buffers([t.data_ptr() for t in tensors], (counts.data_ptr(),)))
    stash, restore = pools.stash_options(), pools.restore_options()
    ticket = _abi.pst_ticket()
    out = ctypes.byref(ticket)
    nothing = lib.pst_ticket_index  # by value, like those
    real, empty = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        lib.pst_ticket_take(pool.handle, 0, out)
        lib.pst_ticket_stash(ticket, form.handle, buffers, stash, 0)
        lib.pst_ticket_restore(ticket, form.handle, buffers, restore, 0)
        lib.pst_ticket_give(ticket, 0)
        real.append((time.perf_counter() - start) * 1e6)
        start = time.perf_counter()
        for _ in range(4):
            nothing(ticket)
        empty.append((time.perf_counter() - start) * 1e6)
    pool.close()
    return statistics.median(real) - statistics.median(empty)


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--output", help="JSON; else standard output")
    options = parser.parse_args()
    torch.set_num_threads(1)
    bench = Bench(options.layers)
    times = bench.run(options.rounds)
    launch = launches(options.rounds * 4)
    result = {
        "pagestash": pagestash.__version__, "torch": torch.__version__, "ops": ops.kind,
        "python": sys.version.split()[0], "tensors": TENSORS, "layers": options.layers,
        "rounds": options.rounds, "unit": "microseconds per layer and step",
        "identity": round(statistics.median(times["identity"]), 2), "launches": round(launch, 2)}
    for name, limit in LIMITS.items():
        if name not in times:
            continue
        above = statistics.median(mine - base for mine, base in zip(times[name], times["identity"]))
        result[name] = {"step": round(statistics.median(times[name]), 2),
                        "above_identity": round(above, 2), "overhead": round(above - launch, 2),
                        "limit": limit, "share_of_limit": round((above - launch) / limit, 3)}
    text = json.dumps(result, indent=1)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
