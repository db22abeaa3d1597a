"""What a choice of tokens takes of host and GPU memory, before anything is allocated."""
import fractions
import os

from .. import _simulate, pool as _pool
from .._c import Error
from .._simulated_layers import SimulatedLayer
from ._kept import aligned

_RESERVE = 8  # of the machine's memory a part is left to all else: 1/8


def tokens_of(share, num_tokens, block_tokens):
    """So many of a layer's tokens: a share, rounded down to whole blocks; 1 is all of them."""
    return num_tokens if share == 1 else int(num_tokens * share) // block_tokens * block_tokens


def staying(places, keep_last):
    """Indices of layers that stay in memory, since they are among the last: those before the last two of
    each chunk, which stay in the buffers. Theirs are then free while the layers that stay run backward, so
    that the first copies back hide behind these."""
    ends = {}
    for chunk, layer in places:
        ends[chunk] = max(ends.get(chunk, 0), layer + 1)
    return {i for i, (chunk, layer) in enumerate(places)
            if ends[chunk] - keep_last <= layer < ends[chunk] - 2}


def leaving(schedule, keeps, keeps_nothing=False):
    """Which swapped layers are copied to the host in some visit: a set of (chunk, layer). keeps: of each
    (chunk, layer) "swapped" or something else."""
    layers = [SimulatedLayer(layer, chunk, keep="swapped" if keep == "swapped" else "planned",
                             swap_bytes=int(keep == "swapped"))
              for (chunk, layer), keep in keeps.items()]
    events = _simulate.simulate(schedule, layers, keeps_nothing=keeps_nothing).raw_events()
    out = _simulate.EVENT_KINDS.index("swap out")
    return {(event.visit.chunk, event.visit.layer) for event in events if event.kind == out}


class Limits:
    """Of a model on this GPU. places: of each layer (chunk, layer); scales: what it keeps (_measured.Measured),
    None: it is not swapped. cut: where the pieces part; None: where the swapped tokens end. host_bytes,
    gpu_bytes: that there are; None: not looked at. keeps_nothing: also the last two layers leave."""

    def __init__(self, places, scales, schedule, *, block_tokens, cut=None, host_bytes=None,
                 gpu_bytes=None, keeps_nothing=False):
        self.places, self.scales, self.schedule = tuple(places), tuple(scales), schedule
        self.block_tokens, self.cut, self.keeps_nothing = block_tokens, cut, keeps_nothing
        self.host_limit, self.gpu_limit = host_bytes, gpu_bytes
        self._leaving = {}

    def slots(self, i):
        """Micro-batches that layer i holds at once."""
        return self.schedule.slots(self.places[i][0])

    def leaves(self, tokens):
        """Which layers' tensors go to the host, of all."""
        swapped = tuple(one is not None for one in tokens)
        if swapped not in self._leaving:
            keeps = {place: "swapped" if is_swapped else "planned"
                     for place, is_swapped in zip(self.places, swapped)}
            self._leaving[swapped] = leaving(self.schedule, keeps, self.keeps_nothing)
        return [place in self._leaving[swapped] for place in self.places]

    def host_bytes(self, tokens):
        """Pinned memory. tokens: of each layer, None: it stays in memory."""
        return sum(self.slots(i) * aligned(self.scales[i].swap_bytes(tokens[i]))
                   for i, leaves in enumerate(self.leaves(tokens)) if leaves)

    def buffer_bytes(self, tokens):
        """Of the two rounding buffers."""
        return 2 * max((aligned(self.scales[i].layout(k, k if self.cut is None else self.cut).num_bytes)
                        for i, k in enumerate(tokens) if k is not None), default=0)

    def gpu_bytes(self, tokens):
        """Both buffers, and layers that stay in memory."""
        return self.buffer_bytes(tokens) + sum(
            self.slots(i) * scale.kept_bytes for i, scale in enumerate(self.scales)
            if scale is not None and tokens[i] is None)

    def fits(self, tokens):
        """In both."""
        return ((self.host_limit is None or self.host_bytes(tokens) <= self.host_limit) and
                (self.gpu_limit is None or self.gpu_bytes(tokens) <= self.gpu_limit))

    def of_share(self, share, stays):
        """Tokens of all layers but those in `stays`, indices."""
        return tuple(None if scale is None or i in stays
                     else tokens_of(share, scale.num_tokens, self.block_tokens)
                     for i, scale in enumerate(self.scales))

    def largest_share(self, stays, most=fractions.Fraction(1)):
        """The largest share up to `most` for all layers that fits in host memory; None: none."""
        longest = max((scale.num_tokens for scale in self.scales if scale is not None), default=1)
        shares = [most] + [fractions.Fraction(k, longest)
                           for k in range(0, int(longest * most) + 1, self.block_tokens)][::-1]
        low, high = 0, len(shares)  # the first that fits; more tokens never take less
        while low < high:
            middle = (low + high) // 2
            if self.host_bytes(self.of_share(shares[middle], stays)) <= self.host_limit:
                high = middle
            else:
                low = middle + 1
        return shares[low] if low < len(shares) else None

    def check(self, tokens, what):
        """Errors: host memory is too small: what share would fit; GPU memory."""
        if self.host_limit is not None and self.host_bytes(tokens) > self.host_limit:
            raise Error(f"{what}: {self.host_bytes(tokens)} bytes of host memory are wanted, there are "
                        f"{self.host_limit}: {self._what_fits(tokens)}")
        if self.gpu_limit is not None and self.gpu_bytes(tokens) > self.gpu_limit:
            stay = sum(scale is not None and k is None for scale, k in zip(self.scales, tokens))
            raise Error(f"{what}: {self.gpu_bytes(tokens)} bytes of GPU memory are wanted, gpu_bytes is "
                        f"{self.gpu_limit}: both buffers take {self.buffer_bytes(tokens)}, whatever is "
                        f"swapped, and {stay} layers that stay the rest")

    def _what_fits(self, tokens):
        stays = {i for i, k in enumerate(tokens) if k is None}
        share = self.largest_share(stays)
        if share is not None:
            return f"fraction {share} would fit"
        least = self.host_bytes(self.of_share(0, stays))
        return f"not even 0 fits, where the layers' inputs and attention's outputs take {least}"


def free_host_bytes():
    """Memory of this machine that one of its GPUs may pin: what the system and this container's limit still
    have, without an eighth of all that there is, which other programs and the page cache are left; divided by
    the processes of a node ($LOCAL_WORLD_SIZE)."""
    info = _pool.Device.open("host").info()
    share = max(0, info.free_bytes - info.total_bytes // _RESERVE)
    try:
        return share // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    except ValueError:
        return share
