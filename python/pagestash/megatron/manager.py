"""Megatron-Core's manager of the paged stash, with pages of pagestash.

Its schedule, streams and callers stay; stashing, restoring, sizing and what is lost are
overridden."""
import contextlib
import dataclasses
import logging
import os
from typing import Optional, Union

import torch
from megatron.core.transformer.moe.paged_stash import PagedStashManager

from .. import allocator
from .. import pool as pools
from .._c import Error
from . import sizing
from .saved import SCALE_ROWS, Batch, Described, Saved, Visit, key_of, parts
from .space import Space, is_capturing
from .words import HostSpill, Overflow

_log = logging.getLogger("pagestash")
_FORWARD, _FIRST = "captured", "capture"  # Megatron's names of: playing the order, recording it


@dataclasses.dataclass(frozen=True)
class Options:
    """See install."""
    page_bytes: Optional[int] = None
    grow: bool = True
    headroom: float = 1.1
    max_pages: Optional[int] = None
    num_sms: int = 0
    tail: str = "zero"
    scrub: bool = False
    recovery: str = "grow"
    allocator_plan: Union[None, str, "os.PathLike[str]"] = None


class Order(list):
    """The recorded order of visits. Off it (another number of micro-batches, another model) it
    answers that nothing is known, so that Megatron's functions stash at once and prefetch
    nothing."""

    on = True

    def __getitem__(self, at):
        return super().__getitem__(at) if self.on and 0 <= at < len(self) else 0


class Manager(Space, PagedStashManager):
    """Takes the place of PagedStashManager.STASH_MGR; see install."""

    def __init__(self, options: Options):
        self.options, self.pool, self.memory, self.valid = options, None, None, None
        self.num_launches = {"stash": 0, "restore": 0}
        self.factors, self.records, self.forms, self.named = (1.1, 0.0), {}, {}, set()
        self.host_pages, self.page_bytes, self.grown, self.steps_seen = 0, 0, 0, 0
        self.demand, self.spilled_pages, self.num_lost_steps = 0, 0, 0
        self._visit, self._recording, self._seen, self._batches = None, [], [], []
        self._overflow, self._host_spill = Overflow(self), HostSpill(self)
        self._stash_options = pools.stash_options(options.num_sms)
        self._restore_options = pools.restore_options(options.num_sms, tail=options.tail)
        self._mem_pool = None
        if options.allocator_plan is not None:
            self._mem_pool = allocator.mem_pool(plan=options.allocator_plan)
        super().__init__()
        self._pp_schedule = Order()

    # ---- what Megatron asks and zeroes

    @property
    def overflow(self):
        """Like Megatron's overflow word: asked by ne(0), cleared by zero_()."""
        return self._overflow

    @overflow.setter
    def overflow(self, value):
        pass

    @property
    def host_spill(self):
        """Like Megatron's word of that name, one step late."""
        return self._host_spill

    @host_spill.setter
    def host_spill(self, value):
        pass

    @property
    def num_pages(self) -> int:
        """Device pages of the pool; 0: there is none."""
        return self.pool.info().num_pages[0] if self.pool else 0

    def pool_status(self) -> Optional[pools.Status]:
        """The pool's Status of the last closed step; waits for the device. None: no pool, no
        step."""
        if self.pool is None:
            return None
        self.pool.device.synchronize()
        return self.pool.status()

    def planned(self):
        """A context for a training step: its thread allocates by options.allocator_plan."""
        if self._mem_pool is None:
            return contextlib.nullcontext()
        return torch.cuda.use_mem_pool(self._mem_pool)

    # ---- saving

    def on_save_for_backward(self, tensor):
        """Of saved_tensors_hooks: a Saved for a tagged tensor of rows, else the tensor."""
        rows = self._rows_of(tensor)
        if rows is None:
            return tensor
        key = key_of(tensor)
        for other in self.paged_tensors_to_stash if key else ():  # saved twice: stashed once
            if other.key == key and other.visit is self._visit and other.look():
                return other
        saved = Saved(tensor, rows, self._visit)
        if self.status == _FIRST:
            saved.cut_out()
            self._recording.append(Described(rows, self._visit))
        elif self.status == _FORWARD:
            self.paged_tensors_to_stash.append(saved)
        return saved

    def _rows_of(self, tensor):
        """The pools.Rows of a tensor that is to be stashed; None: it stays, which is said once."""
        if self.max_num_tokens is None or tensor.dim() == 0 or tensor.numel() == 0:
            return None
        scales = getattr(tensor, "grouped_tensor_scale_inv", None)
        if scales is None:
            parameter = tensor.is_leaf and tensor.requires_grad
            if not parameter and tensor.numel() >= self.max_num_tokens:
                self._name(tensor, "is not tagged as rows of the experts")
            return None
        if self._visit is None or self._visit.source is not self.num_tokens_tensor:
            self._visit = Visit(self.num_tokens_tensor, self.max_num_tokens, self.avg_num_tokens,
                                self._where(), tensor.device)
        rows = self._visit.rows(tensor, scales)
        if rows is None:
            count = -(-self.max_num_tokens // SCALE_ROWS) if scales else self.max_num_tokens
            self._name(tensor, "is no multiple of the rows", f", {count}")
        return rows

    def _where(self):
        stage = self.current_vp_stage or 0
        layer = self.current_layer[stage] if self.current_layer else 0
        return f"{self._current_layer_name or 'experts'}, layer {layer} of chunk {stage}"

    def _name(self, tensor, why, detail=""):
        # Once for all layers that do the same, and whatever the number of rows is.
        width = tensor.numel() / self.max_num_tokens
        key = self._current_layer_name, width, tensor.dtype, why
        if key not in self.named:
            self.named.add(key)
            _log.warning("pagestash: %s saves a tensor of shape %s, %s, %d bytes, which %s%s: it "
                         "stays whole in memory, here and in other layers", self._where(),
                         tuple(tensor.shape), tensor.dtype, tensor.numel() * tensor.element_size(),
                         why, detail)

    def on_get_saved_tensor(self, saved_state):
        """Of saved_tensors_hooks. Errors: the pages were given up with their step; the tensor was
        changed in place."""
        if not isinstance(saved_state, Saved):
            return saved_state
        saved_state.check()
        if saved_state.cut is not None:
            return saved_state.whole()
        if saved_state.tensor is None:
            if saved_state.batch is None:
                raise Error(f"{saved_state.visit.name}: a backward after its step was closed: the "
                            "pages are freed")
            self._restore([saved_state.batch])
            torch.cuda.current_stream().wait_stream(self.unpack_stream)
        return saved_state.tensor.view(saved_state.shape)

    # ---- Megatron's order

    def update_model_chunk(self, vp_stage_index):
        """Counts a micro-batch; of an evaluation not, which would shift those of training."""
        if self.enabled:
            super().update_model_chunk(vp_stage_index)

    def update_pp_schedule(self, vp_stage, layer_no=None, microbatch_no=None):
        """Records or follows the order. Off it, layers are stashed at once and restored on demand,
        and the next step follows the new order."""
        if layer_no is None:
            stage = vp_stage - 1
            layer_no, microbatch_no = self.current_layer[stage], self.current_microbatch[stage]
            self.current_layer[stage] += 1
        entry = self.get_schedule_layer(vp_stage, layer_no, microbatch_no)
        self._seen.append(entry)
        if entry > 0 and self._recording:
            self.records[entry], self._recording = tuple(self._recording), []
        if self.status == _FIRST:
            self._pp_schedule.append(entry)
        elif self._pp_schedule[self.current_schedule_index] != entry:
            self._pp_schedule.on = False
        return layer_no, microbatch_no

    def stash_paged_tensors(self, pp_schedule_layer):
        """Stashes what the layer saved, one launch for all its tensors."""
        saved, self.paged_tensors_to_stash = self.paged_tensors_to_stash, []
        saved = [one for one in saved if one.look()]  # what was changed is refused in its backward
        if self.pool is None or not saved:
            return
        self.pack_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.pack_stream):
            for part in parts(saved):
                try:
                    batch = Batch(self.pool, self.form(part), part, self._stream(),
                                  self._stash_options)
                except Error as error:  # no ticket, or too small a one: they stay
                    self._name(part[0].tensor, "finds no ticket", f" ({error})")
                    continue
                self.num_launches["stash"] += 1
                self._pack_stream_status = "stashing"
                self._batches.append(batch)
                self.paged_tensors_to_reload.setdefault(pp_schedule_layer, []).append(batch)
                self.paged_tensors_stash_in_progress.extend(part)

    def wait_for_stash_to_complete(self):
        """Lets the sources go; which of them were written into meanwhile is told by then."""
        for one in self.paged_tensors_stash_in_progress:
            one.look()
        super().wait_for_stash_to_complete()

    def reload_paged_tensors(self, pp_schedule_layer, no_wait=False):
        """Restores what the visit stashed, ahead of its backward."""
        batches = self.paged_tensors_to_reload.pop(pp_schedule_layer, ())
        self._restore([batch for batch in batches if batch.is_held])

    def _restore(self, batches):
        if not batches:
            return
        for batch in batches:
            batch.allocate()  # on the current stream, whose allocator frees them
            self._batches.remove(batch)
        self.unpack_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.unpack_stream):
            for batch in batches:
                batch.restore(self._stream(), self._restore_options)
                self.num_launches["restore"] += 1
                self._unpack_stream_status = "reloading"

    def _stream(self):
        if self.device is None or self.device.type == "cpu":
            return 0
        return torch.cuda.current_stream().cuda_stream

    # ---- steps

    def close_step(self):
        """Ends the step before: frees what no backward came for, publishes the status, follows a
        new order. Called at the start of a training step; can be captured."""
        order, seen = self._pp_schedule, self._seen
        was_off, order.on, self._seen = not order.on, True, []
        self._end()
        if is_capturing():
            return
        self.look()
        if was_off and sizing.is_whole(seen):
            self._pp_schedule = Order(seen)
            self._fit()

    def look(self):
        """Reads the status last published, one step old while a GPU is busy; names a lost step."""
        status = self.pool.status() if self.pool else None
        if status is None or status.steps <= self.steps_seen:
            return
        self.steps_seen = status.steps
        self.demand = max(self.demand, status.step_demand)
        self._host_spill.see(status.spilled_pages)
        if not status.valid:
            self.num_lost_steps += 1
            _log.warning("pagestash: a step was lost and not run again: %s; it wanted %d pages of "
                         "%d", status.fault, status.step_demand, sum(self.pool.info().num_pages))

    def clear_faults(self):
        """step_valid is 1 again."""
        if self.pool is not None:
            self.pool.reset("faults", stream=self._stream())

    def _end(self):
        self._forget()
        current = torch.cuda.current_stream()
        self.pack_stream.wait_stream(current)  # which brings it into a capture
        with torch.cuda.stream(self.pack_stream):
            self.pool.step(self._stream())
        current.wait_stream(self.pack_stream)

    def _forget(self):
        """Gives up what no backward came for, after an exception or a dropped graph."""
        self.paged_tensors_to_stash, self._recording, self._visit = [], [], None
        self.wait_for_stash_to_complete()
        self.paged_tensors_stash_in_progress.clear()
        self.paged_tensors_to_reload.clear()
        batches, self._batches = self._batches, []
        with torch.cuda.stream(self.pack_stream):
            for batch in batches:
                batch.drop(self._stream())

    def finish(self) -> Optional[pools.Status]:
        """Closes the step now and waits: its Status, as prelude to growing. Not while capturing."""
        if self.pool is None:
            return None
        self._end()
        self.clear_faults()
        status = self.pool_status()
        self.steps_seen, self.demand = status.steps, max(self.demand, status.step_demand)
        return status
