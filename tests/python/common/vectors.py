"""The vectors that tests/tools/simulate holds the command to, for the package: read from its files."""
import contextlib
import importlib
import os
import sys

from pagestash import SimulatedLayer

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
WORK = {"forward_ns": (1, 4, 1), "backward_ns": (2, 8, 2)}
_FIELDS = {"--rule": "rule", "--sources": "num_sources", "--destinations": "num_destinations",
           "--streams": "num_streams", "--ahead": "ahead", "--by-slot": "by_slot",
           "--keeps-nothing": "keeps_nothing"}


@contextlib.contextmanager
def _on_path(*folders):
    before = list(sys.path)
    sys.path[:0] = [os.path.join(ROOT, "tests", "tools", folder) for folder in folders]
    try:
        yield
    finally:
        sys.path[:] = before


def load():
    """The modules `scene` and `vectors` of tests/tools/simulate."""
    with _on_path("common", "simulate"):
        scene = importlib.import_module("scene")
        tables = importlib.import_module("vectors")
    return scene, tables


def fields_of(flags):
    """Fields of pagestash.simulate for flags of `pagestash simulate` that choose sets and rule."""
    fields, flags = {}, list(map(str, flags))
    while flags:
        name = _FIELDS[flags.pop(0)]
        value = True
        if flags and not flags[0].startswith("--"):
            value = flags.pop(0)
        fields[name] = int(value) if isinstance(value, str) and value.isdigit() else value
    return fields


def paged(pages, num_layers, schedule, **fields):
    """Layers whose visits take pages(chunk, layer, micro_batch)."""
    return SimulatedLayer.repeat(
        num_layers, num_chunks=schedule.num_chunks,
        pages=lambda c, n: [pages(c, n, i) for i in range(schedule.num_micro_batches)], **fields)
