"""Transformer Engine's saved tensors in pages: its markers, its quantised tensors, its offload controller.

    import pagestash.te, pagestash.torch
    pagestash.te.follow_markers()
    stash = pagestash.torch.Stash()
    with pagestash.te.layer(stash, split_sizes, capacity):
        y = experts(x, split_sizes)

Nothing here imports Transformer Engine. docs/te.md says from which of its commits this was written, and
that it was tested on doubles."""
from .layer import layer
from .markers import follow_markers, mark_grouped_tensor, mark_not_offload, select
from .offload import OffloadController, get_cpu_offload_context

__all__ = ["OffloadController", "follow_markers", "get_cpu_offload_context", "layer",
           "mark_grouped_tensor", "mark_not_offload", "select"]
