"""The stash of a model: a pool of pages, and the layers whose saved tensors go there."""
import collections
import contextlib
import functools
import logging
import math
import types
import weakref
from typing import Callable, Optional, Union

import torch

from .. import pool as pools
from .._abi import PST_FAULT_EXHAUSTED, PST_FAULT_FAILED, PST_FAULT_LOST, PST_MAX_TENSORS, \
    PST_PAGE_BYTES_MAX, PST_PAGE_BYTES_MIN
from .._checks import Error, Once
from . import kept, layer, measure, room, rows, streams, tokens
from .rerun import Snapshot

_log = logging.getLogger("pagestash")
_DEVICES = {"cpu": "host", "cuda": "cuda"}  # torch's name: the library's
_MOST_SHAPES = 1024  # that a stash remembers; a model with a new capacity each step has no more
_MOST_NAMED = 256  # sentences of name_kept; names made anew in each step would fill memory and log
# Faults that follow from a want of pages.
_MENDED = 1 << PST_FAULT_EXHAUSTED | 1 << PST_FAULT_FAILED | 1 << PST_FAULT_LOST


class Stash(Once, room.Room):
    """Pages for what layers keep between their forward and their backward.

    device: of torch; None: cuda if there is one, else cpu.
    pages: how many, or "measure": in the first step, which must not be captured, live rows are cut out
        and kept as tensors (each layer waits for the device once), and `step` makes a pool with
        `headroom` times the pages of the peak.
    page_bytes: 16 KiB to 4 MiB, a power of two; None: chosen from what was measured, else 256 KiB.
    host_pages: pages in pinned host memory, for what finds no device page.
    memory: "torch": one block of torch's own memory; `grow` makes a new pool, which captured graphs and
        layers that wait for their backward forbid. "pool": the pool's own memory, which grows in place
        up to max_pages; torch's cache is emptied where memory is short.
    tickets: layers' visits that can be stashed at once, captured graphs' included; None: measured.
    mode: "ordered", or "concurrent" for several streams at once.
    num_sms: SM budget of a copy; 0: all. overlap: copies run on a stream of their own, or
        on this one (cuda).
    retain: pages stay until autograd's graph dies, so that a second backward can run.

    Threads: layers and backwards in any. Errors: pagestash.Error."""

    max_tensors = PST_MAX_TENSORS  # of one visit

    def __init__(self, device: Union[None, str, torch.device] = None, *,
                 pages: Union[str, int] = "measure", page_bytes: Optional[int] = None,
                 host_pages: int = 0, headroom: float = 1.1, max_pages: Optional[int] = None,
                 tickets: Optional[int] = None, mode: str = "ordered", num_sms: int = 0,
                 overlap: Union[bool, torch.Stream] = False, retain: bool = False, memory: str = "torch"):
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.torch_device = _device(device)
        _check(memory in ("torch", "pool"), "memory", memory, "torch, pool")
        _check(isinstance(mode, str) and mode in pools.MODES, "mode", mode, ", ".join(pools.MODES))
        _check(pages == "measure" or _is_int(pages, 1), "pages", pages, "measure, or at least 1")
        _check(isinstance(headroom, (int, float)) and 1 <= headroom < math.inf, "headroom", headroom,
               "at least 1")
        _check(max_pages is None or memory == "pool", "max_pages", max_pages,
               "None with memory='torch'")
        for name, value, least in (("page_bytes", page_bytes, 1), ("host_pages", host_pages, 0),
                                   ("max_pages", max_pages, 1), ("tickets", tickets, 1),
                                   ("num_sms", num_sms, 0)):
            may_be_none = value is None and name not in ("host_pages", "num_sms")
            _check(may_be_none or _is_int(value, least), name, value, f"at least {least}")
        _check(page_bytes is None or page_bytes & page_bytes - 1 == 0
               and PST_PAGE_BYTES_MIN <= page_bytes <= PST_PAGE_BYTES_MAX, "page_bytes", page_bytes,
               f"powers of two from {PST_PAGE_BYTES_MIN} to {PST_PAGE_BYTES_MAX}")
        self.device = self._open()
        most = self.device.info().num_sms
        _check(num_sms <= most, "num_sms", num_sms, f"0 to {most}, those of the device")
        self.lock = self.device.lock  # a stream is used by one thread at a time
        if self.torch_device.type != "cuda":
            overlap = False
        self.streams = streams.Inline(self.torch_device) if not overlap else streams.Beside(
            self.torch_device, None if overlap is True else overlap)
        self.overlap, self.retain, self.headroom = bool(overlap), retain, headroom
        self.memory, self.host_pages, self.max_pages = memory, host_pages, max_pages
        self.page_bytes, self.tickets, self.mode = page_bytes, tickets, mode
        self.num_sms, self.known = num_sms, _operators(overlap)
        self.stash_options = pools.stash_options(num_sms)
        self.restore_options = [pools.restore_options(num_sms, keep) for keep in (False, True)]
        self.pool, self.block, self.closed = None, None, False
        self.log = measure.Log()
        self.shapes, self.named = {}, set()
        # (pool, ticket, stream, ahead) of visits that died: appended by finalisers, in any thread
        self.dropped = collections.deque()
        self.restored = {}   # id of a backward: visits restored in it
        self.newest = None   # weak reference to the last visit
        if pages != "measure":
            self._make_pool(pages)

    def _open(self):
        name = _DEVICES.get(self.torch_device.type)
        if name is None:
            raise Error(f"device {self.torch_device}: allowed are cpu and cuda")
        return pools.Device.open(name, self.torch_device.index or 0)

    # ---- layers

    def layer(self, counts: torch.Tensor, capacity: int, segments: int = 0, ratio=None,
              select: Optional[Callable[[torch.Tensor], rows.Choice]] = None, name: str = ""):
        """A context: what autograd saves in it, as far as it has the layer's rows, goes to pages at its end
        and comes back, zeros behind the live rows, when the backward first asks for it.

        counts: on the device, int32 or int64: 1 element: rows [0, count) of `capacity` are live; E elements:
            their sum; with segments=E: of each of E slabs of `capacity` rows. Read on the current stream.
            Or a function without arguments that answers them when the layer ends.
        ratio: (num, den), or a tuple of several: tensors with ceil(capacity * num / den) rows are rows, too.
        select: decides for a saved tensor: False: it stays; True, or (num, den): it has such rows, any
            dtype; None: the rule, by which floating-point tensors are stashed whose first dimension, in
            memory, too, has the rows, but no parameters and what is made of them alone.
        Inside a backward (a checkpoint computes again) and without grad nothing is stashed.
        Errors: closed; counts; capturing before anything was measured."""
        if self.closed:
            self._check_open()
        if not torch.is_grad_enabled():
            return contextlib.nullcontext()
        if layer.backward_id() >= 0:
            _check(isinstance(name, str), "name", name, "a string")
            return layer.Apart(name)
        try:
            shape = self.shapes[capacity, segments, ratio, select, name]
        except (KeyError, TypeError):  # TypeError: a list, say
            shape = self._shape(capacity, segments, ratio, select, name)
        if not callable(counts):
            rows.check_counts(counts, shape, self.torch_device)
        self.needs_measuring()
        return layer.Visit(self, counts, shape)

    def needs_measuring(self):
        """Whether there is no pool yet. Errors: then nothing may be captured; closed."""
        self._check_open()
        if self.pool is None and self.streams.is_capturing():
            raise Error("a capture, and nothing is measured yet: run one step before, with step() at its "
                        "end, or give Stash(pages=...)")
        return self.pool is None

    def shape_of(self, capacity, segments, name):
        """What is known of a layer's rows, made where it is not there."""
        return self._shape(capacity, segments, None, None, name)

    def _shape(self, *of):
        capacity, segments, ratio, select, name = of
        try:
            shape = self.shapes.get(of)
        except TypeError:  # a list, say
            shape = None
        if shape is None:
            _check(_is_int(capacity, 1), "capacity", capacity, "at least 1")
            _check(_is_int(segments, 0), "segments", segments, "at least 0")
            _check(select is None or callable(select), "select", select, "None, or a function")
            _check(isinstance(name, str), "name", name, "a string")
            ratios = () if ratio is None else ratio
            if rows.is_ratio(ratios):
                ratios = (ratios,)
            _check(isinstance(ratios, tuple) and all(map(rows.is_ratio, ratios)), "ratio", ratio,
                   "(num, den) with 0 < num <= den, or a tuple of such")
            if len(self.shapes) >= _MOST_SHAPES:
                self.shapes.clear()
            shape = self.shapes[of] = rows.Shape(capacity, segments, ratios, select, name)
        return shape

    def wrap(self, module: torch.nn.Module, *, counts, capacity, segments: int = 0, ratio=None,
             select=None, name: Optional[str] = None) -> torch.nn.Module:
        """Runs each forward of the module in `layer`. counts, capacity: values, or functions of the
        forward's arguments. Answers the module. A deep copy of it has its own weights and this stash; a shallow
        one runs the original's forward, with the original's weights; what comes out of a pickle is not wrapped.
        Errors: it is wrapped already, by this or by others."""
        _check(isinstance(module, torch.nn.Module), "wrap", module, "a torch.nn.Module")
        own = vars(module).get("forward")
        plain = types.MethodType(type(module).forward, module)
        if own is not None and own != plain:  # that of an unpickled one is
            why = "it is wrapped already" if hasattr(own, "of_stash") else \
                "somebody else has replaced that of its class: wrap it before that is done"
            raise Error(f"{type(module).__name__} has a forward of its own: {why}")
        forward, stash = type(module).forward, self
        name = type(module).__name__ if name is None else name

        @functools.wraps(forward)
        def paged(self, *args, **kwargs):
            now = [value(*args, **kwargs) if callable(value) else value
                   for value in (counts, capacity)]
            with stash.layer(*now, segments, ratio, select, name):
                return forward(self, *args, **kwargs)

        paged.of_stash = True
        module.forward = types.MethodType(paged, module)  # copy.deepcopy gives it the copy for its self
        return module

    def learn(self, visit):
        """Called by a visit for whose tensors it was decided what is stashed."""
        if self.known is not None:
            self.known.learn(visit)

    def keep(self, visit):
        """Stashes what a visit packed; called by it."""
        forms = visit.shape.form(visit.counts, visit.fits)
        visit.before, self.newest = self.newest, weakref.ref(visit)
        if self.pool is None:
            return kept.Cut(self, visit, forms)
        with self.lock:
            self.drain()
            return kept.Pages(self, visit, forms)

    def after_restore(self, visit, backward):
        """Called by a visit whose rows came back in this backward."""
        if self.retain:
            visits = self.restored.get(backward)
            if visits is None:
                # A backward that failed has not come to its end.
                self.restored = {of: those for of, those in self.restored.items() if any(one() for one in those)}
                visits = self.restored[backward] = []
                torch.autograd.Variable._execution_engine.queue_callback(
                    functools.partial(self._end_backward, backward))
            visits.append(weakref.ref(visit))
        if self.overlap:
            before = visit.before and visit.before()
            if before is not None and before.kept is not None:
                before.kept.start(before.fits)

    def _end_backward(self, backward):
        """What autograd still holds after a backward is restored again by the next."""
        with self.lock:
            for reference in self.restored.pop(backward, ()):
                visit = reference()
                if visit is not None:
                    visit.forget(backward)

    def name_kept(self, name, tensor, why):
        """Says once that a tensor which may have been meant stays in memory."""
        key = name, tuple(tensor.shape), tensor.dtype, why
        if key in self.named or len(self.named) == _MOST_NAMED:
            return
        self.named.add(key)
        _log.warning("pagestash: layer %r saves a tensor of shape %s, %s, %d bytes, which %s: it stays "
                     "in memory", name, tuple(tensor.shape), tensor.dtype,
                     tensor.numel() * tensor.element_size(), why)
        if len(self.named) == _MOST_NAMED:
            _log.warning("pagestash: %d such tensors were named; more are not", _MOST_NAMED)

    # ---- steps

    def step(self) -> Optional[pools.Status]:
        """Ends a step: once per optimizer step, also inside its capture. The status last published, which may
        be a step old while a GPU is busy; None: none yet. After the first, measured step it makes the
        pool. Errors: there is no memory for it; closed."""
        self._check_open()
        if self.pool is None:
            if self.log.num_stashes and not self.streams.is_capturing():
                self._make_measured_pool()
            return None
        with self.lock:
            self.drain()
            self.streams.leave(waits=True)
            self.streams.release()
            tokens.drain_all(self.pool.handle, self.streams.current())
            self.pool.step(self.streams.current())
            return self.pool.status()

    def status(self) -> Optional[pools.Status]:
        """The status of the last step; waits for the device. None before the first with a pool.
        Errors: closed; capturing."""
        self._check_open()
        if self.pool is None:
            return None
        self._check_outside("status")
        self.device.synchronize()
        return self.pool.status()

    @property
    def valid(self) -> torch.Tensor:
        """int32, 1 element, on the device: 1, or 0 once anything failed in this step, as of here on the
        current stream. To be read before `step`; can be captured. Errors: closed."""
        self._check_open()
        if self.pool is None:
            return torch.ones(1, dtype=torch.int32, device=self.torch_device)
        out = torch.empty(1, dtype=torch.int32, device=self.torch_device)
        with self.lock:
            self.streams.leave(waits=True)
            self.device.copy(out.data_ptr(), self.pool.step_valid_address, 4, self.streams.current())
        return out

    @property
    def pages(self) -> int:
        """Device pages of the pool; 0: none yet."""
        return self.pool.info().num_pages[0] if self.pool else 0

    def grow(self, status: Optional[pools.Status] = None) -> int:
        """After a step that ran out of pages: at least `headroom` times what it wanted. The pages now.
        Errors: something else failed, which pages do not mend; memory; capturing; with memory="torch"
        captured graphs, or layers that wait for their backward."""
        self._check_open()
        self._check_outside("grow")
        _check(status is None or isinstance(status, pools.Status), "status", status, "None, or a Status")
        status = status or self.status()
        if status is None or self.pool is None:
            raise Error("nothing to grow by: no step has ended with a pool yet")
        if status.raw.flags & ~_MENDED:
            raise Error(f"more pages do not help: {status.fault} ({status.fault_wanted} wanted)")
        info = self.pool.info()
        wanted = max(math.ceil(status.demand * self.headroom) - info.num_pages[1], info.num_pages[0])
        with self.lock:
            self.drain()
            if self.memory == "pool":
                self.pool.resize(wanted)
                self.pool.reset("faults", "statistics", stream=self.streams.enter())
                self.streams.leave(waits=True)
            else:
                self._replace_pool(wanted, info.num_pages[0])
        return self.pages

    def rerun(self, step, *, modules=(), tensors=(), trackers=(), attempts: int = 3, group=None):
        """Runs step() and ends the step; where pages ran out, puts everything back as it was before, grows,
        and runs it again. What step() answered.

        modules: whose gradients and buffers are put back. tensors: further state that step changes.
        trackers: objects with get_states() and set_states(), of random numbers, say. The generators of
        torch are put back, too (rerun.Snapshot has the rules). attempts: in all. group: of
        torch.distributed, over which a step that failed on one rank is run again on all. step must not
        call stash.step, nor the optimizer. Errors: the last attempt failed, too, and all is as before
        it; something failed that pages do not mend."""
        self._check_open()
        _check(callable(step), "step", step, "a function without arguments")
        _check(_is_int(attempts, 1), "attempts", attempts, "at least 1")
        _check(group is None or isinstance(group, torch.distributed.ProcessGroup), "group", group,
               "None, or a group of torch.distributed")
        before = Snapshot(modules=modules, tensors=tensors, trackers=trackers)
        for attempt in range(attempts):
            if attempt:
                before.restore()
            before.take()
            answer = step()
            # A rank that has no pool (yet) must hear of the others', too.
            failed = (self.pool is not None or group is not None) and not self._agreed(group)
            self.step()
            if not failed:
                return answer
            del answer
            status = self.status()
            if attempt + 1 < attempts and status is not None and not status.valid:
                self.grow()
        before.restore()
        raise Error(f"the step failed {attempts} times: {self.status()}")

    def _agreed(self, group):
        valid = self.valid
        if group is not None:
            torch.distributed.all_reduce(valid, torch.distributed.ReduceOp.MIN, group)
        return bool(valid.item())

    def close(self) -> None:
        """Frees the pool. Errors: layers wait for their backward, or captured graphs hold it; capturing."""
        if not self.closed:
            self._check_outside("close")
            with self.lock:
                self.drain()
                self._close_pool()
            self.closed = True

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        pools.close_behind(self, kind)

    def __del__(self):
        pool = getattr(self, "pool", None)
        if pool is not None and not self.closed:
            try:
                self.close()
            except Error:  # a capture goes on, or a captured graph may still run in this memory
                room.lose(pool, self.block)

    def _check_open(self):
        if self.closed:
            raise Error("the stash is closed")

    def drain(self):
        """Gives the tickets of visits that died without a backward. Not in a finaliser, which may run on any
        stream and inside a capture."""
        for _ in range(len(self.dropped)):
            visit = pool, ticket, stream, ahead = self.dropped.popleft()
            behind = self.streams.behind(stream)
            if behind is None or ahead is not None and behind != self.streams.current():
                self.dropped.append(visit)  # what was restored ahead is the current stream's memory
            elif ticket:
                try:
                    pool.give(ticket, behind)
                except Error as error:
                    if error.status != "PST_E_CAPTURE":
                        raise
                    self.dropped.append(visit)


def _operators(overlap):
    """Those of a layer's hot path, None where there are none: then ctypes makes the launches."""
    from . import ops  # pylint: disable=import-outside-toplevel
    if overlap or ops.kind != "stable":
        return None
    from . import known  # pylint: disable=import-outside-toplevel
    return known


def _device(device):
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise Error(f"device {device!r}: {str(error).splitlines()[0]}") from None
    if device.type == "cuda" and device.index is None:
        try:
            return torch.device("cuda", torch.cuda.current_device())
        except (RuntimeError, AssertionError) as error:  # of a torch built without CUDA
            raise Error(f"device cuda: {str(error).splitlines()[0]}") from None
    return device


def _is_int(value, least):
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _check(holds, name, value, allowed):
    if not holds:
        raise Error(f"{name}: {value!r}; allowed: {allowed}")
