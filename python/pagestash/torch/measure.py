"""The first step, measured: which forms were stashed and ended in which order, and so how many pages of
which size are enough."""

PAGE_BYTES = tuple(1 << shift for shift in range(18, 13, -1))  # 256 KiB down to 16 KiB
_WASTE = 0.01  # of the bytes at the peak, that rounding up to pages may cost


class Log:
    """Stashes and ends of visits, in order."""

    def __init__(self):
        self.events = []  # (form, counts) of a stash; the number of its stash for an end
        self.num_stashes = 0

    def stashed(self, form, counts):
        """Its number."""
        self.events.append((form, counts))
        self.num_stashes += 1
        return self.num_stashes - 1

    def ended(self, number):
        """The visit of that number gives its pages back."""
        self.events.append(number)

    def peak(self, page_bytes):
        """(pages, stashes) in use at once, at most."""
        return self._peak(lambda form, counts: form.measure(counts, page_bytes).pages)

    def _peak(self, size):
        sizes, live, most, most_live = [], 0, 0, 0
        ended = 0
        for event in self.events:
            if isinstance(event, int):
                live, ended = live - sizes[event], ended + 1
            else:
                sizes.append(size(*event))
                live += sizes[-1]
                most, most_live = max(most, live), max(most_live, len(sizes) - ended)
        return most, most_live

    def page_bytes(self):
        """The largest page that costs little more at the peak than the bytes that are there."""
        bytes_, _ = self._peak(lambda form, counts: form.measure(counts).stream_bytes)
        for size in PAGE_BYTES:
            if self.peak(size)[0] * size <= bytes_ * (1 + _WASTE):
                return size
        return PAGE_BYTES[-1]
