"""What Megatron-Core reads and clears as words on the device, answered by the pool."""
import torch


class _Word:
    def __init__(self, manager):
        self.manager = manager

    def _false(self):
        device = self.manager.device
        return torch.zeros(1, dtype=torch.bool, device="cuda" if device is None else device)

    def ne(self, other):
        """A bool tensor of 1 element, as of here on the current stream."""
        return self.read().ne(other)


class Overflow(_Word):
    """1 where something failed in this training step, and until the next begins or zero_().

    An evaluation between does not change the answer."""

    def read(self):
        """bool, 1 element."""
        if self.manager.valid is None:
            return self._false()
        torch.cuda.current_stream().wait_stream(self.manager.pack_stream)
        return self.manager.valid.eq(0)

    def zero_(self):
        """Says that the fault was dealt with."""
        self.manager.clear_faults()
        return self


class HostSpill(_Word):
    """1 where the last step that was closed and published took host pages. (The pool counts them
    in its status, so the answer is a step late; Megatron only logs it.)"""

    def __init__(self, manager):
        super().__init__(manager)
        self.begin()

    def begin(self):
        """Of a new pool."""
        self.seen, self.spilled = 0, False

    def see(self, spilled_pages):
        """spilled_pages: since the pool was made."""
        self.spilled, self.seen = spilled_pages > self.seen, spilled_pages

    def read(self):
        """bool, 1 element."""
        self.manager.look()
        return self._false().fill_(self.spilled)

    def zero_(self):
        """Megatron clears it with the step; the next published status answers."""
        return self
