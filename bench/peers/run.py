#!/usr/bin/env python3
"""Times pagestash beside what a user would take instead, by the rules of README.md."""
import argparse
import importlib
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
sys.dont_write_bytecode = True

import libpagestash  # noqa: E402
import machine as machines  # noqa: E402
import measure  # noqa: E402
import megatron  # noqa: E402
import payload  # noqa: E402
import plain  # noqa: E402
import report  # noqa: E402
from common.script import ABSENT, BAD_FILE, DONE, NO, Parser, Stop, run, write_json  # noqa: E402
from ours import Pagestash  # noqa: E402

MIB = 1 << 20
WIDTHS = (7168, 4096, 2048)
MIN_REPLAYS = 20
LAYER_ROWS = 288  # the widest tensor comes to just under 4 MiB
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def number(low, high, name="a number"):
    def parse(text):
        if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r}: allowed is {name} from {low} to {high}")
        return int(text)
    return parse


def size(text):
    match = re.fullmatch(r"([0-9]{1,12})(KiB|MiB|GiB)?", text)
    value = int(match[1]) * UNITS[match[2] or ""] if match else 0
    if not MIB <= value <= 1 << 40:
        raise argparse.ArgumentTypeError(
            f"{text!r}: allowed are bytes, or KiB, MiB, GiB, from 1MiB to 1024GiB")
    return value & ~7


def parse():
    parser = Parser(
        "run.py", report.SCHEMA_VERSION, description="Times stash and restore of pagestash beside a Triton stash in "
        "the usual style, torch's indexed copies and plain copies, in one process, and checks "
        "every byte.", epilog="Exit codes: 0 done, whatever the ratios; 1 bytes differ, or memory "
        "does not suffice; 2 usage; 3 the file of --megatron-ops is not the expected one; 4 torch, "
        "triton or the GPU is absent.")
    add = parser.add_argument
    add("--device", choices=("cuda", "cpu"), default="cuda", help="(%(default)s)")
    parser.add_json()
    add("--quick", action="store_true", help="64MiB and one width, 20 replays")
    add("--bytes", type=size, action="append", metavar="N",
        help="size of the single tensor, may be repeated (256MiB and 64MiB)")
    add("--width", type=number(16, 65536, "elements"), action="append", metavar="N",
        help="bf16 elements in its row, may be repeated (7168, 4096 and 2048)")
    add("--layers", type=number(0, 64), default=4, metavar="N",
        help="layer groups in one replay, 0: no layer group (%(default)s)")
    add("--rows", type=number(payload.SCALE_ROWS, 65536), default=LAYER_ROWS, metavar="N",
        help=f"live rows of the layer group, a multiple of {payload.SCALE_ROWS} (%(default)s)")
    add("--replays", type=number(MIN_REPLAYS, 10000), metavar="N",
        help=f"timed replays of each operation, at least {MIN_REPLAYS} (31)")
    add("--anchor-bytes", type=size, default=1 << 30, metavar="N",
        help="size of the contiguous copy (1GiB)")
    add("--num-sms", type=number(0, 1024), default=0, metavar="N",
        help="SM budget of pagestash (0: all)")
    add("--cache", type=size, metavar="N",
        help="take the cache to be this large (as the machine says)")
    add("--library", dest="shared_object", metavar="PATH",
        help="libpagestash.so (PAGESTASH_LIBRARY, else the newest in build/*/)")
    add("--megatron-ops", metavar="PATH", help="your copy of Megatron-LM's "
        "megatron/core/transformer/moe/ops/paged_stash.py, timed as well")
    options = parser.parse_args()
    complete(parser, options)
    return options


def complete(parser, options):
    """Defaults that hang on others, and what can be refused before any work is done."""
    quick = options.quick
    options.bytes = options.bytes or ([64 * MIB] if quick else [256 * MIB, 64 * MIB])
    options.width = options.width or (WIDTHS[:1] if quick else WIDTHS)
    options.replays = options.replays or (MIN_REPLAYS if quick else 31)
    if INTERPRETED and options.device == "cuda":
        parser.error("--device cuda: TRITON_INTERPRET=1 needs --device cpu")
    if INTERPRETED:
        options.replays = 0
    if options.rows % payload.SCALE_ROWS:
        parser.error(f"--rows {options.rows}: allowed is a multiple of {payload.SCALE_ROWS}")
    # the library would warn of a variable that is not its own
    variable = os.environ.pop("PAGESTASH_LIBRARY", "")
    name = "--library" if options.shared_object else "PAGESTASH_LIBRARY"
    options.shared_object = options.shared_object or variable
    if options.shared_object and not os.path.isfile(options.shared_object):
        parser.error(f"{name} {options.shared_object}: no such file")
    parser.check_json(options.json)


def find(module):
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name == module:
            return None
        raise Stop(ABSENT, f"{module} cannot be loaded: {error}") from error


def open_machine(device):
    """The machine, and torch and triton or None."""
    torch = find("torch")
    if device == "cpu":
        return machines.Host(torch), torch, find("triton")
    if torch is None:
        raise Stop(ABSENT, "--device cuda: torch is not installed; --device cpu needs none")
    if not torch.cuda.is_available():
        raise Stop(ABSENT, "--device cuda: torch finds no GPU; --device cpu needs none")
    triton = find("triton")
    if triton is None:
        raise Stop(ABSENT, "--device cuda: triton is not installed; --device cpu needs none")
    return machines.Cuda(torch), torch, triton


def load_library(options, unavailable):
    path = libpagestash.find(options.shared_object, ROOT)
    if path is None:
        unavailable.append({"peer": "pagestash", "why": "no build/*/libpagestash.so, and no "
                            "--library"})
        return None
    try:
        library = libpagestash.Library(path)
        kind = b"cuda" if options.device == "cuda" else b"host"
        library.device_close(library.create("device_open", kind, 0))
        return library
    except (OSError, AttributeError, libpagestash.Error) as error:
        unavailable.append({"peer": "pagestash", "why": f"{path}: {error}"})
        return None


def gather(options, machine, torch, triton, library, unavailable):
    """Makers of the subjects that can run here: payload -> subject."""
    makers = [plain.Copy]
    if library:
        makers.append(lambda payload: Pagestash(library, payload, options.num_sms))
    if torch:
        makers.append(plain.TorchIndex)
    else:
        unavailable.append({"peer": "torch_index", "why": "torch is not installed"})
    why = None
    if torch is None or triton is None:
        why = f"{'triton' if torch else 'torch'} is not installed"
    elif machine.kind == "cpu" and not INTERPRETED:
        why = "triton compiles for GPUs; TRITON_INTERPRET=1 checks everything and times nothing"
    if why is None:
        rows = importlib.import_module("triton_rows")
        makers.append(lambda payload: rows.TritonRows(payload))
    else:
        unavailable.append({"peer": "triton", "why": why})
    if options.megatron_ops and why is None:
        module = megatron.load(options.megatron_ops)
        makers.append(lambda payload: megatron.MegatronRows(payload, module,
                                                            options.megatron_arguments))
    elif options.megatron_ops:
        unavailable.append({"peer": "megatron", "why": why})
    return makers


def configurations(options):
    singles = [payload.single(size, width) for size in options.bytes for width in options.width]
    return singles + ([payload.layer(options.rows, options.layers)] if options.layers else [])


def check_memory(machine, configs, num_stores, options):
    wanted = [(2 * options.anchor_bytes, "the contiguous copy: lower --anchor-bytes")]
    wanted += [(measure.bytes_needed(machine, config, num_stores, options.replays),
                f"{config.name} of {config.bytes * config.layers} bytes") for config in configs]
    free = machine.free_bytes()
    for needed, what in wanted:
        if needed > free:
            raise Stop(NO, f"{needed} bytes are needed and {free} are free for {what}")


def measure_anchors(options, machine):
    copy_contiguous = None
    if machine.kind == "cuda":
        copy_contiguous = importlib.import_module("triton_rows").copy_contiguous
    seconds, wrong = plain.measure_ceiling(machine, options.anchor_bytes, options.replays,
                                           copy_contiguous)
    anchors = [report.anchor(name, options.anchor_bytes, seconds[name], wrong[name])
               for name in seconds]
    if launch := plain.measure_launch(machine, options.replays):
        anchors.append(report.anchor("one_node", 0, launch))
    machine.release_memory()
    return anchors


def verdict(entries):
    """Tells what went wrong, a line each, and gives the exit code."""
    bad = [entry for entry in entries if entry["mismatched_bytes"] or entry.get("fault")]
    for entry in bad:
        name = " ".join(entry[key] for key in ("config", "peer", "op", "name") if key in entry)
        fault = f", {entry['fault']}" if entry.get("fault") else ""
        print(f"run.py: {name}: {entry['mismatched_bytes']} bytes differ{fault}", file=sys.stderr)
    return NO if bad else DONE


def compare(options):
    unavailable, rows, table = [], [], options.json != "-"
    if options.megatron_ops:
        options.megatron_arguments = megatron.arguments_of(options.megatron_ops)
    machine, torch, triton = open_machine(options.device)
    machine.cache_bytes = options.cache or machine.cache_bytes
    library = load_library(options, unavailable)
    makers = gather(options, machine, torch, triton, library, unavailable)
    configs = configurations(options)
    check_memory(machine, configs, len(makers) - 1, options)
    anchors = measure_anchors(options, machine)
    a0 = report.best_anchor(anchors)
    if table:
        report.print_header(anchors, unavailable)
    for config in configs:
        more = report.rows_of(measure.measure(machine, config, makers, options.replays), a0)
        machine.release_memory()
        rows += more
        if table:
            report.print_rows(more)
    if options.json:
        found = torch, triton, library
        document = report.assemble(machine, ROOT, found, unavailable, anchors, rows)
        write_json(document, options.json)
    return verdict(anchors + rows)


def main():
    options = parse()
    try:
        return compare(options)
    except megatron.BadFile as error:
        raise Stop(BAD_FILE, f"--megatron-ops {error}") from error
    except MemoryError as error:
        raise Stop(NO, "out of memory") from error
    except libpagestash.Error as error:
        raise Stop(NO, str(error)) from error
    except RuntimeError as error:
        # torch's errors, that of memory which does not suffice too, are of this kind
        raise Stop(NO, f"{type(error).__name__}: {str(error).splitlines()[0]}") from error


if __name__ == "__main__":
    run("run.py", main)
