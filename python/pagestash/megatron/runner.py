"""Megatron-Core's PagedStashRunner, which grows the pool and runs a lost step again with it."""
import logging

import torch
from megatron.core.full_cuda_graph import FullCudaGraphWrapper
from megatron.core.tensor_parallel import random as megatron_random
from megatron.core.transformer.moe import moe_logging
from megatron.core.transformer.moe import paged_stash
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper

from .._c import Error
from ..torch.rerun import Snapshot
from .manager import Manager

_log = logging.getLogger("pagestash")
_MegatronRunner = paged_stash.PagedStashRunner  # as it was before install
_TRIES = 3  # steps with pages; what the second lacks is known after the first


class _Metrics:
    """Auxiliary losses: the accumulators of Megatron's MoE metrics, as a tracker of Snapshot."""

    def get_states(self):
        """name: values by layer."""
        return {name: entry.values
                for name, entry in moe_logging.get_moe_metrics_tracker().metrics.items()}

    def set_states(self, states):
        """What appeared since is zeroed."""
        for name, entry in moe_logging.get_moe_metrics_tracker().metrics.items():
            if name in states:
                entry.values = states[name]
            else:
                entry.values.zero_()


class _Tracker:
    """Losses of another kind that Megatron keeps in a dict."""

    def __init__(self, tracker):
        self.tracker = tracker

    def get_states(self):
        """As they are."""
        return dict(self.tracker)

    def set_states(self, states):
        """What appeared since goes."""
        self.tracker.clear()
        self.tracker.update(states)


def _trackers():
    out = [_Metrics(), _Tracker(MTPLossLoggingHelper.tracker)]
    try:
        from megatron.core.transformer.experimental_attention_variant.dsa import (
            DSAIndexerLossLoggingHelper)
        out.append(_Tracker(DSAIndexerLossLoggingHelper.tracker))
    except ImportError:
        pass
    if megatron_random._CUDA_RNG_STATE_TRACKER is not None:
        out.append(megatron_random.get_cuda_rng_tracker())
    return out


class Runner(_MegatronRunner):
    """As Megatron's; but where the stash overflowed in training, the pool grows and the step runs
    again with it, from the state before it. Where that cannot do (no memory, another fault, over
    budget), Megatron's own way follows: once more, dropless and without stash, also from the state
    before.

    The step's micro-batches are read once. With copy_main_params (parameters that share memory with
    gradients) it is Megatron's way at once."""

    def __init__(self, config, copy_main_params, model, optimizer, forward_backward_func):
        super().__init__(config, copy_main_params, model, optimizer, forward_backward_func)
        options = getattr(self.stash_manager, "options", None)
        if (getattr(options, "allocator_plan", None) is not None
                and isinstance(forward_backward_func, FullCudaGraphWrapper)):
            raise Error("pagestash.megatron: allocator_plan and a full-iteration CUDA graph: the "
                        "graph's memory is a pool of its own; allowed is one of them")

    def __call__(self, *args, **kwargs):
        manager = self.stash_manager
        if (args or kwargs.get("forward_only", True) or not isinstance(manager, Manager)
                or self.copy_main_params or not self.config.moe_paged_stash):
            return super().__call__(*args, **kwargs)
        snapshot = Snapshot(self.model, trackers=_trackers()).take()
        for _ in range(_TRIES):
            kept, lists = self.data_read(kwargs["data_iterator"], kwargs["model"], True,
                                         kwargs["num_microbatches"])
            with manager.planned():
                result = self.forward_backward_func(**{**kwargs, "data_iterator": lists})
            kwargs["data_iterator"] = kept
            lost, over_budget, _ = self.check_moe_overflow()
            if lost == 0 and over_budget == 0:
                manager.prepare(self.config)
                return result
            if over_budget or manager.options.recovery != "grow" or not self._grow():
                break
            result = None
            self._undo(snapshot)
            snapshot.take()
        return self._dropless(snapshot, kwargs)

    def _grow(self):
        """Grows the pool of each rank that needs it. Whether all of them can run the step again."""
        if isinstance(self.forward_backward_func, FullCudaGraphWrapper):
            self.forward_backward_func.reset_cuda_graph(stage="training")
        can = self.stash_manager.grow()
        device = self.stash_manager.device or torch.cuda.current_device()
        flag = torch.tensor([int(can)], dtype=torch.int32, device=device)
        torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MIN)
        _log.info("pagestash: a step lost its activations; it runs again %s",
                  "with more pages" if flag.item() else "without stash")
        return bool(flag.item())

    def _undo(self, snapshot):
        """As before the step: first what Megatron counts beside the gradients, then their
        values."""
        for chunk in self.model:
            if hasattr(chunk, "zero_grad_buffer"):
                chunk.zero_grad_buffer()
        snapshot.restore()

    def _dropless(self, snapshot, kwargs):
        stashed = self.config.moe_paged_stash
        self.prepare_for_rerun(is_training=True)
        snapshot.restore()
        try:
            return super().__call__(**kwargs)
        finally:
            self._set_moe_paged_stash_all(stashed)
