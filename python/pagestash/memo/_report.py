"""What a profile and a plan look like, as text and as pages."""
from __future__ import annotations

import html
import os
import tempfile
from typing import TYPE_CHECKING

from .. import _page, command
from ..command import Table

if TYPE_CHECKING:
    from ._plan import MemoPlan
    from ._profile import Profile


def _size(count):
    return "-" if count is None else f"{count} ({count / (1 << 20):.2f} MiB)"


def _exactness(what):
    if what.exact is None:
        return "not verified with more layers"
    if what.exact:
        return "exact: it is what a model with more layers asked for"
    return f"not exact; with more layers, expanded and recorded: {what.difference}"


def _input(what):
    said = ", ".join(f"{dtype}[{', '.join(map(str, shape))}]" for dtype, shape in what.inputs)
    return f"a layer gets {said or 'no tensor'}"


def profile_table(profile: Profile) -> Table:
    """Requests and bytes of each part of the step."""
    parts: dict[str, list[int]] = {}
    live: dict[int, int] = {}
    now = 0
    for row in profile.rows:
        name = f"{row.phase} {row.layer}" if row.phase in ("forward", "backward") else "other"
        part = parts.setdefault(name, [0, 0, 0])
        if row.op == "malloc":
            live[row.id] = row.bytes
            now += row.bytes
            part[0] += 1
            part[1] += row.bytes
        elif row.op == "free":
            now -= live.pop(row.id)
        part[2] = max(part[2], now)
    rows = [[name, count, _size(total), _size(most)] for name, (count, total, most) in parts.items()]
    return Table(f"profile of {profile.layers} layers, rank {profile.rank}",
                 ["part", "tensors", "bytes", "most live"], rows,
                 [_input(profile), f"the expansion is {_exactness(profile)}"])


def plan_table(plan: MemoPlan) -> Table:
    """The plan, and beside it torch's allocator."""
    reserved = plan.reserved
    how = {"model": "torch's caching allocator, by its rules",
           "native": "torch's caching allocator, asked"}[reserved.method]
    waste = 1 - plan.lower_bound / plan.peak if plan.peak else 0.0
    rows = [["plan", _size(plan.peak), _size(plan.lower_bound), f"{100 * waste:.2f} %"],
            [how, _size(reserved.reserved), _size(reserved.allocated),
             f"{100 * reserved.fragmentation:.2f} %"]]
    title = (f"{plan.status} plan of {plan.layers} layers, {plan.micro_batches} micro-batches "
             f"({plan.schedule}), {plan.tensors} tensors, rank {plan.rank}")
    return Table(title, ["memory of", "reserved", "most in use", "fragmentation"], rows,
                 [_input(plan), f"the expansion is {_exactness(plan)}"])


def profile_page(profile: Profile) -> str:
    """A page."""
    return _page.page("profile", profile_table(profile).html())


def plan_page(plan: MemoPlan) -> str:
    """A page with the picture of `pagestash plan`, which plans anew: with one thread the same."""
    with tempfile.TemporaryDirectory(prefix="pagestash-") as folder:
        name = os.path.join(folder, "plan.html")
        words = command.flags_of({**plan.flags, "trace": "-", "keep_unfreed": True, "html": name},
                                 joined=True)
        command.run(["plan", *words], plan.text.encode())
        with open(name, encoding="utf-8") as file:
            picture = file.read()
    frame = f'<iframe srcdoc="{html.escape(picture)}"></iframe>'
    return _page.page("plan", plan_table(plan).html() + frame, runs=True)

