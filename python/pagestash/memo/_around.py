"""What surrounds a forward besides its arguments, so that it runs again as it did: autocast, random numbers."""
import contextlib

import torch


def _kinds(device):
    return ["cpu"] if device.type == "cpu" else ["cpu", device.type]


def autocast_dtypes(device):
    """Of the autocast that is on."""
    return [torch.get_autocast_dtype(kind) for kind in _kinds(device) if torch.is_autocast_enabled(kind)]


@contextlib.contextmanager
def without_autocast_cache():
    """For what runs without gradients: weights that it casts have no history, and must be cast again by what runs
    with gradients."""
    had = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(had)


def random_state(device, trackers=()):
    """Of the generators that a layer on `device` draws from, and of trackers, which keep more of them (objects
    with get_states and set_states). Synchronises with a GPU."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states + [dict(tracker.get_states()) for tracker in trackers]


def set_random_state(device, states, trackers=()):
    """As random_state was."""
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
    for tracker, of_tracker in zip(trackers, states[len(states) - len(trackers):]):
        tracker.set_states(dict(of_tracker))


def has_drawn(before, after):
    """Whether states of random_state differ."""
    def tensors(states):
        return [leaf for leaf in torch.utils._pytree.tree_leaves(states) if isinstance(leaf, torch.Tensor)]
    return any(not torch.equal(a, b) for a, b in zip(tensors(before), tensors(after)))


class Around:
    """Of one pass. draws: the layer draws random numbers: their states are kept for each piece, where it
    begins and behind attention. trackers: as random_state has."""

    def __init__(self, device, draws, trackers=()):
        self.device, self.draws, self.trackers = device, draws, trackers
        self.autocast = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
                         for kind in _kinds(device)]
        self.caches = torch.is_autocast_cache_enabled()
        self.begins, self.goes = {}, {}

    def piece_begins(self, p):
        """In the forward."""
        if self.draws:
            self.begins[p] = random_state(self.device, self.trackers)

    def goes_on(self, p):
        """In the forward, behind attention."""
        if self.draws:
            self.goes[p] = random_state(self.device, self.trackers)

    def enter(self, stack, p):
        """Before piece p is computed again; the ExitStack puts everything back."""
        for kind, is_enabled, dtype in self.autocast:
            stack.enter_context(torch.autocast(kind, enabled=is_enabled, dtype=dtype,
                                               cache_enabled=self.caches))
        if self.draws:
            stack.callback(set_random_state, self.device, random_state(self.device, self.trackers),
                           self.trackers)
            set_random_state(self.device, self.begins[p], self.trackers)

    def goes_on_again(self, p):
        """The second half of enter."""
        if self.draws:
            set_random_state(self.device, self.goes[p], self.trackers)
