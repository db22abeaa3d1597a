"""Pages for what a layer of torch keeps for its backward pass.

    stash = pagestash.torch.Stash()
    for batch in batches:
        with stash.layer(counts, capacity):   # or once, before: stash.wrap(experts, ...)
            y = experts(x)
        loss(y).backward()
        stash.step()
"""
from ..pool import Status
from .gated import glu
from .leases import Lease, Scratch, scratch
from .parallel import column_parallel_linear, row_parallel_linear
from .parallel_layers import ColumnParallelLinear, RowParallelLinear
from .stash import Stash

__all__ = ["ColumnParallelLinear", "Lease", "RowParallelLinear", "Scratch", "Stash", "Status",
           "column_parallel_linear", "glu", "row_parallel_linear", "scratch"]
