"""What grows with the layers outside of them, an optimizer's temporaries, say: two recordings, of which one
has a layer more, are laid beside each other. docs/formats.md has how a trace says it."""
from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ._trace import Row

_GAP, _OTHER_SIZE, _OTHER_FREE = 8, 8, 1  # costs of an alignment


def labelled(one: list[Row], more: list[Row], layers: int) -> list[Row]:
    """The rows of `one`, of that many layers; those that `more` has once more are labelled with a layer,
    and a tensor that has more bytes there is followed by a mark `grow`."""
    rows = [dataclasses.replace(row) for row in one]
    own = {row.id for row in rows if row.op == "malloc" and row.phase in ("forward", "backward")}
    sizes = _sizes(one), _sizes(more)
    grow: dict[int, int] = {}
    for part, other in zip(_parts(rows), _parts(more)):
        pairs, gaps = _aligned(part, other, sizes)
        for ours, theirs in pairs:
            if ours.op == "malloc" and theirs.bytes > ours.bytes:
                grow[ours.id] = theirs.bytes - ours.bytes
        for at, shift, length in gaps:
            _label(part, other, (at, shift, length), layers, own)
    out = []
    for row in rows:
        out.append(row)
        if row.op == "malloc" and row.id in grow:
            out.append(dataclasses.replace(row, op="mark", bytes=grow[row.id], layer=None, tag="grow"))
    return out


def _sizes(rows):
    return {row.id: row.bytes for row in rows if row.op == "malloc"}


def _parts(rows: list[Row]) -> Iterator[list[Row]]:
    """Before the layers' forwards, between those and their backwards, behind them."""
    forward = [at for at, row in enumerate(rows) if row.phase == "forward"]
    backward = [at for at, row in enumerate(rows) if row.phase == "backward"]
    yield rows[:forward[0]]
    yield rows[forward[-1] + 1:backward[0]]
    yield rows[backward[-1] + 1:]


def _cost(ours, theirs, sizes):
    """Of taking two rows for the same; None: they are not."""
    if (ours.op, ours.tag, ours.stream) != (theirs.op, theirs.tag, theirs.stream):
        return None
    if ours.op == "malloc":
        return 0 if ours.bytes == theirs.bytes else _OTHER_SIZE if ours.bytes < theirs.bytes else None
    return 0 if sizes[0].get(ours.id) == sizes[1].get(theirs.id) else _OTHER_FREE


def _aligned(part, other, sizes):
    """Pairs of rows that are the same, and gaps (at, shift, length): what `other` has more before
    part[at], from other[at + shift] on. The fewest gaps and other sizes."""
    extra = len(other) - len(part)
    if extra < 0:
        return [], []
    best: list[list] = [[None] * (extra + 1) for _ in range(len(part) + 1)]
    for at in range(len(part) + 1):
        for shift in range(extra + 1):
            best[at][shift] = _step(part, other, sizes, best, at, shift)
    if best[-1][extra] is None:
        return [], []
    pairs, gaps, at, shift, was_gap = [], [], len(part), extra, False
    while at > 0 or shift > 0:
        same, gap = best[at][shift]
        is_gap = same is None or gap is not None and gap + (0 if was_gap else _GAP) < same
        if is_gap:
            shift -= 1
            if was_gap:
                gaps[-1] = (at, shift, gaps[-1][2] + 1)
            else:
                gaps.append((at, shift, 1))
        else:
            at -= 1
            pairs.append((part[at], other[at + shift]))
        was_gap = is_gap
    return pairs[::-1], gaps[::-1]


def _step(part, other, sizes, best, at, shift):
    """(the cost where the last rows are the same, that where `other` has its last more, less _GAP), or
    None: there is no way here."""
    same = gap = None
    if at == 0 and shift == 0:
        return 0, None
    if at > 0 and best[at - 1][shift] is not None:
        own = _cost(part[at - 1], other[at - 1 + shift], sizes)
        if own is not None:
            same = own + _least(best[at - 1][shift])
    if shift > 0 and best[at][shift - 1] is not None:
        before, begun = best[at][shift - 1]
        gap = min(cost for cost in (begun, before) if cost is not None)
    return None if same is None and gap is None else (same, gap)


def _least(pair):
    same, gap = pair
    return min(cost for cost in (same, None if gap is None else gap + _GAP) if cost is not None)


def _label(part, other, gap, layers, own):
    """Labels the rows of `part` that the gap repeats: `layers` times the same, and in `other` once more.
    Of several ways the one that frees least that is no layer's own."""
    at, shift, length = gap

    def alike(one, two):
        if (one.op, one.tag, one.stream) != (two.op, two.tag, two.stream):
            return False
        return one.op != "malloc" or one.bytes == two.bytes

    best, fewest = None, len(part) + 1
    for begin in range(max(0, at - layers * length), min(at, len(part) - layers * length) + 1):
        run = other[begin + shift:begin + shift + (layers + 1) * length]
        if len(run) < (layers + 1) * length:
            continue
        if not all(alike(row, next_) for row, next_ in zip(run, run[length:])):
            continue
        unit = part[begin:begin + length]
        born = {row.id for row in unit if row.op == "malloc"}
        strange = sum(row.op == "free" and row.id not in own and row.id not in born for row in unit)
        if strange < fewest:
            best, fewest = begin, strange
    if best is None:
        return
    for number in range(layers):
        for row in part[best + number * length:best + (number + 1) * length]:
            row.layer = number
            if row.op == "malloc":
                own.add(row.id)
