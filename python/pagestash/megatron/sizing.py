"""How many pages an order of forwards and backwards needs, and how large a page should be."""
from .._abi import PST_PAGE_BYTES_MIN

_PAGE_BYTES_MAX = 256 * 1024
_PAGES_PER_LAYER = 64  # so that what a layer's last page leaves empty is below 1 % on average


def peak(order, amounts, default=0):
    """The most that is held at once when Megatron-Core plays this order.

    order: numbers of layers' visits, positive for a forward, negative for its backward. amounts:
    what the stash of a visit takes, by its positive number. A visit whose backward follows at once
    is not stashed; one whose backward comes next is restored before that starts."""
    held, now, most = {}, 0, 0
    for at, entry in enumerate(order):
        following = order[at + 1] if at + 1 < len(order) else 0
        if entry > 0:
            if following == -entry:
                continue
            held[entry] = amounts.get(entry, default)
            now += held[entry]
            most = max(most, now)
        if following < 0:
            now -= held.pop(-following, 0)
    return most


def is_whole(order):
    """Whether every forward of the order has its backward, once."""
    forwards = [entry for entry in order if entry > 0]
    backwards = [-entry for entry in order if entry < 0]
    return len(set(forwards)) == len(forwards) and sorted(forwards) == sorted(backwards)


def page_bytes(layer_bytes):
    """A power of two from 16 KiB to 256 KiB, for layers that keep so many bytes."""
    layers = [num for num in layer_bytes if num > 0]
    want = min(layers, default=0) // _PAGES_PER_LAYER
    size = PST_PAGE_BYTES_MIN
    while size * 2 <= min(want, _PAGE_BYTES_MAX):
        size *= 2
    return size
