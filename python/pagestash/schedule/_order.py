"""Schedules: in which order one GPU of a pipeline runs its passes."""
import csv
import ctypes
import dataclasses
import functools
import io
import weakref
from typing import Iterable, NamedTuple, Optional

from .. import _abi, _c, _files
from .._c import call, lib
from .._checks import Error, Same, integer, is_a, listed, number_of, shown
from ._words import KINDS, LETTERS, PASSES

_HEADER = ["rank", "kind", "chunk", "micro_batch", "pair"]


class Pass(NamedTuple):
    """Forward or backward of one chunk for one micro-batch. kind: "forward", "backward", or a
    backward's halves "backward_input" and "backward_weight". pairs: it starts together with the next
    pass, and their layers interleave."""
    kind: str
    chunk: int
    micro_batch: int
    pairs: bool = False


@dataclasses.dataclass(frozen=True)
class ScheduleInfo:
    """What a schedule is. peak: the most (chunk, micro-batch) that live at once, first after pass
    peak_at; is_fifo, is_lifo: in each chunk what began to live first (last) ends first; digest: of all
    that the stages share, equal on all of them."""
    num_passes: int
    peak: int
    peak_at: int
    is_fifo: bool
    is_lifo: bool
    splits_backward: bool
    is_forward_only: bool
    digest: int


class Schedule(Same):
    """The passes of one GPU, in order. Never changes; any thread.

    kind: "1f1b", "interleaved", "gpipe", "gpipe-reversed", "zb-h1", "zb-h2", "zb-v", "dualpipe",
    "dualpipe-v" (docs/scheduler.md has their lists); Schedule.of makes one of your own list. stage: this
    GPU, from 0. num_chunks 0: 1, or 2 where the kind wants it. group: interleaved, micro-batches that a
    chunk runs before the next (0: num_stages). overlaps_exchange: interleaved, one more forward before
    the first backward. limit: zb-v, most micro-batches in flight (0: num_stages).
    It is a sequence of Pass. Errors: Error with the C library's sentence."""

    def __init__(self, kind: str = "1f1b", *, num_stages: int = 1, stage: int = 0,
                 num_micro_batches: int = 1, num_chunks: int = 0, group: int = 0,
                 overlaps_exchange: bool = False, limit: int = 0):
        if kind == "list":
            raise Error("schedule kind 'list': Schedule.of takes your passes")
        self._make(kind, num_stages=num_stages, stage=stage, num_micro_batches=num_micro_batches,
                   num_chunks=num_chunks, group=group, overlaps_exchange=bool(overlaps_exchange),
                   limit=limit)

    def _make(self, kind, passes=None, **fields):
        numbers = {name: value if isinstance(value, bool) else integer(value, name)
                   for name, value in fields.items()}
        config = _c.sized(_abi.pst_schedule_config, kind=number_of(KINDS, kind, "schedule kind"),
                          **numbers)
        if passes is not None:
            config.passes, config.num_passes = passes, len(passes)
        self.handle = _c.create("pst_schedule_create", ctypes.byref(config))
        weakref.finalize(self, lib.pst_schedule_destroy, self.handle).atexit = False
        self._passes = None
        raw = _c.get("pst_schedule_get_info_sized", self.handle, _abi.pst_schedule_info)
        self.info = ScheduleInfo(*(getattr(raw, field.name)
                                   for field in dataclasses.fields(ScheduleInfo)))
        full = raw.config
        self.kind, self.num_stages, self.stage = KINDS[full.kind], full.num_stages, full.stage
        self.num_chunks, self.num_micro_batches = full.num_chunks, full.num_micro_batches
        self.group, self.limit = full.group, full.limit
        self.overlaps_exchange = full.overlaps_exchange

    @classmethod
    def of(cls, passes: Iterable, *, num_stages: int = 1, stage: int = 0) -> "Schedule":
        """Of your own list: of Pass or (kind, chunk, micro_batch[, pairs]), kind also a letter F, B, I,
        W or a number; or of what numpy() made. Errors: what makes it no schedule, with the pass's
        number from 0."""
        array = _pass_array(passes)
        schedule = cls.__new__(cls)
        schedule._make("list", passes=array, num_stages=num_stages, stage=stage)
        return schedule

    @classmethod
    def pipeline(cls, kind: str, num_stages: int, num_micro_batches: int, **fields) -> list:
        """The schedules of all stages; fields as for Schedule."""
        return [cls(kind, num_stages=num_stages, stage=stage, num_micro_batches=num_micro_batches,
                    **fields) for stage in range(integer(num_stages, "num_stages", 20))]

    @classmethod
    def recognise(cls, passes: Iterable, *, num_stages: int = 1,
                  stage: int = 0) -> Optional["Schedule"]:
        """The library's kind whose list is exactly this one, so that other numbers of micro-batches
        need no list; None: no kind has it. Errors: it is no schedule."""
        array, config = _pass_array(passes), _abi.pst_schedule_config()
        status = _c.status_of(
            "pst_schedule_recognise_sized", array, len(array), integer(num_stages, "num_stages"),
            integer(stage, "stage"), ctypes.byref(config), ctypes.sizeof(config))
        if status == _abi.PST_E_AGAIN:
            return None
        _c.check(status, "pst_schedule_recognise")
        return cls.of_config(config)

    @classmethod
    def of_config(cls, config: _abi.pst_schedule_config) -> "Schedule":
        """Of the C struct of one of the library's kinds."""
        names = ("num_stages", "stage", "num_micro_batches", "num_chunks", "group",
                 "overlaps_exchange", "limit")
        return cls(KINDS[config.kind], **{name: getattr(config, name) for name in names})

    def with_micro_batches(self, num_micro_batches: int) -> "Schedule":
        """The same kind for another number of micro-batches. Errors: a list has one number."""
        if self.kind == "list":
            raise Error("num_micro_batches: a list of passes has one number of them")
        return Schedule(self.kind, **{**self._fields(), "num_micro_batches": num_micro_batches})

    def __reduce__(self):
        if self.kind == "list":
            return functools.partial(Schedule.of, num_stages=self.num_stages, stage=self.stage), (list(self),)
        return functools.partial(Schedule, **self._fields()), (self.kind,)

    def _fields(self):
        """Arguments that make a schedule of this kind again."""
        return {"num_stages": self.num_stages, "stage": self.stage, "num_chunks": self.num_chunks,
                "num_micro_batches": self.num_micro_batches, "limit": self.limit,
                "group": self.group if self.kind == "interleaved" else 0,
                "overlaps_exchange": self.overlaps_exchange}

    def _list(self):
        if self._passes is None:
            raw, passes = _abi.pst_pass(), []
            for n in range(self.info.num_passes):
                call("pst_schedule_get_pass", self.handle, n, ctypes.byref(raw))
                passes.append(Pass(PASSES[raw.kind], raw.chunk, raw.micro_batch, raw.pairs))
            self._passes = tuple(passes)
        return self._passes

    def __len__(self):
        return self.info.num_passes

    def __getitem__(self, n):
        return self._list()[n]

    def __iter__(self):
        return iter(self._list())

    def __repr__(self):
        return (f"Schedule({self.kind!r}, num_stages={self.num_stages}, stage={self.stage}, "
                f"num_micro_batches={self.num_micro_batches}, num_chunks={self.num_chunks}: "
                f"{len(self)} passes)")

    def numpy(self):
        """The passes as a structured array: kind (index into PASSES), chunk, micro_batch, pairs. Errors:
        numpy is not installed."""
        try:
            import numpy
        except ImportError:
            raise Error("numpy: it is not installed; list(schedule) has the same") from None
        dtype = [("kind", "u1"), ("chunk", "u4"), ("micro_batch", "u4"), ("pairs", "?")]
        return numpy.array([(PASSES.index(p.kind), *p[1:]) for p in self._list()], dtype)

    def slots(self, chunk: int) -> int:
        """How many slots a chunk has: the most of its micro-batches that live at once."""
        out = ctypes.c_uint32()
        call("pst_schedule_get_slots", self.handle, integer(chunk, "chunk"), ctypes.byref(out))
        return out.value

    def slot(self, chunk: int, micro_batch: int) -> Optional[int]:
        """The slot of a micro-batch; None: there is no such micro-batch, or no backward."""
        slot = lib.pst_schedule_slot(self.handle, integer(chunk, "chunk"),
                                     integer(micro_batch, "micro_batch"))
        return None if slot == _abi.PST_SCHEDULE_NO_SLOT else slot


def _pass_array(passes):
    array = [_raw_pass(n, given) for n, given in enumerate(listed(passes, "passes"))]
    return (_abi.pst_pass * len(array))(*array)


def _raw_pass(n, given):
    try:
        kind, chunk, micro_batch, *pairs = given
    except (TypeError, ValueError):
        raise Error(f"pass {n}: {shown(given)}: (kind, chunk, micro_batch[, pairs]) is wanted") from None
    if isinstance(kind, str):
        number = number_of(LETTERS if kind in LETTERS else PASSES, kind, f"pass {n}: kind")
    else:
        number = integer(kind, f"pass {n}: kind", 2)
    return _abi.pst_pass(integer(micro_batch, f"pass {n}: micro_batch"),
                         integer(chunk, f"pass {n}: chunk"), number, bool(pairs and pairs[0]))


def write_lists(path, schedules: Iterable[Schedule]) -> None:
    """Writes the passes of all ranks as `pagestash simulate --schedule list:FILE` reads them, in whole or
    not at all. Errors: the file cannot be written."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(_HEADER)
    for rank, schedule in enumerate(listed(schedules, "schedules")):
        out.writerows([rank, LETTERS[PASSES.index(p.kind)], p.chunk, p.micro_batch, int(p.pairs)]
                      for p in is_a(schedule, Schedule, f"schedules[{rank}]"))
    _files.write(path, text.getvalue().encode("ascii"), "write_lists")


def read_lists(path) -> list:
    """Reads what write_lists or `pagestash simulate --list` wrote; the Schedule of each rank. Errors: Error
    with file and line."""
    path, rows = _files.read_rows(path, "read_lists")
    header = rows.pop(0) if rows else []
    if header not in (_HEADER, _HEADER[:-1]):
        raise Error(f"{path}:1: header {','.join(header)!r}: wanted is {','.join(_HEADER)}")
    ranks = {}
    for line, row in enumerate(rows, 2):
        try:
            rank, kind, chunk, micro_batch, *pair = row
            one = (kind, int(chunk), int(micro_batch), pair == ["1"])
            ranks.setdefault(int(rank), []).append(one)
        except ValueError:
            raise Error(f"{path}:{line}: {','.join(row)!r}: wanted is {','.join(header)}") from None
    if list(ranks) != list(range(len(ranks))) or not ranks:
        raise Error(f"{path}: ranks {list(ranks)}: wanted are 0, 1, ... in order")
    return [Schedule.of(ranks[rank], num_stages=len(ranks), stage=rank) for rank in ranks]
