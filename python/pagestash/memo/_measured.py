"""What a layer keeps: found by a run of it in two pieces in which autograd's tensors are only looked at."""
import dataclasses
import time

import torch

from . import _pieces, _watch
from ._kept import PLAIN, Layout


def wait_for(device):
    """Until a GPU has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a layer keeps, of num_tokens tokens. input_bytes; attention_bytes: of its output and what else it
    keeps that is no query, key or value; rows: of each tensor saved in a piece, in order, the bytes of a
    token, 0: it stays; joined: queries, keys, values; forward_ns: of the forward over all tokens;
    recompute_ns: of what runs again for tokens that were dropped, over all of them; 0: not measured."""
    num_tokens: int
    shape: tuple
    dtype: torch.dtype
    input_bytes: int
    attention_bytes: int
    rows: tuple
    joined: tuple
    draws: bool
    forward_ns: int
    recompute_ns: int = 0

    @property
    def whole_bytes(self):
        """Input and attention."""
        return self.input_bytes + self.attention_bytes

    @property
    def joined_bytes(self):
        """Of a row of queries, keys and values."""
        return _pieces.row_bytes_of(self.joined)

    @property
    def piece_bytes(self):
        """Of a token, of what the pieces save."""
        return sum(self.rows)

    @property
    def token_bytes(self):
        """Of a token, all that does not go whole."""
        return self.piece_bytes + self.joined_bytes

    @property
    def kept_bytes(self):
        """All that one pass keeps."""
        return self.whole_bytes + self.num_tokens * self.token_bytes

    def swap_bytes(self, swap_tokens):
        """That go to the host."""
        return self.whole_bytes + swap_tokens * self.token_bytes

    def layout(self, swap_tokens, cut):
        """Of a buffer."""
        return Layout(self.num_tokens, swap_tokens, cut, self.input_bytes, self.whole_bytes, self.piece_bytes,
                      self.joined_bytes, 2 * sum(map(bool, self.rows)), self.joined)


class Scale(_pieces.Plain):
    """A keeper that only looks."""

    def __init__(self, unit, num_tokens, fixed, device):
        super().__init__(unit.groups)
        self.unit, self.num_tokens, self.fixed, self.device = unit, num_tokens, fixed, device
        self.since = self.before = 0  # what lies before attention
        self.behind = {}              # of each piece, up to the last tensor that it saves
        self.saved, self.others, self.joined = [], [], []
        self.versions, self.seen, self.held = [], {}, []
        self.private = _watch.Private()

    def piece(self, p):
        """A context."""
        while len(self.saved) <= p:
            self.saved.append([])
        if p > 0:
            self.before += self._now() - self.since
        self.since = self._now()
        return torch.autograd.graph.saved_tensors_hooks(lambda tensor: self._pack(p, tensor), self._held)

    def _now(self):
        wait_for(self.device)
        return time.perf_counter_ns()

    def goes_on(self, p):
        """Behind attention."""
        self.since, self.behind[p] = self._now(), 0

    @property
    def recompute_ns(self):
        """What runs again."""
        return self.before + sum(self.behind.values())

    def attention(self):
        """A context."""
        self.before += self._now() - self.since
        return torch.autograd.graph.saved_tensors_hooks(self._pack_whole, self._held)

    def join(self, joins):
        """Copies."""
        self.joined = _pieces.joined_of(joins, self.num_tokens)
        wholes = super().join(joins)
        for whole in wholes:
            self.private.add(whole)
            self.seen[whole.untyped_storage().data_ptr()] = whole
        return wholes

    def attended(self, tensor):
        """It is kept."""
        self._pack_whole(tensor)

    def _new_bytes(self, tensor):
        """Of its storage; 0: it stays, or was seen."""
        if type(tensor) not in PLAIN or tensor.layout is not torch.strided:
            return 0
        storage = tensor.untyped_storage()
        self.versions.append((tensor, tensor._version))
        if storage.data_ptr() in self.fixed or storage.data_ptr() in self.seen:
            return 0
        self.seen[storage.data_ptr()] = tensor
        return storage.nbytes()

    def _pack(self, p, tensor):
        self.saved[p].append(self._new_bytes(tensor))
        if p in self.behind and self.saved[p][-1]:
            self.behind[p] = self._now() - self.since
        return self._hold(tensor)

    def _pack_whole(self, tensor):
        if tensor.numel() >= self.num_tokens:
            self.others.append(self._new_bytes(tensor))
        return self._hold(tensor)

    def _hold(self, tensor):
        self.held.append(tensor.detach())
        return len(self.held) - 1

    def _held(self, number):
        return self.held[number]

    def let_go(self):
        """Of all tensors: their graph refers to the hooks, and so to this, which nobody would ever free."""
        self.versions.clear()
        self.held.clear()
        self.seen.clear()

    def is_changed(self):
        """Whether one was changed in place after it was saved."""
        return any(tensor._version != version for tensor, version in self.versions)
