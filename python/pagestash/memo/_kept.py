"""What one pass through a swapped layer keeps, in one of the two rounding buffers.

A buffer holds, one behind the other:

    the layer's input | what attention keeps: its output, ...    whole_bytes, which go whole
    heads: of the tensors of each piece the rows of the first k tokens
    rows of queries, keys and values, one for each token; the first k belong to the heads
    tails: of the tensors of each piece the other rows

Input to the k-th row go to the host. The other rows are dropped, and computed again from the input."""
import contextlib
import dataclasses

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .._c import Error
from . import _pieces
from ._pieces import ROW_ALIGN
from ._watch import Stays

ALIGN = 256   # of what goes whole
PLAIN = (torch.Tensor, torch.nn.Parameter)


def aligned(num_bytes, to=ALIGN):
    """Rounded up."""
    return -(-num_bytes // to) * to


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where what a layer keeps lies in a buffer. piece_bytes: of the tensors of the pieces, of a token;
    joined_bytes: of a row of queries, keys and values. swap_tokens: k. cut: where the pieces part."""
    num_tokens: int
    swap_tokens: int
    cut: int
    input_bytes: int
    whole_bytes: int
    piece_bytes: int
    joined_bytes: int
    num_pieces_tensors: int
    joined: tuple

    @property
    def token_bytes(self):
        """Of a token, beside what goes whole."""
        return self.piece_bytes + self.joined_bytes

    @property
    def spans(self):
        """Of the pieces."""
        return _pieces.spans_of(self.num_tokens, self.cut)

    @property
    def heads(self):
        """Where they begin."""
        return self.whole_bytes

    @property
    def rows(self):
        """Where the rows of queries, keys and values begin."""
        return self.whole_bytes + self.swap_tokens * self.piece_bytes

    @property
    def tails(self):
        """Where they begin."""
        return aligned(self.rows + self.num_tokens * self.joined_bytes, ROW_ALIGN)

    @property
    def num_bytes(self):
        """Of a buffer."""
        gaps = 0
        if self.num_tokens % ROW_ALIGN or self.cut % ROW_ALIGN:
            gaps = ROW_ALIGN * self.num_pieces_tensors  # of tails whose rows are no whole lines
        return self.tails + (self.num_tokens - self.swap_tokens) * self.piece_bytes + gaps

    @property
    def swap_bytes(self):
        """That go to the host."""
        return self.whole_bytes + self.swap_tokens * self.token_bytes


class Buffers:
    """The two rounding buffers."""

    def __init__(self, num_bytes, device):
        self.num_bytes = aligned(num_bytes)
        self.memory = torch.empty(2 * self.num_bytes, dtype=torch.uint8, device=device)
        self.addresses = [self.memory.data_ptr() + i * self.num_bytes for i in range(2)]

    def view(self, index, dtype, begin, size, stride):
        """A tensor in buffer `index`; begin: bytes. No view of torch's: it has a version of its own, and so other
        tensors in the buffer may be written while autograd keeps this one."""
        begin += index * self.num_bytes
        return torch.empty(0, dtype=dtype, device=self.memory.device).set_(
            self.memory.untyped_storage(), begin // dtype.itemsize, size, stride)

    def flat(self, index, begin, num_bytes):
        """Bytes, to copy to or from."""
        return self.memory.narrow(0, index * self.num_bytes + begin, num_bytes)


class Slot:
    """A storage that was copied: its first head_bytes lie at `head`, the others at `tail`."""
    __slots__ = ("head", "head_bytes", "tail", "num_bytes")

    def __init__(self, head, head_bytes, tail, num_bytes):
        self.head, self.head_bytes, self.tail, self.num_bytes = head, head_bytes, tail, num_bytes


class InRows:
    """What stands for a Slot of queries, keys or values that were copied out of their rows, in groups."""
    __slots__ = ("at", "shape")

    def __init__(self, at, shape):
        self.at, self.shape = at, shape


class Saved:
    """What autograd keeps instead of a tensor. slot: None: it lies at `begin` of the buffer."""
    __slots__ = ("kept", "slot", "begin", "dtype", "size", "stride")

    def __init__(self, kept, slot, begin, tensor):
        self.kept, self.slot, self.begin = kept, slot, begin
        self.dtype, self.size, self.stride = tensor.dtype, tensor.shape, tensor.stride()


class _Enough(Exception):
    """All that was dropped is there again."""


def bytes_of(storage, device):
    """A storage as bytes."""
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)


class Kept:
    """A keeper (_pieces.Pass) of one pass."""

    def __init__(self, unit, layout, buffers, index, fixed):
        self.unit, self.layout, self.buffers = unit, layout, buffers
        self.index = self.written = index        # of the buffer: now, and in the forward
        self.fixed = fixed                       # addresses of storages that others hold
        self.seen = {}                           # address of a storage: (weak reference, version, Slot)
        self.whole = layout.input_bytes          # where what goes whole ends until now
        self.head, self.tail = layout.heads, layout.tails
        self.steps = [[] for _ in layout.spans]  # of each piece for each tensor saved: Slot or None
        self.slots = 0                           # of them
        self.is_open, self.is_over = False, False
        self.pieces = self.output = self.around = None
        self.call = None                         # _visits.Call
        self.drops = True                        # tokens, which are computed again
        self.unchanged = None                    # _watch.Unchanged

    # ---- the keeper ----

    def piece(self, p):
        """A context."""
        self.around.piece_begins(p)
        return torch.autograd.graph.saved_tensors_hooks(lambda tensor: self.pack(p, tensor), unpack)

    def attention(self):
        """A context."""
        return torch.autograd.graph.saved_tensors_hooks(self.pack_whole, unpack)

    def join(self, joins):
        """In the buffer's rows, if they are as measured."""
        joined, groups = self.layout.joined, self.unit.groups
        if tuple(_pieces.joined_of(joins, self.layout.num_tokens)) != joined:
            self.unit.deviates("what attention takes")
            return _pieces.Plain(groups).join(joins)
        wholes = []
        for at, (_, dim, tensors) in zip(joined, joins):
            rows = self._row_view(at, tensors[0].shape, self.layout.num_tokens)
            whole = _pieces.Join.apply(rows, dim, groups, *tensors)
            if groups > 1:
                storage, slot = whole.untyped_storage(), InRows(at, whole.shape)
                self.seen[storage.data_ptr()] = StorageWeakRef(storage), whole._version, slot
            wholes.append(whole)
        return wholes

    def _row_view(self, at, shape, num_tokens, first=0):
        """Of rows first to first + num_tokens."""
        row_bytes = self.layout.joined_bytes
        begin = self.index * self.buffers.num_bytes + self.layout.rows + first * row_bytes
        return _pieces.rows_in(self.buffers.memory, begin, row_bytes, at, shape, num_tokens, self.unit.groups)

    def attended(self, tensor):
        """What attention returned: the other tokens' rows need it, too."""
        self.output = self.pack_whole(tensor)
        if type(self.output) is Saved:
            self.output.kept = None  # else a cycle, and what is dropped would die late

    def goes_on(self, p):
        """Behind attention."""
        self.around.goes_on(p)

    # ---- what autograd saves ----

    def _known(self, tensor):
        """Saved, if it is in the buffer; Stays, if it stays in memory; else None, with its storage."""
        if type(tensor) not in PLAIN or tensor.layout is not torch.strided:
            return Stays(tensor, self.unit.name), None
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address == self.buffers.memory.data_ptr():
            begin = tensor.data_ptr() - self.buffers.addresses[self.index]
            return Saved(self, None, begin, tensor), None
        if address in self.fixed:
            return Stays(tensor, self.unit.name), None
        known = self.seen.get(address)
        if known is not None and not known[0].expired() and known[1] == tensor._version:
            return Saved(self, known[2], tensor.storage_offset() * tensor.element_size(), tensor), None
        return None, storage

    def _put(self, tensor, storage, slot, with_head=True):
        """Copies a storage's bytes; without those of tokens that came back from the host."""
        source, head_bytes = bytes_of(storage, tensor.device), slot.head_bytes
        if with_head and head_bytes:
            self.buffers.flat(self.index, slot.head, head_bytes).copy_(source[:head_bytes])
        if slot.num_bytes > head_bytes:
            self.buffers.flat(self.index, slot.tail, slot.num_bytes - head_bytes).copy_(
                source[head_bytes:slot.num_bytes])

    def _keep(self, tensor, storage, slot):
        self._put(tensor, storage, slot)
        self.seen[storage.data_ptr()] = StorageWeakRef(storage), tensor._version, slot
        return Saved(self, slot, tensor.storage_offset() * tensor.element_size(), tensor)

    def pack(self, p, tensor):
        """A hook of autograd, within a piece."""
        steps = self.steps[p]
        saved, storage = self._known(tensor)
        expected = self.unit.expected(p, len(steps))
        if saved is None:
            slot = self._slot(p, storage.nbytes(), expected)
            if slot is not None:
                steps.append(slot)
                self.slots += 1
                return self._keep(tensor, storage, slot)
            if expected:
                self.unit.deviates("a tensor that it saves")
            saved = Stays(tensor, self.unit.name)
        steps.append(None)
        return saved

    def _slot(self, p, num_bytes, row_bytes):
        """Room for a tensor of a piece; None: it is none of a token's bytes, or there is none."""
        start, stop = self.layout.spans[p]
        if not row_bytes or num_bytes != row_bytes * (stop - start):
            return None
        head_bytes = row_bytes * max(0, min(self.layout.swap_tokens, stop) - start)
        slot = Slot(self.head, head_bytes, self.tail, num_bytes)
        head, tail = self.head + head_bytes, self.tail + aligned(num_bytes - head_bytes, ROW_ALIGN)
        if head > self.layout.rows or tail > self.layout.num_bytes:
            return None
        self.head, self.tail = head, tail
        return slot

    def pack_whole(self, tensor):
        """A hook of autograd, within attention."""
        saved, storage = self._known(tensor)
        if saved is not None:
            return saved
        num_bytes, end = storage.nbytes(), self.whole + aligned(storage.nbytes())
        if tensor.numel() < self.layout.num_tokens:  # a seed, say
            return Stays(tensor, self.unit.name)
        if end > self.layout.whole_bytes:
            self.unit.deviates("what attention saves")
            return Stays(tensor, self.unit.name)
        slot, self.whole = Slot(self.whole, num_bytes, 0, num_bytes), end
        return self._keep(tensor, storage, slot)

    def view(self, saved):
        """The tensor again, of this backward."""
        if not self.is_open:
            raise Error(f"{self.unit.name}: " + ("its backward has ended: a second one is not possible"
                                                 if self.is_over else "its tensors are in its backward only"))
        slot = saved.slot
        if slot is None:
            return self.buffers.view(self.index, saved.dtype, saved.begin, saved.size, saved.stride)
        if type(slot) is InRows:
            rows, dim = self._row_view(slot.at, slot.shape, self.layout.num_tokens), slot.at.dim
            return rows.flatten(dim, dim + 1).as_strided(saved.size, saved.stride, saved.begin // saved.dtype.itemsize)
        if slot.head_bytes in (0, slot.num_bytes):
            begin = saved.begin + (slot.head if slot.head_bytes else slot.tail)
            return self.buffers.view(self.index, saved.dtype, begin, saved.size, saved.stride)
        both = torch.cat([self.buffers.flat(self.index, slot.head, slot.head_bytes),
                          self.buffers.flat(self.index, slot.tail, slot.num_bytes - slot.head_bytes)])
        begin = saved.begin // saved.dtype.itemsize
        return both.view(saved.dtype).as_strided(saved.size, saved.stride, begin)

    def moved(self, tensor):
        """A tensor that was in the forward's buffer, in the backward's."""
        begin = tensor.data_ptr() - self.buffers.addresses[self.written]
        out = self.buffers.view(self.index, tensor.dtype, begin, tensor.shape, tensor.stride())
        return out.requires_grad_(tensor.requires_grad)

    # ---- forward and backward ----

    def forward_ends(self):
        """All is in the buffer."""
        self.seen = None

    def compute_again(self, in_place):
        """The tokens that were dropped, before the backward. in_place: none was."""
        self.is_open = True
        if in_place:
            return
        if self.drops:
            self.unchanged.check()
        for p, (_, stop) in enumerate(self.layout.spans):
            if stop > self.layout.swap_tokens:
                _Again(self, p).run()

    def backward_ends(self):
        """Nothing can be had any more."""
        self.is_open, self.is_over = False, True
        self.pieces = self.steps = self.around = self.output = self.unchanged = None


def unpack(saved):
    """A hook of autograd."""
    return saved.kept.view(saved) if type(saved) is Saved else saved.get() if type(saved) is Stays else saved


class _Again:
    """Runs a piece of a layer once more, up to the last tensor that was dropped; a pass like _pieces.Pass."""

    def __init__(self, kept, p):
        self.kept, self.unit, self.p, self.at = kept, kept.unit, p, 0
        self.missing = sum(slot is not None for slot in kept.steps[p])

    def run(self):
        """Errors: the layer saves other tensors than in its forward."""
        kept = self.kept
        x, put = self.unit.hidden(*kept.pieces[self.p])
        args, kwargs = again(put(kept.moved(x)))
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.enable_grad())
            kept.around.enter(stack, self.p)
            stack.enter_context(_pieces._now(self))
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self.pack, unpack))
            stack.enter_context(self.unit.spotter())
            stack.enter_context(contextlib.suppress(_Enough))
            self.unit.original(*args, **kwargs)
            if self.missing:
                raise Error(f"{self.unit.name}: computed again it saves {self.at} tensors, in its forward "
                            f"{len(kept.steps[self.p])}")

    def pack(self, tensor):
        """A hook of autograd."""
        steps = self.kept.steps[self.p]
        if self.at >= len(steps):
            raise _Enough
        slot, self.at = steps[self.at], self.at + 1
        if slot is not None:
            storage = tensor.untyped_storage()
            if storage.nbytes() != slot.num_bytes:
                raise Error(f"{self.unit.name}: tensor {self.at} that it saves has {storage.nbytes()} bytes "
                            f"when it is computed again, in its forward {slot.num_bytes}")
            self.kept._put(tensor, storage, slot, with_head=False)
            self.missing -= 1
            self._stop()
        return tensor.detach()

    def _stop(self):
        if not self.missing and self.joined:
            raise _Enough

    joined = False

    def attend(self, _call, args, kwargs, token_dim=None):
        """In place of a call of attention: queries, keys and values to their rows; what it returned."""
        kept, layout = self.kept, self.kept.layout
        leaves = torch.utils._pytree.tree_leaves((args, kwargs))
        start, stop = layout.spans[self.p]
        first = max(start, layout.swap_tokens)
        with torch.no_grad():
            for at in layout.joined:
                tensor = leaves[at.argument]
                parts, dim = _pieces.apart(tensor, at.dim, self.unit.groups)
                kept._row_view(at, tensor.shape, stop - first, first).copy_(
                    parts.narrow(dim, first - start, stop - first))
        self.joined = True
        self._stop()
        out = kept.view(kept.output) if type(kept.output) is Saved else kept.output.get()
        dim = self.unit.output_dim(out, layout.num_tokens, token_dim)
        share = _pieces.share_of(out, dim, (start, stop), self.unit.groups)
        share = share.detach().requires_grad_(out.is_floating_point())
        kept.around.goes_on_again(self.p)
        others = self.unit.attention_others
        return share if others is None else (share, *others)


def again(pieces):
    """Arguments of a piece, cut off from the forward's graph."""
    def cut(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().requires_grad_(leaf.requires_grad)
    return torch.utils._pytree.tree_map(cut, pieces)
