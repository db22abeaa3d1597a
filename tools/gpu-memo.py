#!/usr/bin/env python3
"""gpu-memo.py OUTDIR: times training steps of a GPT, and the memory that they take, with memo.run ("auto",
and with everything swapped), with torch.utils.checkpoint of each layer, with torch.autograd.graph.save_on_cpu,
and with nothing of these; for several sequence lengths, each in a process of its own. Losses must be the same.

Leaves OUTDIR/memo-report.json, and prints a table. What does not fit in memory is said there, and is no failure
of everything kept and of save_on_cpu; nor is it one where "auto" finds that nothing can be hidden. With --device
cpu the figures are of this machine's CPU.
Exit codes: 0 done; 1 losses differ, or a step failed; 2 usage; 4 torch, or its CUDA, is absent."""
import argparse
import contextlib
import gc
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = next(folder for folder in pathlib.Path(__file__).resolve().parents
            if (folder / "tests/python/common/gpt.py").is_file())
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/python")]
sys.dont_write_bytecode = True

SCHEMA_VERSION = 1
# name: what the table says. The first one that runs is what the others' losses are compared with.
VARIANTS = {"checkpoint": "torch.utils.checkpoint", "nothing": "everything kept",
            "save_on_cpu": "torch's save_on_cpu", "swap": "memo.run, fraction 1",
            "auto": 'memo.run, "auto"'}
MAY_LACK_MEMORY = ("nothing", "save_on_cpu")
WARM_STEPS = 2
# Products over a part of the tokens round otherwise.
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.02}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0],
                                     epilog=__doc__.rsplit("\n", maxsplit=1)[1])
    add = parser.add_argument
    add("outdir", metavar="OUTDIR")
    add("--device", choices=("cuda", "cpu"), default="cuda", help="(%(default)s)")
    add("--sequences", default="16384,65536", metavar="N[,N]", help="tokens of a sequence (%(default)s)")
    add("--layers", type=int, default=8, metavar="N", help="(%(default)s)")
    add("--hidden", type=int, default=4096, metavar="N", help="(%(default)s)")
    add("--heads", type=int, default=32, metavar="N", help="(%(default)s)")
    add("--steps", type=int, default=3, metavar="N", help="that are compared, and timed (%(default)s)")
    add("--variant", choices=VARIANTS, help=argparse.SUPPRESS)  # of a child
    options = parser.parse_args()
    try:
        options.lengths = [int(one) for one in options.sequences.split(",")]
    except ValueError:
        parser.error(f"--sequences {options.sequences}: numbers with commas between them are wanted")
    if min(options.lengths) < 64 or options.layers < 1 or options.steps < 1:
        parser.error("--sequences from 64 on, --layers and --steps from 1 on are allowed")
    if options.heads < 1 or options.hidden < 1 or options.hidden % options.heads:
        parser.error("--hidden: a multiple of --heads is wanted")
    return options


# ---- one variant, in a process of its own

class Trainer:
    """A model, and a step of it."""

    def __init__(self, options):
        import torch
        from common import gpt
        from pagestash import memo
        self.gpt, self.options, self.run = gpt, options, None
        self.device = torch.device(options.device)
        dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
        torch.manual_seed(0)
        self.model = gpt.GPT(options.layers, options.hidden, options.heads).to(self.device, dtype)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2)
        if options.variant == "checkpoint":
            self.checkpoint()
        elif options.variant in ("swap", "auto"):
            self.run = memo.run(self.model.layers, fraction=1 if options.variant == "swap" else "auto",
                                block_tokens=16 if options.device == "cpu" else 128)
        self.words = [gpt.words_of(i, 1, options.lengths[0]).to(self.device)
                      for i in range(WARM_STEPS + options.steps)]

    def checkpoint(self):
        """Each layer's input is kept."""
        from torch.utils.checkpoint import checkpoint

        def again(forward):
            return lambda x: checkpoint(forward, x, use_reentrant=False, preserve_rng_state=False)
        for layer in self.model.layers:
            layer.forward = again(layer.forward)

    def around(self):
        """Of a forward."""
        import torch
        if self.options.variant != "save_on_cpu":
            return contextlib.nullcontext()
        return torch.autograd.graph.save_on_cpu(pin_memory=self.device.type == "cuda")

    def step(self, number):
        """Its loss, on the device."""
        with self.around():
            loss = self.gpt.loss_of(self.model, self.words[number])
        loss.backward()
        if self.run is not None:
            self.run.step()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def now(device):
    """Seconds, when the device is done."""
    if device.type == "cuda":
        import torch
        torch.cuda.synchronize()
    return time.perf_counter()


def measured(trainer, report):
    """Steps: losses, seconds and memory into the report."""
    import torch
    device, losses, seconds = trainer.device, [], []
    for number in range(WARM_STEPS):
        losses.append(trainer.step(number).item())
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for number in range(WARM_STEPS, len(trainer.words)):
        begin = now(device)
        loss = trainer.step(number)
        seconds.append(now(device) - begin)
        losses.append(loss.item())
    report["losses"] = losses
    report["seconds"] = {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds)}
    report["peak_bytes"], report["peak_reserved_bytes"] = peak(trainer)


def peak(trainer):
    """Bytes at most: of cuda all, of the CPU what a step has above weights, and the buffers."""
    if trainer.device.type == "cuda":
        import torch
        return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    from common import memory
    with memory.measured() as timeline:
        trainer.step(0)
    buffers = trainer.run.buffers if trainer.run is not None else None
    return timeline.peak() + (buffers.memory.nbytes if buffers is not None else 0), None


def child(options):
    """Runs options.variant and writes its report."""
    import torch
    from pagestash import Error
    torch.set_num_threads(1)
    report = {"variant": options.variant, "tokens": options.lengths[0]}
    try:
        trainer = Trainer(options)
        measured(trainer, report)
        if trainer.run is not None:
            choice = trainer.run.choice
            report["memo"] = {"tokens": choice.tokens, "why": choice.why, "host_bytes": choice.host_bytes,
                              "gpu_bytes": choice.gpu_bytes, "deviations": trainer.run.deviations}
    except torch.OutOfMemoryError as error:
        report["does_not_fit"] = str(error).splitlines()[0]
    except Error as error:
        if options.variant != "auto" or trainer.run.choice is not None:
            raise
        report["refused"] = str(error)  # nothing can be hidden, say
    with open(options.outdir, "w", encoding="utf-8") as out:
        json.dump(report, out)


# ---- all of them

def run_variant(name, tokens, options, folder):
    """The report of a child; {"error"} where it failed."""
    path = os.path.join(folder, f"{name}-{tokens}.json")
    line = [sys.executable, os.path.abspath(__file__), path, "--variant", name, "--sequences", str(tokens)]
    for field in ("device", "layers", "hidden", "heads", "steps"):
        line += [f"--{field}", str(getattr(options, field))]
    done = subprocess.run(line, text=True, capture_output=True, check=False)
    sys.stderr.write(done.stderr)
    if done.returncode or not os.path.exists(path):
        lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        return {"variant": name, "tokens": tokens, "error": lines[-1]}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def compare(report, reference, tolerance):
    """Adds what the losses are to those of the reference; "": nothing is wrong."""
    if "error" in report:
        return report["error"]
    if "does_not_fit" in report:
        return "" if report["variant"] in MAY_LACK_MEMORY else report["does_not_fit"]
    if "refused" in report:
        return ""
    if report.get("memo", {}).get("deviations"):
        return f"deviations: {report['memo']['deviations']}"
    pairs = list(zip(report["losses"], reference["losses"], strict=True))
    report["losses_bit_equal"] = all(a == b for a, b in pairs)
    report["losses_differ_by"] = max(abs(a - b) / abs(b) for a, b in pairs)
    return "" if report["losses_differ_by"] <= tolerance else "losses differ"


def run_all(options):
    """All reports; what is wrong."""
    reports, wrong = [], []
    tolerance = TOLERANCE["bfloat16" if options.device == "cuda" else "float32"]
    with tempfile.TemporaryDirectory() as folder:
        for tokens in options.lengths:
            ours = [run_variant(name, tokens, options, folder) for name in VARIANTS]
            reference = next((one for one in ours if "losses" in one), None)
            for report in ours:
                text = compare(report, reference, tolerance)
                if text:
                    wrong.append(f"{report['variant']}, {tokens} tokens: {text}")
            reports += ours
    return reports, wrong


def table(reports):
    """For people."""
    yield f"{'tokens':>8} {'':24} {'memory MiB':>11} {'host MiB':>9} {'step ms':>9}  losses"
    for report in reports:
        head = f"{report['tokens']:8} {VARIANTS[report['variant']]:24} "
        if "losses" not in report:
            yield head + ("does not fit in memory" if "does_not_fit" in report else
                          report.get("refused") or report["error"])
            continue
        host = report["memo"]["host_bytes"] / 2 ** 20 if "memo" in report else 0
        same = "bit-equal" if report.get("losses_bit_equal") else \
            f"differ by {report.get('losses_differ_by', float('nan')):.2g}"
        yield (head + f"{report['peak_bytes'] / 2 ** 20:11.1f} {host:9.1f} "
               f"{report['seconds']['median'] * 1000:9.2f}  {same}")
        if report["variant"] == "auto":
            yield f"{'':8} {report['memo']['why']}"


def absent(device):
    """What is missing here; "" if nothing is."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch
    if device == "cuda" and not torch.cuda.is_available():
        return f"torch {torch.__version__} has no CUDA here"
    return ""


def main():
    options = parse()
    missing = absent(options.device)
    if missing:
        print(f"gpu-memo.py: {missing}", file=sys.stderr)
        return 4
    if options.variant:
        child(options)
        return 0
    import torch
    os.makedirs(options.outdir, exist_ok=True)
    reports, wrong = run_all(options)
    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    with open(os.path.join(options.outdir, "memo-report.json"), "w", encoding="utf-8") as out:
        json.dump({"schema_version": SCHEMA_VERSION, "command": "gpu-memo", "torch": torch.__version__,
                   "device": name, "steps": options.steps,
                   "model": {field: getattr(options, field) for field in ("layers", "hidden", "heads")},
                   "variants": reports, "wrong": wrong}, out, indent=2)
        out.write("\n")
    print("\n".join(table(reports)))
    print("; ".join(wrong) if wrong else f"losses equal in {len(reports)} runs, as far as they fit in memory")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
