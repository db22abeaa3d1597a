"""The pool of a run with paged units: how many pages, of what size, and within which memory."""
import math

import torch

from .. import _simulate, pool as _pool
from .._c import Error
from .._simulated_layers import SimulatedLayer

_GROWTH = 8   # addresses for so many times the pages
_TICKETS = 64  # at least
_COUNTS = 64   # row counts that a ticket has room for at least
_SAME = ("num_sources", "num_destinations", "one_ring", "ahead", "num_streams", "rule", "keeps_nothing")


def _counts_of(unit, num_micro_batches, page_bytes):
    """Row counts of each micro-batch; of the fullest one for all where the first step had another number."""
    if len(unit.counted) == num_micro_batches:
        return unit.counted
    most = max(unit.counted, key=lambda counts: unit.form.measure(counts, page_bytes).pages)
    return [most] * num_micro_batches


def demand(run, page_bytes):
    """Pages that the schedule takes with the row counts of the first step."""
    layers, places = [], {}
    for unit in run.order:
        chunk = unit.place[0]
        place = places[chunk] = places.get(chunk, -1) + 1
        if unit.is_paged:
            given = unit.given
            layers.append(SimulatedLayer(
                place, chunk, form=unit.form, counts=_counts_of(unit, run.schedule.num_micro_batches, page_bytes),
                host_share=given.host_share, move=given.move, promote_ahead=given.promote_ahead))
        else:
            layers.append(SimulatedLayer(place, chunk, "planned"))
    fields = {name: run.fields[name] for name in _SAME if name in run.fields}
    return _simulate.simulate(run.schedule, layers, events=False, page_bytes=page_bytes, in_call_order=True,
                              keeps_nothing=run.keep_last == 0, mode=_mode(run), **fields).demand


def _mode(run):
    return "concurrent" if run.fields.get("num_streams", 1) > 1 else "ordered"


def fields_of(run, log):
    """(pages, fields) of the pool that fits the first step. log: of it."""
    page_bytes = run.page_bytes or log.page_bytes()
    pages = run.pages
    if pages == "measure":
        pages = max(1, math.ceil(demand(run, page_bytes) * run.headroom))
    paged = [unit for unit in run.order if unit.is_paged]
    tickets = sum(run.schedule.slots(unit.place[0]) for unit in paged)
    return pages, dict(
        page_bytes=page_bytes, host_pages=run.host_pages, mode=_mode(run), tickets=max(_TICKETS, tickets),
        slab_counts=max([_COUNTS] + [unit.form.num_counts for unit in paged]), max_pages=_GROWTH * pages)


def taken(run, pages=0, fields=None):
    """(bytes of gpu_bytes, of host_bytes) that the plan and the pool take; pages 0: there is none. Errors: more
    than there are."""
    pool_bytes = _pool.Pool.bytes(pages, **fields) if pages else 0
    static = 0 if run.plan is None else run.plan.peak
    pinned = fields["host_pages"] * fields["page_bytes"] if pages else 0
    if run.gpu_bytes is not None and pool_bytes + static > run.gpu_bytes:
        raise Error(f"gpu_bytes {run.gpu_bytes}: {pages} pages take {pool_bytes} bytes, the plan {static}: "
                    f"{pool_bytes + static - run.gpu_bytes} too few, without any buffer")
    if run.host_bytes is not None and pinned > run.host_bytes:
        raise Error(f"host_bytes {run.host_bytes}: {fields['host_pages']} host_pages take {pinned} bytes")
    return pool_bytes + static, pinned


def make(run, pages, fields):
    """The pool."""
    device = run.device

    def make_room(_num_bytes, tier):
        if tier == 0 and device.type == "cuda":
            torch.cuda.empty_cache()
            return True
        return False
    return _pool.Pool(_device(device), pages, make_room=make_room, **fields)


def _device(device):
    if device.type == "cuda":
        return _pool.Device.open("cuda", device.index or 0)
    return _pool.Device.open("host")


def without_pages(device):
    """For a run that pages nothing: the scheduler wants one."""
    return _pool.Pool(_device(device), pages=1)


def valid(run):
    """int32, on the device: 1, or 0 once anything failed in this step."""
    if run.scheduler is None:
        return torch.ones(1, dtype=torch.int32, device=run.device or "cpu")
    out = torch.empty(1, dtype=torch.int32, device=run.device)
    with run.pool.device.lock:
        run.pool.device.copy(out.data_ptr(), run.pool.step_valid_address, 4, run.scheduler._handle(None))
    early = run.visits.early
    return out if early is None else torch.minimum(out, early)


def grow(run):
    """After a step that ran out of pages. The pages now."""
    run.pool.device.synchronize()
    status = run.pool.status()
    if status is None:
        raise Error("nothing to grow by: no step has ended yet")
    info = run.pool.info()
    wanted = max(math.ceil(status.demand * run.headroom) - info.num_pages[1], info.num_pages[0])
    run.pool.resize(wanted)
    run.pool.reset("faults", "statistics", stream=run.scheduler._handle(None))
    return wanted
