"""The requests of a whole model, made of a profile, and their plan."""
from __future__ import annotations

import base64
import dataclasses
import os
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Optional

from .. import allocator, command, plans
from .._c import Error
from . import _caching, _files, _fingerprint, _planned, _trace

if TYPE_CHECKING:
    from ._profile import Profile

_NOT_HERE = {"trace", "memo", "minimalloc", "stalloc", "pytorch", "keep_unfreed", "iteration",
             "trace_rank", "trace_device", "out", "html", "perfetto"}


class Expansion:
    """The requests of an iteration of a model with `layers` layers and `micro_batches`, in the order of
    `schedule`. text: our CSV (docs/formats.md), as `pagestash trace --expand` writes it."""

    def __init__(self, profile: Profile, layers: int, micro_batches: int, schedule: str, text: str):
        self.profile, self.layers, self.micro_batches = profile, layers, micro_batches
        self.schedule, self.text = schedule, text

    @property
    def rows(self) -> list[_trace.Row]:
        """The requests."""
        rows, _ = _trace.read(self.text.splitlines(), "the expansion")
        return _trace.iterations(rows)[0]

    @property
    def fingerprint(self) -> dict:
        """Of the model that asks for this."""
        return {**self.profile.fingerprint, "layers": self.layers}

    def plan(self, **flags: Any) -> MemoPlan:
        """An address for each tensor. flags: of `pagestash plan`, as of pagestash.plan (capacity,
        deadline, mode, threads, ...). Errors: as of pagestash.plan; no plan within the capacity."""
        if refused := _NOT_HERE & set(flags):
            raise Error(f"plan: {min(refused)} is no argument here: the expansion is the trace, and "
                        "the plan has save and to_html")
        with tempfile.TemporaryDirectory(prefix="pagestash-") as folder:
            path = os.path.join(folder, "expanded.csv")
            with open(path, "w", encoding="ascii") as file:
                file.write(self.text)
            answer = plans.plan(trace=path, keep_unfreed=True, **flags)
        if answer.peak is None:
            raise Error(f"plan: {answer.reason or answer.status}")
        data = {name: getattr(self, name) for name in ("layers", "micro_batches", "schedule",
                                                       "fingerprint")}
        return MemoPlan(answer, {**data, "flags": flags, "rank": self.profile.rank, "inputs": self.profile.inputs,
                                 "exact": self.profile.exact,
                                 "difference": self.profile.difference}, self.text)

    def save(self, path: _files.Path) -> str:
        """Writes the trace for `pagestash plan --trace FILE`; with several ranks FILE has the rank in its
        name. The path written."""
        path = _files.path_of(path, self.profile.rank, self.profile.fingerprint["world"])
        _files.write(path, self.text.encode())
        return path

    def __repr__(self) -> str:
        return (f"Expansion(layers={self.layers}, micro_batches={self.micro_batches}, "
                f"schedule={self.schedule!r})")


class MemoPlan:
    """A plan of one rank's iteration, and of which model it is.

    layers, micro_batches, schedule, rank: what is planned. fingerprint: of the model. inputs: [dtype,
    shape] of what the profile's first layer was given. exact: True: the profile, expanded, was what a
    model with more layers asked for; False: it was not, `difference` says in what; None: that was not
    tried. flags: of the command. answer: the pagestash.Plan."""

    def __init__(self, answer: plans.Plan, data: dict, text: str):
        self.answer, self._text, self._data = answer, text, data
        self.layers: int = data["layers"]
        self.micro_batches: int = data["micro_batches"]
        self.schedule: str = data["schedule"]
        self.rank: int = data["rank"]
        self.fingerprint: dict = data["fingerprint"]
        self.inputs: list = data["inputs"]
        self.flags: dict = data["flags"]
        self.exact: Optional[bool] = data["exact"]
        self.difference: str = data["difference"]
        self._reserved: Optional[_caching.Reserved] = None
        if data.get("reserved"):
            self._reserved = _caching.Reserved(**data["reserved"])
        self._folder: Optional[str] = None  # of the file that the allocator follows

    status = property(lambda self: self.answer.status, doc='"optimal": proved; or "feasible"')
    peak = property(lambda self: self.answer.peak, doc="bytes: the highest address in use")
    lower_bound = property(lambda self: self.answer.lower_bound, doc="bytes: proved")
    gap = property(lambda self: self.answer.gap, doc="(peak - lower_bound) / lower_bound")
    tensors = property(lambda self: self.answer.tensors, doc="planned")
    file = property(lambda self: self.answer._file,  # pylint: disable=protected-access
                    doc="bytes of the plan file (docs/formats.md)")

    @property
    def text(self) -> str:
        """The trace that was planned, our CSV."""
        return self._text

    @property
    def rows(self) -> list[_trace.Row]:
        """The requests that were planned."""
        return _trace.iterations(_trace.read(self._text.splitlines(), "the plan's trace")[0])[0]

    @property
    def reserved(self) -> _caching.Reserved:
        """What torch's own caching allocator reserves for the same requests: by its rules, or as
        `measure_reserved` found; .method says which."""
        if self._reserved is None:
            self._reserved = _caching.reserved(self.rows)
        return self._reserved

    def measure_reserved(self) -> _caching.Reserved:
        """Asks torch's own allocator, which then is `reserved`: memo.native_reserved. In a process that has
        not installed pagestash.allocator. Errors: as of that."""
        self._reserved = _caching.native_reserved(self.rows)
        return self._reserved

    def check(self, model: Any, blocks: Optional[Callable] = None) -> None:
        """Raises Error, with what differs, where the plan is of another model, or of another job or rank.
        model: as `build` gives it; blocks: as of memo.profile."""
        own = _fingerprint.of(model, blocks, None)
        if blocks is None and own["layers"] != self.layers:
            try:
                own = _fingerprint.of(model, None, self.layers)
            except Error:
                pass  # there are none of that many: what is longest says how many there are
        said = _fingerprint.mismatch(self.fingerprint, own)
        if not said and self.rank != _fingerprint.rank():
            said = f"the plan is of rank {self.rank}, and this is rank {_fingerprint.rank()}"
        if said:
            raise Error(f"check: {said}")

    def check_layers(self, layers: Any) -> None:
        """As check, of a model's layers alone, in order."""
        said = _planned.layers_mismatch(self.fingerprint, layers)
        if not said and self.rank != _fingerprint.rank():
            said = f"the plan is of rank {self.rank}, and this is rank {_fingerprint.rank()}"
        if said:
            raise Error(f"check: {said}")

    def use(self, device: Optional[str] = None) -> None:
        """torch allocates by the plan from the next pagestash.allocator.mark_iteration() on; what is asked
        for before, a model and its optimizer's state, has memory of its own. Installs the allocator if
        that was not done, for which torch must not have used the GPU. Requests that deviate are served
        and counted: pagestash.allocator.stats(). device: as of allocator.install.
        Errors: as of allocator.install and allocator.switch."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="pagestash-")
            weakref.finalize(self, shutil.rmtree, self._folder, True)
        path = os.path.join(self._folder, "plan.csv")
        _files.write(path, self.file)
        if not allocator.is_installed():
            allocator.install(device=device)
        allocator.switch(path)

    def save(self, path: _files.Path) -> str:
        """Writes the plan file, which allocator.install(plan=...) follows, and FILE.json, which memo.load
        wants. With several ranks the file has the rank in its name. The path written."""
        path = _files.path_of(path, self.rank, self.fingerprint["world"])
        packed = base64.b64encode(zlib.compress(self._text.encode(), 9)).decode()
        reserved = dataclasses.asdict(self._reserved) if self._reserved else None
        _files.save(path, self.file, "plan", {**self._data, "reserved": reserved,
                                              "answer": self.answer.json, "trace": packed})
        return path

    @classmethod
    def _of_file(cls, content: bytes, data: dict, path: str) -> MemoPlan:
        try:
            text = zlib.decompress(base64.b64decode(data["trace"])).decode()
            answer = plans.Plan(data["answer"], content)
            return cls(answer, data, text)
        except (ValueError, TypeError, AttributeError, zlib.error):
            raise Error(f"load: {path}.json is not what save wrote") from None

    def to_html(self, path: _files.Path) -> None:
        """Writes a page: figures, beside them torch's allocator, and the picture of `pagestash plan`."""
        from . import _report
        _files.write(os.fspath(path), _report.plan_page(self).encode())

    def __str__(self) -> str:
        from . import _report
        return _report.plan_table(self).text()

    def _repr_html_(self) -> str:
        from . import _report
        return _report.plan_table(self).html()

    def __repr__(self) -> str:
        return (f"MemoPlan(layers={self.layers}, peak={self.peak}, lower_bound={self.lower_bound}, "
                f"status={self.status!r})")


KEYS = {"flags", "layers", "micro_batches", "schedule", "rank", "fingerprint", "inputs", "exact", "difference",
        "answer", "trace"}


def expanded(text: str, layers: int, micro_batches: int = 1, schedule: str = "sequential",
             num_stages: int = 1, stage: int = 0) -> str:
    """The trace of a profile, expanded by `pagestash trace --expand`. Errors: that command's."""
    flags = {"expand": layers, "num_micro_batches": micro_batches, "order": schedule,
             "keep_unfreed": True, "trace": "-", "out": "-"}
    if schedule == "1f1b":
        flags |= {"pipeline_model_parallel_size": num_stages, "pipeline_model_parallel_rank": stage}
    return command.run(["trace", *command.flags_of(flags, joined=True)], text.encode())[0]
