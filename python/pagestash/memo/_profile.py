"""memo.profile: one training step of a small model, recorded; what a model of many layers asks for."""
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Optional, Union

from .._c import Error
from . import _files, _fingerprint, _outside, _record, _trace
from ._plan import KEYS, Expansion, MemoPlan, expanded

_INNER = 3  # layers, of which the first and the last may be other than those between
_KEYS = {"layers", "rank", "fingerprint", "inputs", "exact", "difference"}


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

    @property
    def rows(self) -> list[_trace.Row]:
        """The requests."""
        rows, _ = _trace.read(self.text.splitlines(), "the profile")
        return _trace.iterations(rows)[0]

    def expand(self, layers: int, micro_batches: int = 1, schedule: str = "sequential", *,
               num_stages: int = 1, stage: int = 0) -> Expansion:
        """The requests of a model with so many layers and micro-batches: what `pagestash trace --expand`
        makes of the file that `save` writes. schedule: "sequential", or "1f1b" for `stage` of a pipeline
        of `num_stages`. Errors: that command's."""
        text = expanded(self.text, layers, micro_batches, schedule, num_stages, stage)
        return Expansion(self, layers, micro_batches, schedule, text)

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
            blocks: Optional[Callable[[Any], Any]] = None, verify: bool = True, warmup: int = 1,
            device: Optional[str] = None) -> Profile:
    """Records one training step of a model with `layers` layers. Each rank calls it.

        profile = memo.profile(lambda layers: Trainer(layers), lambda trainer: trainer.step())

    build(layers): a model with so many layers, or something with one in it (a tuple, an object), with
    its optimizer. step(model): one training step of one micro-batch, with backward, optimizer and
    zero_grad, that asks for the same memory each time. blocks(model): its layers, in order; by default the
    ModuleList of that many. verify: a model with one layer more is recorded, too: from that it is known
    what outside the layers grows with them (an optimizer's temporaries), and whether the expansion is
    what such a model asks for (Profile.exact). If it is not, three layers and four are recorded, since
    the first or the last may ask for something else than those between. It takes the memory of that, and
    with the allocator installed torch does not survive that there is none. warmup: steps before, in
    which the optimizer makes its state. device: of allocator.install, which comes first if it did not.

    Afterwards the allocator only serves; the models are gone.
    Errors: allocator.install's; no layers, or none that repeat; steps that differ."""
    if layers < 1:
        raise Error(f"profile: {layers} layers: allowed is 1 or more")
    if warmup < 1:
        raise Error(f"profile: warmup {warmup}: allowed is 1 or more, in which the optimizer makes its "
                    "state")
    _record.ready(device)
    made = _recorded(build, step, layers, blocks, verify, warmup)
    if made.exact is False and layers < _INNER:  # the first or the last layer is not like the others
        again = _recorded(build, step, _INNER, blocks, verify, warmup)
        made = again if again.exact else made
    return made


def _recorded(build, step, layers, blocks, verify, warmup):
    """The profile of so many layers, verified if that is asked for."""
    one = _record.record(build, step, layers, blocks, warmup)
    rank, rows = _fingerprint.rank(), one.rows
    exact, said = None, ""
    if verify:
        more = _record.record(build, step, layers + 1, blocks, warmup)
        if said := _fingerprint.mismatch({**one.fingerprint, "layers": layers + 1}, more.fingerprint):
            raise Error(f"profile: with one layer more {said}: allowed are layers that are alike")
        rows = _outside.labelled(rows, more.rows, layers)
        said = _wrong(_trace.text(rows, rank), layers + 1, more.rows)
        exact = not said
    return Profile(_trace.text(rows, rank), {
        "layers": layers, "rank": rank, "fingerprint": one.fingerprint, "inputs": one.inputs,
        "exact": exact, "difference": said})


def _wrong(text, layers, recorded):
    """What differs between a profile expanded to that many layers and the recording of them."""
    try:
        made, _ = _trace.read(expanded(text, layers).splitlines(), "the expansion")
    except Error as error:
        return str(error)
    return _trace.difference(_trace.shape(_trace.iterations(made)[0]), _trace.shape(recorded))


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
