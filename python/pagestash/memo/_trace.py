"""Rows of allocation traces (docs/formats.md): one iteration out of a recording, and what two have in
common."""
from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from .._c import Error

HEADER = "op,id,size,stream,phase,layer,micro_batch,rank,tag"


@dataclasses.dataclass
class Row:
    """One row. bytes: 0 where the file has none; layer, micro_batch: None where it has none."""
    op: str
    id: int
    bytes: int
    stream: int
    phase: str
    layer: int | None
    micro_batch: int | None
    tag: str

    def line(self, rank: int) -> str:
        """As the file has it."""
        def text(number):
            return "" if number is None else str(number)
        return (f"{self.op},{self.id},{self.bytes or ''},{self.stream},{self.phase},"
                f"{text(self.layer)},{text(self.micro_batch)},{rank},{self.tag}")


def read(lines: Iterable[str], name: str) -> tuple[list[Row], int]:
    """The rows and their rank. Errors: the first row that is none of a trace of one rank."""
    rows, ranks = [], set()
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if number == 1:
            if line != HEADER:
                raise Error(f"{name}:1: {line[:60]!r}: allowed is {HEADER}")
            continue
        fields = line.split(",")
        try:
            op, ident, size, stream, phase, layer, micro_batch, rank, tag = fields
            rows.append(Row(op, int(ident or 0), int(size or 0), int(stream or 0), phase,
                            int(layer) if layer else None,
                            int(micro_batch) if micro_batch else None, tag))
            ranks.add(int(rank or 0))
        except ValueError:
            raise Error(f"{name}:{number}: {line[:60]!r}: allowed is a row of {HEADER}") from None
    if len(ranks) > 1:
        raise Error(f"{name}: requests of {len(ranks)} devices: allowed is one")
    return rows, min(ranks, default=0)


def iterations(rows: list[Row]) -> list[list[Row]]:
    """What stands behind each iteration's mark. Frees and uses of what was there before, and of what
    dies in a later iteration, are left out; ids are 0, 1, ... in each."""
    out: list[list[Row]] = []
    ids: dict[int, int] = {}
    for row in rows:
        if row.op == "mark" and row.tag == "iteration":
            out.append([])
            ids = {}
        elif out and row.op == "malloc":
            ids[row.id] = len(ids)
            out[-1].append(dataclasses.replace(row, id=ids[row.id]))
        elif out and row.id in ids:
            out[-1].append(dataclasses.replace(row, id=ids[row.id]))
    return out


def shape(rows: Iterable[Row]) -> list[tuple]:
    """What an allocator sees of the requests: of each malloc its bytes (rounded up to 512), stream, and
    before which malloc it is freed (None: never). The order of frees between two mallocs is nobody's
    concern."""
    out: list[tuple] = []
    index: dict[int, int] = {}
    for row in rows:
        if row.op == "malloc":
            index[row.id] = len(out)
            out.append((-(-row.bytes // 512) * 512, row.stream, None))
        elif row.op == "free":
            at = index[row.id]
            out[at] = (*out[at][:2], len(out))
    return out


def difference(ours: list[tuple], theirs: list[tuple]) -> str:
    """The first malloc in which two shapes differ, in words; "" where they are alike."""
    for number, (one, other) in enumerate(zip(ours, theirs)):
        if one[:2] != other[:2]:
            return (f"request {number} has {one[0]} bytes on stream {one[1]}, and {other[0]} bytes "
                    f"on stream {other[1]}")
        if one != other:
            return (f"request {number} of {one[0]} bytes is freed before request {one[2]}, and "
                    f"before request {other[2]}")
    if len(ours) != len(theirs):
        return f"there are {len(ours)} requests, and {len(theirs)}"
    return ""


def text(rows: Iterable[Row], rank: int) -> str:
    """The file of one iteration."""
    mark = Row("mark", 0, 0, 0, "", None, None, "iteration")
    return "\n".join([HEADER, mark.line(rank), *(row.line(rank) for row in rows)]) + "\n"
