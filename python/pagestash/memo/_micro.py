"""Several micro-batches of a step whose optimizer comes once, behind the last: made of a profile of the first
micro-batch with the optimizer, and of one that follows, which adds to gradients that are there."""
from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Optional

from .._checks import within
from .._c import Error
from ._trace import Row

SCHEDULES = ("sequential", "1f1b")
_MOST = 1 << 20


def passes(micro_batches: int, schedule: str, num_stages: int = 1,
           stage: int = 0) -> Iterator[tuple[bool, int]]:
    """(is a forward, its micro-batch) in the order of `schedule` for a stage of a pipeline. Errors: a
    schedule or a stage that there is not."""
    check(micro_batches, schedule, num_stages, stage)
    ahead = min(num_stages - stage - 1, micro_batches) if schedule == "1f1b" else 0
    for micro_batch in range(ahead):
        yield True, micro_batch
    for micro_batch in range(ahead, micro_batches):
        yield True, micro_batch
        yield False, micro_batch - ahead
    for micro_batch in range(micro_batches - ahead, micro_batches):
        yield False, micro_batch


def check(micro_batches: int, schedule: str, num_stages: int, stage: int) -> None:
    """Errors: a schedule or a stage that there is not."""
    if schedule not in SCHEDULES:
        raise Error(f"schedule {schedule!r}: allowed are {', '.join(SCHEDULES)}")
    within(micro_batches, "micro_batches", 1, _MOST)
    within(num_stages, "num_stages", 1, _MOST)
    within(stage, "stage", 0, num_stages - 1)
    if schedule != "1f1b" and num_stages != 1:
        raise Error(f"num_stages {num_stages}: allowed with schedule '1f1b' only")


def parts(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Of a recording of several micro-batches: the first with what comes once, and the one that follows.
    Ids are 0, 1, ... in each; frees of what another micro-batch made are left out."""
    return of(rows, 0, None), of(rows, 1)


def of(rows: list[Row], *micro_batches: Optional[int]) -> list[Row]:
    """The rows of these, without frees of what others made."""
    rows = [row for row in rows if row.micro_batch in micro_batches]
    ids: dict[int, int] = {}
    out = []
    for row in rows:
        if row.op == "malloc":
            ids[row.id] = len(ids)
        if row.id in ids:
            out.append(dataclasses.replace(row, id=ids[row.id]))
    return out


def with_border(rows: list[Row]) -> list[Row]:
    """With a mark where what comes once begins, which an expansion keeps in its place."""
    at = next((at for at, row in enumerate(rows) if row.micro_batch is None), len(rows))
    return [*rows[:at], Row("mark", 0, 0, 0, "other", None, 0, "sync"), *rows[at:]]


def composed(first: list[Row], following: list[Row], order) -> list[Row]:
    """The requests of all micro-batches. first: expanded, with_border; following: expanded; order: of
    `passes`."""
    border = max(at for at, row in enumerate(first) if row.tag == "sync")
    first, once = ([row for row in rows if row.tag != "sync"] for rows in (first[:border], first[border:]))
    halves = _halves(first), _halves(following)
    out: list[Row] = []
    ids: dict[tuple[int, int], int] = {}
    for is_forward, micro_batch in order:
        _add(out, ids, halves[micro_batch > 0][not is_forward], micro_batch, micro_batch)
    _add(out, ids, once, 0, None)
    return out


def _halves(rows):
    """Up to the end of the layers' forwards, and the rest."""
    end = max(at for at, row in enumerate(rows) if row.phase == "forward") + 1
    return rows[:end], rows[end:]


def _add(out, ids, rows, of, micro_batch):
    for row in rows:
        if row.op == "malloc":
            ids[of, row.id] = len(ids)
        out.append(dataclasses.replace(row, id=ids[of, row.id], micro_batch=micro_batch))

