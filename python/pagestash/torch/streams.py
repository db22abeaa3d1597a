"""Where stashes and restores are enqueued: on the current stream, or on one of the stash's own beside it."""
import torch


class Inline:
    """Everything on the current stream of torch. On a CPU there is one, 0."""

    def __init__(self, device):
        self.device = device
        self.is_cuda = device.type == "cuda"

    def current(self):
        """The current stream, as an int."""
        return torch._C._cuda_getCurrentRawStream(self.device.index) if self.is_cuda else 0

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

    def share(self, tensors, stream):
        """Before the current stream uses tensors that were made for `stream`, an int: it waits for that, and their
        memory waits for it."""
        if stream != self.current():
            self.behind(stream)
            for tensor in tensors:
                tensor.record_stream(torch.cuda.current_stream(self.device))

    def behind(self, stream):
        """A stream, an int, that is behind `stream`: the current one, which waits for it; where only the
        current one is captured, `stream` itself; where only `stream` is, None."""
        current = self.current()
        if stream == current:
            return current
        other = torch.cuda.ExternalStream(stream, self.device) if stream else \
            torch.cuda.default_stream(self.device)
        if _is_captured(other) != self.is_capturing():
            return stream if self.is_capturing() else None
        torch.cuda.current_stream(self.device).wait_stream(other)
        return current


def _is_captured(stream):
    with torch.cuda.stream(stream):
        return torch.cuda.is_current_stream_capturing()


class Beside(Inline):
    """A stream of the stash's own, or the caller's `side`: stashes run beside the next layer's forward, and
    restores that are started early beside the backward of the layer above. Sources of at most one stash are
    held."""

    def __init__(self, device, side=None):
        super().__init__(device)
        self.side = side or torch.cuda.Stream(device)
        self.held = []  # (event, the stream that has their memory, whether it is captured, sources)

    def enter(self):
        self.side.wait_stream(torch.cuda.current_stream(self.device))
        return self.side.cuda_stream

    def leave(self, waits):
        if waits:
            torch.cuda.current_stream(self.device).wait_stream(self.side)

    def hold(self, sources):
        self.release()
        stream = torch.cuda.current_stream(self.device)
        self.held.append((self.record(), stream, self.is_capturing(), sources))

    def release(self):
        current, capturing = torch.cuda.current_stream(self.device), self.is_capturing()
        held, self.held = self.held, []
        for entry in held:
            event, stream, was_capturing, _ = entry
            if was_capturing != capturing:
                keeps = not was_capturing or _is_captured(stream)  # else its capture has ended
            else:
                # A stream that was joined already must not wait for anything more in its capture.
                keeps = capturing and stream != current
                if not keeps:
                    stream.wait_event(event)
            if keeps:
                self.held.append(entry)

    def record(self):
        return self.side.record_event()
