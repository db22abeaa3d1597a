"""pagestash.plan(...): an address for every tensor of an allocation trace, with a proof, as an object."""
import array
import os
import pickle
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

from . import _files, command
from ._checks import Error, path_of
from .command import Answer, Table

TRACE = ("op", "id", "size", "stream", "phase", "layer", "micro_batch", "rank", "tag")
MINIMALLOC = ("id", "lower", "upper", "size")
_SOURCES = ("trace", "memo", "minimalloc", "stalloc", "pytorch")
_NOT_HERE = {"json": "the plan has .json", "help": "run `pagestash help plan`",
             "version": "pagestash.__version__ is the same",
             "mip_model": "it gives no plan; run `pagestash plan --mip-model`"}


class Plan(Answer):
    """A plan, or the proof that there is none within the capacity. Bytes are integers; docs/formats.md
    has every key."""

    __slots__ = ("_file", "_reason", "_arrays")
    status: str  # "optimal" (proved: none is lower), "feasible", "impossible" (proved)
    peak: int | None  # bytes: the highest address in use; None: impossible
    lower_bound: int  # bytes: proved: no flat plan is lower
    gap: float | None  # (peak - lower_bound) / lower_bound
    tensors: int  # planned
    align: int  # bytes: addresses and sizes are multiples of it
    capacity: int  # bytes; 0: none was given
    seconds: float  # of planning
    ended_by: str  # "proof", "capacity" (it fits), "deadline", "steps", "memory", or "stages" (all are done)
    bound_proof: Answer  # .instant, .live_bytes, .live: ids of the tensors that live then
    placements: tuple[Answer, ...]  # .id, .offset in the order of the mallocs; .ids, .offsets are quicker
    memory: Answer  # with gpu_memory: .fits, .regions, ...

    def __init__(self, data: dict, file: bytes = b"", reason: str = ""):
        super().__init__(data)
        object.__setattr__(self, "_file", file)
        object.__setattr__(self, "_reason", reason)
        object.__setattr__(self, "_arrays", {})

    def __reduce__(self):
        return type(self), (self._json, self._file, self._reason)

    @property
    def fits(self) -> bool:
        """There is a plan, and with gpu_memory all fits into that."""
        return self.peak is not None and self.get("memory", {}).get("fits", True)

    @property
    def reason(self) -> str:
        """The sentence that says why nothing fits; "" where it does."""
        return self._reason

    @property
    def ids(self):
        """Of the planned tensors, in the order of the mallocs: int64, read-only, of numpy if that is there,
        else an array.array."""
        return self._array("id")

    @property
    def offsets(self):
        """Addresses of the tensors of .ids: bytes from the begin of the arena; int64 likewise."""
        return self._array("offset")

    def _array(self, key):
        if key not in self._arrays:
            values = array.array("q", [placed[key] for placed in self._json["placements"]])
            try:
                import numpy
            except ImportError:
                return values
            values = numpy.frombuffer(values, dtype=numpy.int64) if values else numpy.empty(0, numpy.int64)
            values.flags.writeable = False
            self._arrays[key] = values
        return self._arrays[key]

    def save(self, path: str | os.PathLike) -> None:
        """Writes the plan file that an arena replays, in whole or not at all. Error where there is no plan."""
        if not self._file:
            raise Error(f"save: there is no plan to write: {self._reason or self.status}")
        _files.write(path, self._file, "save")

    def _table(self):
        def size(count):
            return "-" if count is None else f"{count} ({count / (1 << 20):.2f} MiB)"
        gap = "-" if self.gap is None else f"{100 * self.gap:.2f} %"
        cells = [self.status, size(self.peak), size(self.lower_bound), gap, self.tensors,
                 f"{self.seconds:.3f}"]
        columns = ["status", "peak", "lower bound", "gap", "tensors", "seconds"]
        name = "the rows given" if self.trace == "-" else self.trace
        return Table(f"plan of {name}", columns, [cells], [self._reason] if self._reason else [])

    def __str__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


def plan(trace: Any = None, **flags: Any) -> Plan:
    """An address for every tensor of an allocation trace: what `pagestash plan` answers.

        pagestash.plan("trace.csv", capacity="40GiB", deadline=10)
        pagestash.plan([("malloc", 1, 4096), ("malloc", 2, 512), ("free", 1), ("free", 2)])
        pagestash.plan(pytorch=torch.cuda.memory._snapshot()).save("plan.csv")

    trace: a file in our CSV, or rows of it: tuples (op, id, size, stream, phase, layer, micro_batch, rank,
    tag), of which the last may be left out, or mappings with these keys; None is an empty field.
    memo, minimalloc, stalloc, pytorch: in its place a file in that format; for minimalloc also rows (id,
    lower, upper, size), for pytorch also the snapshot itself.
    flags: flags by their names with underscores. True: a flag without a value; None, False: not given; a
    list: its values with commas between; pin: {id: offset}; reserve: [(from, to), ...].

    Returns a Plan; one with status "impossible" or without `fits` where the answer is no.
    Raises pagestash.Error with the command's sentence and `exit_code`: 1: nothing found within the capacity
    (and no proof that there is nothing), 2: a flag or value, 3: a bad trace. KeyboardInterrupt ends the
    planning, and there is no plan; `pagestash plan` keeps the best one so far."""
    for name, instead in _NOT_HERE.items():
        if name in flags:
            raise Error(f"plan: {name} is no argument here: {instead}")
    if trace is not None:
        flags = {"trace": trace, **flags}
    given = [name for name in _SOURCES if flags.get(name) is not None]
    if len(given) != 1:
        raise Error(f"plan: {' and '.join(given) or 'no trace'} given: allowed is one of "
                    f"{', '.join(_SOURCES)}")
    flags = dict(flags)
    flags[given[0]], stdin = _source(given[0], flags[given[0]])
    for name, between in (("pin", "@"), ("reserve", ":")):
        flags[name] = _pairs(flags.get(name), between)
    return _run(flags, stdin)


def _run(flags, stdin):
    """With the plan file, which --out writes where there is a plan."""
    out = flags.pop("out", None)
    if out is not None:
        path_of(out, "plan: out")
    with tempfile.TemporaryDirectory(prefix="pagestash-") as folder:
        name = os.path.join(folder, "plan.csv")
        words = ["plan", *command.flags_of(flags, joined=True), "--out", name]
        data, reason = command.ask(words, stdin)
        file = b""
        if os.path.exists(name):
            with open(name, "rb") as opened:
                file = opened.read()
    answer = Plan(data, file, reason)
    if out is not None and file:
        answer.save(out)
    return answer


def _source(name, value):
    """The word for a trace, and what goes to the command's stdin."""
    if isinstance(value, (str, os.PathLike)):
        return value, None
    if name == "pytorch" and isinstance(value, Mapping):
        return "-", pickle.dumps(dict(value), protocol=4)
    columns = {"trace": TRACE, "minimalloc": MINIMALLOC}.get(name)
    if columns is None or not isinstance(value, Iterable):
        raise Error(f"plan: {name} is a {type(value).__name__}: allowed is a file"
                    f"{', or rows' * (columns is not None)}{', or a snapshot' * (name == 'pytorch')}")
    lines = [",".join(columns)]
    lines += [_line(columns, number, row) for number, row in enumerate(value)]
    return "-", ("\n".join(lines) + "\n").encode()


def _line(columns, number, row):
    where = f"plan: row {number}"
    if isinstance(row, Mapping):
        if unknown := [key for key in row if key not in columns]:
            raise Error(f"{where}: {unknown[0]!r}: allowed are {', '.join(columns)}")
        row = [row.get(column) for column in columns]
    elif isinstance(row, str) or not isinstance(row, Iterable):
        raise Error(f"{where}: {row!r}: allowed is a tuple or a mapping of {', '.join(columns)}")
    row = list(row)
    if len(row) > len(columns):
        raise Error(f"{where}: {len(row)} fields: allowed are {len(columns)}: {', '.join(columns)}")
    row += [None] * (len(columns) - len(row))
    cells = ["" if cell is None else command.word_of(cell) for cell in row]
    if wrong := [cell for cell in cells if any(sign in cell for sign in ",\n\r")]:
        raise Error(f"{where}: {wrong[0]!r} has a comma or the end of a line in it")
    return ",".join(cells)


def _pairs(value, between):
    """[(a, b), ...] or {a: b} as a:b,...; anything else as it is."""
    items = value.items() if isinstance(value, Mapping) else value
    if isinstance(items, str) or not isinstance(items, Iterable):
        return value
    return [between.join(map(command.word_of, item)) if isinstance(item, (tuple, list)) else item
            for item in items]

