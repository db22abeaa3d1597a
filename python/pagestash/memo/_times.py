"""What a choice of tokens is weighed by: how long layers take, and how fast the link to the host is."""
import ctypes
import dataclasses
import statistics
import time

import torch

from .. import _c, pool as _pool

_MOST_BYTES, _LEAST_BYTES = 256 << 20, 1 << 20  # of a timed copy
_COPIES = 3
# A backward multiplies twice for each product of a forward; MEMO, too, takes it to be twice as long.
_BACKWARD = 2


@dataclasses.dataclass(frozen=True)
class Times:
    """forward_ns: of each layer, all its tokens; recompute_ns: of each, the parts that run again, all tokens.
    out_rate, in_rate: of the link, bytes per second."""
    forward_ns: tuple
    recompute_ns: tuple
    out_rate: int
    in_rate: int

    @property
    def backward_ns(self):
        """Of each layer, without what is computed again."""
        return tuple(_BACKWARD * ns for ns in self.forward_ns)

    def again_ns(self, i, scale, tokens, cut):
        """What layer i's backward computes again where `tokens` of them were swapped: of the pieces that have
        one that was not, all tokens."""
        cut = tokens if cut is None else cut
        first = 0 if tokens < cut else cut
        dropped = 0 if tokens == scale.num_tokens else scale.num_tokens - min(first, tokens)
        return -(-self.recompute_ns[i] * dropped // scale.num_tokens)


def device_of(torch_device):
    """The library's device of a device of torch."""
    if torch_device.type == "cuda":
        return _pool.Device.open("cuda", torch_device.index or 0)
    return _pool.Device.open("host")


def link_rates(torch_device, num_bytes):
    """Bytes per second to pinned memory and back, of copies of up to 256 MiB, each by itself."""
    device, num_bytes = device_of(torch_device), min(max(num_bytes, _LEAST_BYTES), _MOST_BYTES)
    here = torch.empty(num_bytes, dtype=torch.uint8, device=torch_device)
    there = ctypes.c_void_p()
    _c.call("pst_device_alloc_pinned", device.handle, num_bytes, ctypes.byref(there))
    try:
        return tuple(_rate(device, *ends, num_bytes) for ends in ((there.value, here.data_ptr()),
                                                                  (here.data_ptr(), there.value)))
    finally:
        _c.call("pst_device_free_pinned", device.handle, there)


def _rate(device, destination, source, num_bytes):
    taken = []
    for _ in range(1 + _COPIES):
        device.synchronize()
        begin = time.perf_counter_ns()
        device.copy(destination, source, num_bytes)
        device.synchronize()
        taken.append(max(1, time.perf_counter_ns() - begin))
    return max(1, num_bytes * 1_000_000_000 // int(statistics.median(taken[1:])))  # the first warms up


def agreed(times, host_bytes, group):
    """The slowest of what the ranks of a group measured, and the least host memory: ranks that run a layer
    together must choose alike, since what is computed again has their collectives in it."""
    if group is None:
        return times, host_bytes
    all_of = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(all_of, (times, host_bytes), group)
    slowest = [tuple(map(max, zip(*(getattr(one, name) for one, _ in all_of))))
               for name in ("forward_ns", "recompute_ns")]
    rates = [min(getattr(one, name) for one, _ in all_of) for name in ("out_rate", "in_rate")]
    return Times(*slowest, *rates), min(have for _, have in all_of)
