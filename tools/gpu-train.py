#!/usr/bin/env python3
"""gpu-train.py OUTDIR: trains an MoE whose steps are captured with torch.cuda.graph and replayed with changing
routing: keeping everything, with pages, with pages of which half are in pinned host memory, and with
torch.utils.checkpoint; each in a process of its own. Losses must be those of eager steps without any of it.

Leaves OUTDIR/train-report.json, and prints a table: memory at most, time of a step. With --device cpu nothing
is captured, and the figures are of this machine's CPU.
Exit codes: 0 done; 1 losses differ, or a step failed; 2 usage; 4 torch, or its CUDA, is absent."""
import argparse
import gc
import importlib.util
import json
import math
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = next(folder for folder in pathlib.Path(__file__).resolve().parents
            if (folder / "tests/python/common/moe.py").is_file())
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/python")]
sys.dont_write_bytecode = True

SCHEMA_VERSION = 1
# name: what the table says. The first two are the reference, and whether that repeats.
VARIANTS = {
    "eager": "eager, everything kept", "again": "the same once more",
    "keep": "everything kept", "pages": "pages", "host": "half of the pages in host memory",
    "checkpoint": "torch.utils.checkpoint"}
EAGER = ("eager", "again")
WARM_STEPS = 2  # eager ones: the first is measured, the second runs with pages
# Captured with more pages than any step will want: routing becomes more even while it trains.
HEADROOM = 1.25
# Of bfloat16 losses, where the reference itself does not repeat bit by bit.
TOLERANCE = 0.02


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0],
                                     epilog=__doc__.rsplit("\n", maxsplit=1)[1])
    add = parser.add_argument
    add("outdir", metavar="OUTDIR")
    add("--device", choices=("cuda", "cpu"), default="cuda", help="(%(default)s)")
    add("--steps", type=int, default=20, metavar="N", help="that are compared, and timed (%(default)s)")
    add("--quick", action="store_true", help="a model for the CPU; default with --device cpu")
    add("--variant", choices=VARIANTS, help=argparse.SUPPRESS)  # of a child
    add("--pages", type=int, default=0, help=argparse.SUPPRESS)  # of host, as `pages` had them
    add("--tickets", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps < 2:
        parser.error("--steps: allowed is 2 or more")
    options.quick = options.quick or options.device == "cpu"
    return options


def shape_of(options):
    """The model: 12.8 GiB of static buffers, or one for a CPU."""
    import torch
    from common import moe
    if options.quick:
        return moe.Shape(layers=2, hidden=32, ffn=48, ep=2, batch=2, sequence=64)
    return moe.Shape(layers=8, hidden=1024, heads=16, ffn=1024, experts=32, topk=2, ep=4, batch=4,
                     sequence=1024, micro=4, dtype=torch.bfloat16)


# ---- one variant, in a process of its own

class Trainer:
    """A model and what a step of it needs, at addresses that stay."""

    def __init__(self, options, shape):
        import torch
        from common import moe
        self.moe, self.shape, self.options = moe, shape, options
        self.device = torch.device(options.device)
        self.model = moe.build(shape).to(self.device)
        self.stash = self.make_stash()
        self.model.use(self.stash)
        self.rows = torch.zeros(shape.local, dtype=torch.int64, device=self.device)
        self.watch(self.model.blocks[0].moe)
        if options.variant == "checkpoint":
            self.checkpoint()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3,
                                           capturable=self.device.type == "cuda")
        self.batches = [torch.stack(micro) for micro in
                        moe.batches(shape, WARM_STEPS + self.options.steps)]
        self.tokens = torch.empty_like(self.batches[0], device=self.device)
        self.losses, self.graph = None, None

    def watch(self, moe):
        """self.rows are the rows of the experts that ran last in this layer."""
        layer = moe.layer

        def watched(counts, *args, **kwargs):
            self.rows.copy_(counts)
            return layer(counts, *args, **kwargs)
        moe.layer = watched

    def make_stash(self):
        import pagestash.torch
        options, page_bytes = self.options, 16384 if self.options.quick else 1 << 18
        if options.variant == "pages":
            return pagestash.torch.Stash(self.device, headroom=HEADROOM, page_bytes=page_bytes)
        if options.variant == "host":
            half = math.ceil(options.pages / 2)
            return pagestash.torch.Stash(self.device, pages=half, host_pages=options.pages - half,
                                         page_bytes=page_bytes, tickets=options.tickets)
        return None

    def checkpoint(self):
        from torch.utils.checkpoint import checkpoint

        def call(experts, *args):
            return checkpoint(experts, *args, use_reentrant=False, preserve_rng_state=False)
        for block in self.model.blocks:
            block.moe.call = call

    def step(self):
        """All of it: what is captured."""
        self.model.zero_grad()
        self.losses = self.moe.run_step(self.model, self.tokens, "FFBB")
        self.optimizer.step()
        if self.stash is not None:
            self.stash.step()

    def capture(self):
        """Steps are replays from here on."""
        import torch
        if self.device.type == "cpu" or self.options.variant in EAGER:
            return
        self.losses = None
        self.model.zero_grad()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        self.graph = graph

    def run(self, number):
        """A step on batch `number`; its losses on the device."""
        self.tokens.copy_(self.batches[number])
        if self.graph is None:
            self.step()
        else:
            self.graph.replay()
        return self.losses

    def status(self):
        """Of the last step, and that it was valid; None without a stash, or a pool."""
        status = self.stash.status() if self.stash is not None else None
        if status is not None and not status.valid:
            raise RuntimeError(f"a step failed: {status}")
        return status


def compared_steps(trainer, report):
    """Into the report: the losses of all steps, the pages that each wanted, rows of some experts."""
    losses, demands, rows = [], [], []
    for number in range(WARM_STEPS + trainer.options.steps):
        if number == WARM_STEPS:
            report["resident_bytes"] = begin_peak(trainer.device)
            trainer.capture()
        losses += [loss.item() for loss in trainer.run(number)]
        rows.append(trainer.rows.tolist())
        status = trainer.status()
        if status is not None:
            demands.append(status.step_demand)
    report["losses"], report["pages_wanted"], report["rows"] = losses, demands, rows
    if status is not None:
        report["pool"] = pool_report(trainer.stash, status)


def pool_report(stash, status):
    info = stash.pool.info()
    return {"page_bytes": info.page_bytes, "pages": list(info.num_pages),
            "bytes": [stash.block.nbytes, info.held_bytes[1]], "demand": status.demand,
            "tickets": info.slab_tickets, "high_water": list(status.high_water),
            "spilled_pages": status.spilled_pages, "num_faults": status.num_faults}


def begin_peak(device):
    """Forgets the peak of the warm steps; the bytes that are held now."""
    import torch
    gc.collect()
    if device.type == "cpu":
        return None
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def peak(trainer):
    """Bytes at most: of cuda since begin_peak, of the CPU in another step, above what is held before it."""
    if trainer.device.type == "cuda":
        import torch
        return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    from common import memory
    with memory.measured() as timeline:
        trainer.run(WARM_STEPS)
    held = trainer.stash.block.nbytes if trainer.stash is not None else 0
    return timeline.peak() + held, None


def times(trainer):
    """Seconds of steps, one after the other without a wait between them."""
    import torch
    last = WARM_STEPS + trainer.options.steps - 1
    if trainer.device.type == "cpu":
        marks = []
        for _ in range(trainer.options.steps):
            begin = time.perf_counter()
            trainer.run(last)
            marks.append(time.perf_counter() - begin)
        return marks
    events = [torch.cuda.Event(enable_timing=True) for _ in range(trainer.options.steps + 1)]
    events[0].record()
    for event in events[1:]:
        trainer.run(last)
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) / 1000 for a, b in zip(events, events[1:])]


def child(options):
    """Runs options.variant and writes its report."""
    import torch
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # it costs time
    report = {"variant": options.variant}
    trainer = Trainer(options, shape_of(options))
    compared_steps(trainer, report)
    report["peak_bytes"], report["peak_reserved_bytes"] = peak(trainer)
    seconds = times(trainer)
    trainer.status()
    report["seconds"] = {"median": statistics.median(seconds), "min": min(seconds),
                         "max": max(seconds)}
    with open(options.outdir, "w", encoding="utf-8") as out:
        json.dump(report, out)


# ---- all of them

def run_variant(name, options, pool, folder):
    """The report of a child; {"variant", "error"} where it failed."""
    path = os.path.join(folder, name + ".json")
    line = [sys.executable, os.path.abspath(__file__), path, "--device", options.device, "--steps",
            str(options.steps), "--variant", name]
    if name == "host":
        line += ["--pages", str(pool["pages"][0]), "--tickets", str(pool["tickets"])]
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    done = subprocess.run(line + ["--quick"] * options.quick, text=True, capture_output=True,
                          env=environment, check=False)
    sys.stderr.write(done.stderr)
    if done.returncode or not os.path.exists(path):
        lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        return {"variant": name, "error": lines[-1]}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def compare(report, reference, repeats):
    """Adds what the losses are to those of the reference; "": nothing is wrong."""
    if "error" in report:
        return report["error"]
    ours, theirs = report["losses"], reference["losses"]
    bits = [struct.pack("<d", loss) for loss in ours]
    report["losses_bit_equal"] = bits == [struct.pack("<d", loss) for loss in theirs]
    report["losses_differ_by"] = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
    wrong = not report["losses_bit_equal"] if repeats else not report["losses_differ_by"] <= TOLERANCE
    return "losses differ from eager steps" if wrong else ""


def run_all(options):
    """The reports by name, in the order of VARIANTS; what is wrong."""
    reports, wrong = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for name in VARIANTS:
            pool = reports.get("pages", {}).get("pool")
            if name != "host" or pool:  # without one `pages` failed, which is wrong already
                reports[name] = run_variant(name, options, pool, folder)
            if "error" in reports["eager"]:
                return reports, [f"eager: {reports['eager']['error']}"]
    again = reports["again"]
    again["repeats"] = again.get("losses") == reports["eager"]["losses"]
    for name, report in reports.items():
        text = compare(report, reports["eager"], again["repeats"])
        if not text and len(set(map(tuple, report["rows"]))) < 2:
            text = "routing did not change"
        if text:
            wrong.append(f"{name}: {text}")
    return reports, wrong


def table(reports, options):
    """For people."""
    yield f"{'':34} {'memory MiB':>11} {'host MiB':>9} {'step ms':>9}  losses"
    for name, report in reports.items():
        if "error" in report:
            yield f"{VARIANTS[name]:34} {report['error']}"
            continue
        host = report.get("pool", {}).get("bytes", (0, 0))[1]
        same = "bit-equal" if report["losses_bit_equal"] else \
            f"differ by {report['losses_differ_by']:.2g}"
        captured = options.device == "cuda" and name not in EAGER
        yield (f"{VARIANTS[name] + (', captured' if captured else ''):34} "
               f"{report['peak_bytes'] / 2 ** 20:11.1f} {host / 2 ** 20:9.1f} "
               f"{report['seconds']['median'] * 1000:9.2f}  {same}")


def absent(device):
    """What is missing here; "" if nothing is."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch
    if not hasattr(torch.nn.functional, "grouped_mm"):
        return f"torch {torch.__version__} has no grouped_mm; 2.10 has"
    if device == "cuda" and not torch.cuda.is_available():
        return f"torch {torch.__version__} has no CUDA here"
    return ""


def main():
    options = parse()
    missing = absent(options.device)
    if missing:
        print(f"gpu-train.py: {missing}", file=sys.stderr)
        return 4
    if options.variant:
        child(options)
        return 0
    import torch
    from pagestash.torch import ops
    os.makedirs(options.outdir, exist_ok=True)
    reports, wrong = run_all(options)
    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    with open(os.path.join(options.outdir, "train-report.json"), "w", encoding="utf-8") as out:
        json.dump({"schema_version": SCHEMA_VERSION, "command": "gpu-train", "torch": torch.__version__,
                   "ops": ops.kind, "device": name, "captured": options.device == "cuda",
                   "steps": options.steps,
                   "model": {key: str(value) for key, value in vars(shape_of(options)).items()},
                   "variants": list(reports.values()), "wrong": wrong}, out, indent=2)
        out.write("\n")
    print("\n".join(table(reports, options)))
    print("; ".join(wrong) if wrong else f"losses equal in {len(reports) - 1} runs")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
