"""memo.profile: one training step of a small model, recorded; what a model of many layers asks for."""
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Optional, Union

from .._c import Error
from .._checks import within
from . import _files, _fingerprint, _micro, _outside, _record, _trace
from ._plan import KEYS, Expansion, MemoPlan, expanded

_ENDS = (3, 5)  # layers, of which one or two at either end may be other than those between
_VERIFY = 7
_KEYS = {"layers", "rank", "fingerprint", "inputs", "exact", "difference", "following"}


def _rows_of(text):
    rows, _ = _trace.read(text.splitlines(), "the profile")
    return _trace.iterations(rows)[0]


def _expanded(rows, layers):
    return _rows_of(expanded(_trace.text(rows, 0), layers))


def _composed(first, following, layers, order):
    return _micro.composed(_expanded(_micro.with_border(first), layers), _expanded(following, layers),
                           order)


class Profile:
    """The requests of one training step of one rank, with the layer of each.

    layers: recorded. rank, fingerprint, inputs, exact, difference: as of MemoPlan. text: our CSV, as
    `pagestash trace` reads it."""

    def __init__(self, text: str, data: dict):
        self.text, self._data = text, data
        self.layers: int = data["layers"]
        self.rank: int = data["rank"]
        self.fingerprint: dict = data["fingerprint"]
        self.inputs: list = data["inputs"]
        self.exact: Optional[bool] = data["exact"]
        self.difference: str = data["difference"]
        self._following: Optional[str] = data["following"]  # a micro-batch that is not the first

    @property
    def rows(self) -> list[_trace.Row]:
        """The requests."""
        return _rows_of(self.text)

    def expand(self, layers: int, micro_batches: int = 1, schedule: str = "sequential", *,
               num_stages: int = 1, stage: int = 0) -> Expansion:
        """The requests of a model with so many layers and micro-batches: what `pagestash trace --expand`
        makes of the file that `save` writes. schedule: "sequential", or "1f1b" for `stage` of a pipeline
        of `num_stages`. Several micro-batches are each a whole step, with its optimizer, or, where the
        profile was made with `optimize`, come before one optimizer; that the command does not know.
        Errors: that command's."""
        _micro.check(micro_batches, schedule, num_stages, stage)
        how = (micro_batches, schedule, num_stages, stage)
        if self._following is None or micro_batches == 1:
            return Expansion(self, layers, *how[:2], expanded(self.text, layers, *how))
        rows = _composed(self.rows, _rows_of(self._following), layers, _micro.passes(*how))
        return Expansion(self, layers, *how[:2], _trace.text(rows, self.rank))

    def plan(self, **flags: Any) -> MemoPlan:
        """An address for each tensor of what was recorded, as it is: for a model that was recorded with all of
        its layers, where they repeat in no way that `expand` knows, dense and paged ones in turn say. flags:
        as of Expansion.plan. Errors: as of that."""
        return Expansion(self, self.layers, 1, "sequential", self.text).plan(**flags)

    def save(self, path: _files.Path) -> str:
        """Writes the trace, which `pagestash trace --trace FILE --expand N` reads, and FILE.json, which
        memo.load wants. With several ranks FILE has the rank in its name. The path written."""
        path = _files.path_of(path, self.rank, self.fingerprint["world"])
        _files.save(path, self.text.encode(), "profile", self._data)
        return path

    def to_html(self, path: _files.Path) -> None:
        """Writes a page with the figures."""
        from . import _report
        _files.write(os.fspath(path), _report.profile_page(self).encode())

    def __str__(self) -> str:
        from . import _report
        return _report.profile_table(self).text()

    def _repr_html_(self) -> str:
        from . import _report
        return _report.profile_table(self).html()

    def __repr__(self) -> str:
        return f"Profile(layers={self.layers}, rank={self.rank}, exact={self.exact})"


def profile(build: Callable[[int], Any], step: Callable[[Any], Any], layers: int = 1, *,
            optimize: Optional[Callable[[Any], Any]] = None,
            blocks: Optional[Callable[[Any], Any]] = None, verify: Union[bool, int] = True,
            warmup: int = 1, device: Optional[str] = None) -> Profile:
    """Records one training step of a model with `layers` layers. Each rank calls it.

        profile = memo.profile(lambda layers: Trainer(layers), lambda trainer: trainer.step())

    build(layers): a model with so many layers, or something with one in it (a tuple, an object), with
    its optimizer. step(model): one training step of one micro-batch, with backward, optimizer and
    zero_grad, that asks for the same memory each time. optimize(model): what of it comes once behind
    several micro-batches (clipping, the optimizer, zero_grad), which step then leaves out; for
    expand(..., micro_batches=4). blocks(model): its layers, in order; by default the
    ModuleList of that many. warmup: steps before, in which the optimizer makes its state. device: of
    allocator.install, which comes first if it did not.

    verify: a model with one layer more is recorded, too, which says what outside the layers grows with
    them (an optimizer's temporaries), and one of `verify` layers (True: 7), which says whether the
    expansion is what such a model asks for: Profile.exact. If it is not, three and five layers are
    recorded in place of `layers`, since one or two at either end may ask for something else than those
    between. Models for which the GPU has no room, as far as can be told from the smaller ones, are left
    out: torch does not survive that with this allocator. False: only `layers` are recorded, and what the
    optimizer does is planned as for that many.

    Afterwards the allocator only serves; the models are gone.
    Errors: allocator.install's; no layers, or none that repeat; steps that differ."""
    for name, value, least in (("layers", layers, 1), ("warmup", warmup, 1), ("verify", verify, 0)):
        within(value, f"profile: {name}", least, 1 << 20)
    _record.ready(device)
    recordings = _Recordings(build, step, optimize, blocks, warmup)
    if not verify:
        return _made(recordings(layers), None, None, "")
    return _verified(recordings, layers, _VERIFY if verify is True else verify)


class _Recordings:
    """Of so many layers, each made once."""

    def __init__(self, *how):
        self.how, self.made = how, {}

    def __call__(self, layers: int) -> _record.Recording:
        build, step, optimize, blocks, warmup = self.how
        if layers not in self.made:
            made = self.made[layers] = _record.record(build, step, optimize, layers,
                                                             blocks, warmup)
            first = next(iter(self.made.values()))
            if said := _fingerprint.mismatch({**first.fingerprint, "layers": layers}, made.fingerprint):
                raise Error(f"profile: of models with {first.layers} and {layers} layers {said}: allowed "
                            "are layers that are alike")
        return self.made[layers]

    def has_room(self, layers: int) -> bool:
        """For a model of so many, by those that were recorded; with a quarter to spare."""
        known = sorted((one.layers, one.used_bytes) for one in self.made.values())
        least, most = known[0], known[-1]
        if layers <= most[0]:
            return True
        each = most[1] / most[0]
        if least[0] < most[0]:
            each = (most[1] - least[1]) / (most[0] - least[0])
        wanted = most[1] + 1.25 * max(each, 0) * (layers - most[0])
        return wanted <= self.made[most[0]].memory_bytes


def _verified(recordings, layers, verify):
    """The first profile that is exact, else that of `layers`."""
    first = None
    for num in (layers, *(ends for ends in _ENDS if ends > layers)):
        if recordings.made and not recordings.has_room(num):
            break
        one = recordings(num)
        if not recordings.has_room(num + 1):
            return first or _made(one, None, None, "")
        parts = [_outside.labelled(*both, num) if both[0] else None for both in zip(
            _micro.parts(one.rows), _micro.parts(recordings(num + 1).rows))]
        said = _wrong(parts, recordings(num + 1))
        exact = not said
        if exact and verify > num + 1:
            exact = None
            if recordings.has_room(verify):
                said = _wrong(parts, recordings(verify))
                exact = not said
        made = _made(one, parts, exact, said)
        if exact is not False:
            return made
        first = first or made
    return first


def _made(one, parts, exact, said):
    rank, (first, following) = _fingerprint.rank(), parts or _micro.parts(one.rows)
    return Profile(_trace.text(first, rank), {
        "layers": one.layers, "rank": rank, "fingerprint": one.fingerprint, "inputs": one.inputs,
        "exact": exact, "difference": said,
        "following": _trace.text(following, rank) if following else None})


def _wrong(parts, recorded):
    """What differs between a profile expanded to the layers of a recording and that."""
    first, following = parts
    try:
        if following:
            order = _micro.passes(_record.MICRO_BATCHES, "sequential")
            made = _composed(first, following, recorded.layers, order)
        else:
            made = _expanded(first, recorded.layers)
    except Error as error:
        return str(error)
    return _trace.difference(_trace.shape(made), _trace.shape(recorded.rows))


def load(path: _files.Path, rank: Optional[int] = None) -> Union[Profile, MemoPlan]:
    """A profile or a plan from a file that its save wrote. rank: of a job of several, whose files have the
    rank in their names. Errors: what cannot be read, or is neither."""
    name = os.fspath(path)
    if rank is not None:
        name = _files.path_of(name, rank, {"world": 2})
    content, data = _files.load(name, {"profile": _KEYS, "plan": KEYS})
    if data["memo"] == "plan":
        return MemoPlan._of_file(content, data, name)  # pylint: disable=protected-access
    text = content.decode(errors="replace")
    rows, _ = _trace.read(text.splitlines(), name)
    if not _trace.iterations(rows):
        raise Error(f"load: {name}: there is no iteration in it")
    return Profile(text, data)
