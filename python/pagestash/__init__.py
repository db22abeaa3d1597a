"""pagestash keeps the live bytes of oversized MoE buffers in pages until the backward pass.

    import pagestash.torch
    stash = pagestash.torch.Stash()
    with stash.layer(counts, capacity):
        y = experts(x)

pagestash.torch is for any model of torch; pagestash.megatron and pagestash.te for those frameworks;
pagestash.schedule and pagestash.simulate for people who write pipelines."""
import os as _os

from ._c import Error, lib as _lib

_number = _lib.pst_version()
__version__ = f"{_number // 10000}.{_number // 100 % 100}.{_number % 100}"
__all__ = ["Error", "__version__"]
