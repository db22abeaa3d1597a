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
from .stash import Stash

__all__ = ["Stash", "Status", "glu"]
