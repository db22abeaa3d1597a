"""Where stashes and restores are enqueued: on the current stream, or on one of the stash's own beside it."""
import torch


class Inline:
    """Everything on the current stream of torch. On a CPU there is one, 0."""

    def __init__(self, device):
        self.device = device
        self.is_cuda = device.type == "cuda"

    def current(self):
        """The current stream, as an int."""
        return torch.cuda.current_stream(self.device).cuda_stream if self.is_cuda else 0

    def is_capturing(self):
        """Whether the current stream is being captured."""
        return self.is_cuda and torch.cuda.is_current_stream_capturing()

    def enter(self):
        """The stream for an operation, an int: behind what was enqueued on the current one."""
        return self.current()

    def leave(self, waits):
        """After the operation. waits: the current stream goes on behind it."""

    def hold(self, sources):
        """Keeps what an operation that nobody waits for still reads."""

    def release(self):
        """Lets go of what was held, the current stream being behind the operations."""

    def record(self):
        """An event behind the last operation; None: none is needed."""
        return torch.cuda.current_stream(self.device).record_event() if self.is_cuda else None


class Beside(Inline):
    """A stream of the stash's own, or the caller's `side`: stashes run beside the next layer's forward, and
    restores that are started early beside the backward of the layer above. Sources of at most one stash are
    held."""

    def __init__(self, device, side=None):
        super().__init__(device)
        self.side = side or torch.cuda.Stream(device)
        self.held = []  # (event, the stream that has their memory, sources)

    def enter(self):
        self.side.wait_stream(torch.cuda.current_stream(self.device))
        return self.side.cuda_stream

    def leave(self, waits):
        if waits:
            torch.cuda.current_stream(self.device).wait_stream(self.side)

    def hold(self, sources):
        self.release()
        self.held.append((self.record(), torch.cuda.current_stream(self.device), sources))

    def release(self):
        held, self.held = self.held, []
        for event, stream, _ in held:
            stream.wait_event(event)

    def record(self):
        return self.side.record_event()
