"""Runs a transformer layer in two pieces of its tokens, with attention over all of them in between.

Everything in a layer but attention is token-wise: it can be run for some of the tokens. The layer's own
forward is called for the first tokens. Where it calls attention, it is called once more, for the other
tokens; where that calls attention, the queries, keys and values of all tokens are there, attention runs,
and both calls go on with their tokens' share of what it returned."""
import contextlib
import dataclasses
import threading
import types

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .._c import Error

_SDPA = torch.nn.functional.scaled_dot_product_attention
_MULTI_HEAD = torch.nn.functional.multi_head_attention_forward
ROW_ALIGN = 16
_running = threading.local()


def current():
    """The pass that runs in this thread, or None."""
    passes = getattr(_running, "passes", None)
    return passes[-1] if passes else None


@contextlib.contextmanager
def _now(one):
    if not hasattr(_running, "passes"):
        _running.passes = []
    _running.passes.append(one)
    try:
        yield
    finally:
        _running.passes.pop()


def _spotted(*args, **kwargs):
    return current().attend(_SDPA, args, kwargs, token_dim=-2)


# nn.MultiheadAttention's, which no mode can look into
_MULTI_HEAD_SPOTTED = types.FunctionType(
    _MULTI_HEAD.__code__, {**_MULTI_HEAD.__globals__, "scaled_dot_product_attention": _spotted},
    _MULTI_HEAD.__name__, _MULTI_HEAD.__defaults__)


class Spotter(TorchFunctionMode):
    """Hands calls of scaled_dot_product_attention to the pass that runs."""

    def __torch_function__(self, func, _types, args=(), kwargs=None):
        if func is _SDPA:
            func = _spotted
        elif func is _MULTI_HEAD:
            func = _MULTI_HEAD_SPOTTED
        return func(*args, **(kwargs or {}))


def spans_of(num_tokens, cut):
    """The pieces: (first token, token behind the last)."""
    return [(0, cut), (cut, num_tokens)] if 0 < cut < num_tokens else [(0, num_tokens)]


def cut_of(tensor, num_tokens):
    """The dimension of an argument that is cut; None: it goes as it is."""
    dims = [dim for dim, size in enumerate(tensor.shape) if size == num_tokens]
    return dims[0] if len(dims) == 1 else None


def part_of(value, span, num_tokens):
    """A layer's arguments for the tokens of a piece: of a tensor the dimension that has as many elements as
    there are tokens is cut; what has none, or several, as a mask has, goes as it is."""
    def narrow(leaf):
        dim = cut_of(leaf, num_tokens) if isinstance(leaf, torch.Tensor) else None
        return leaf if dim is None else leaf.narrow(dim, span[0], span[1] - span[0])
    return pytree.tree_map(narrow, value)


def apart(tensor, dim, groups):
    """A view in which groups of tokens are a dimension of their own, and which dimension is theirs then. groups:
    more than 1 where attention sees tokens of that many layers' parts, one behind the other, as with sequence
    parallelism; pieces of the layer's tokens are in each of them."""
    return (tensor, dim) if groups == 1 else (tensor.unflatten(dim, (groups, -1)), dim + 1)


def share_of(tensor, dim, span, groups):
    """A piece of what attention sees; a copy where there are groups."""
    parts, at = apart(tensor, dim, groups)
    parts = parts.narrow(at, span[0], span[1] - span[0])
    return parts if groups == 1 else parts.flatten(dim, at)


def together(tensors, dim, groups):
    """Pieces, as attention sees them; a copy."""
    parts = [apart(tensor, dim, groups)[0] for tensor in tensors]
    return torch.cat(parts, dim) if groups == 1 else torch.cat(parts, dim + 1).flatten(dim, dim + 1)


def dim_between(pair, sizes, token_dim, what):
    """Which dimension of a tensor has its tokens, from its two pieces; None: it has none. sizes: of the
    pieces."""
    first, second = pair
    if first.dim() != second.dim():
        raise Error(f"{what}: {tuple(first.shape)} and {tuple(second.shape)} for {sizes[0]} and {sizes[1]} "
                    "tokens: the layer is not token-wise")
    dims = [d for d in range(first.dim()) if (first.shape[d], second.shape[d]) == tuple(sizes)]
    others = [d for d in range(first.dim()) if first.shape[d] != second.shape[d] and d not in dims]
    if others or sizes[0] != sizes[1] and len(dims) > 1:
        raise Error(f"{what}: {tuple(first.shape)} and {tuple(second.shape)} for {sizes[0]} and {sizes[1]} "
                    "tokens: the layer is not token-wise")
    if not dims:
        return None
    return token_dim if token_dim in dims else dims[0]


class Pass:
    """One run of a layer in pieces. `keeper` says what becomes of what autograd saves:
    piece(p), attention(): contexts; join(joins) -> of each (argument of attention, dimension of the tokens,
    tensors of the pieces) the tensor of all tokens; attended(tensor): attention's output; goes_on(p): behind
    it."""

    def __init__(self, unit, spans, pieces, keeper):
        self.unit, self.spans, self.pieces, self.keeper = unit, spans, pieces, keeper
        self.asked, self.shares = [None] * len(spans), None
        self.outputs, self.piece = [None] * len(spans), 0

    def run(self):
        """The outputs of the pieces."""
        with _now(self):
            self._call(0)
        return self.outputs

    def _call(self, p):
        self.piece = p
        args, kwargs = self.pieces[p]
        with self.keeper.piece(p), self.unit.spotter():
            self.outputs[p] = self.unit.original(*args, **kwargs)
        if self.asked[p] is None:
            raise Error(f"{self.unit.name}: it calls no attention: what is attention in it? (attention=)")

    def attend(self, call, args, kwargs, token_dim=None):
        """In place of a call of attention."""
        p = self.piece
        if self.asked[p] is not None:
            raise Error(f"{self.unit.name}: it calls attention twice: one call is allowed")
        self.asked[p] = pytree.tree_flatten((args, kwargs))
        if p + 1 < len(self.spans):
            self._call(p + 1)
        else:
            self._attend(call, token_dim)
        self.keeper.goes_on(p)
        return self.shares[p]

    def _attend(self, call, token_dim):
        """Attention over all tokens."""
        leaves = [asked[0] for asked in self.asked]
        spec = self.asked[0][1]
        if any(asked[1] != spec for asked in self.asked):
            raise Error(f"{self.unit.name}: it calls attention with other arguments for other tokens")
        with self.keeper.attention():
            args, kwargs = pytree.tree_unflatten(self._whole(list(zip(*leaves)), token_dim), spec)
            out = call(*args, **kwargs)
        self.asked = [True] * len(self.spans)  # lets go of the pieces
        first, *others = out if isinstance(out, tuple) else (out,)
        if any(isinstance(one, torch.Tensor) for one in pytree.tree_leaves(others)):
            raise Error(f"{self.unit.name}: its attention returns {1 + len(others)} tensors: one is allowed")
        self.unit.attention_others = tuple(others) if isinstance(out, tuple) else None
        self.keeper.attended(first)
        dim = self.unit.output_dim(first, self.spans[-1][1], token_dim)
        shares = [first]
        if len(self.spans) > 1:
            shares = Divide.apply(first, dim, self.spans, self.unit.groups)
        self.shares = [(share, *others) for share in shares] if isinstance(out, tuple) else shares

    def _whole(self, arguments, token_dim):
        """Arguments of attention for all tokens. Of a tensor that is several of them there is one copy."""
        joins = {}
        for i, same in enumerate(arguments):
            if isinstance(same[0], torch.Tensor):
                dim = self.unit.argument_dim(i, same, self.spans, token_dim)
                if dim is not None:
                    joins.setdefault(tuple(map(id, same)), (i, dim, same))
        wholes = dict(zip(joins, self.keeper.join(list(joins.values()))))
        return [wholes.get(tuple(map(id, same)), same[0]) for same in arguments]


@dataclasses.dataclass(frozen=True)
class Joined:
    """A tensor of all tokens that attention takes: argument number, dtype, dimension of the tokens, bytes of
    a token; where it begins in a row."""
    argument: int
    dtype: torch.dtype
    dim: int
    row_bytes: int
    begin: int


def joined_of(joins, num_tokens):
    """Queries, keys and values side by side in rows, one for each token of the layer."""
    out, begin = [], 0
    for argument, dim, tensors in joins:
        begin = -(-begin // tensors[0].itemsize) * tensors[0].itemsize
        row_bytes = sum(tensor.nbytes for tensor in tensors) // num_tokens
        out.append(Joined(argument, tensors[0].dtype, dim, row_bytes, begin))
        begin += row_bytes
    return out


def row_bytes_of(joined):
    """Of such a row."""
    return -(-(joined[-1].begin + joined[-1].row_bytes) // ROW_ALIGN) * ROW_ALIGN if joined else 0


def rows_in(memory, begin, row_bytes, at, shape, num_tokens, groups=1):
    """A tensor in rows, which begin at byte `begin` of `memory`. at: Joined. shape: but for the tokens; groups
    are a dimension before theirs. No view of torch's: it has a version of its own, and so other tensors in the
    memory may be written while autograd keeps this one."""
    size, stride, step = list(shape), [0] * len(shape), 1
    for d in reversed(range(len(shape))):
        if d != at.dim:
            stride[d], step = step, step * shape[d]
    size[at.dim], stride[at.dim] = num_tokens, row_bytes // at.dtype.itemsize
    if groups > 1:
        size.insert(at.dim, groups)
        stride.insert(at.dim, step)
    return torch.empty(0, dtype=at.dtype, device=memory.device).set_(
        memory.untyped_storage(), (begin + at.begin) // at.dtype.itemsize, size, stride)


class Join(torch.autograd.Function):
    """Tensors of the pieces, copied behind each other into rows; out of them again, in order, where there are
    groups."""

    @staticmethod
    def forward(ctx, rows, dim, groups, *tensors):
        """Of all tokens."""
        ctx.dim, ctx.groups, ctx.spans, start = dim, groups, [], 0
        for tensor in tensors:
            part, at = apart(tensor, dim, groups)
            stop = start + part.shape[at]
            rows.narrow(at, start, stop - start).copy_(part)
            ctx.spans.append((start, stop))
            start = stop
        return rows if groups == 1 else rows.flatten(dim, dim + 1)

    @staticmethod
    def backward(ctx, gradient):
        """Its pieces."""
        return None, None, None, *(share_of(gradient, ctx.dim, span, ctx.groups) for span in ctx.spans)


class Divide(torch.autograd.Function):
    """Pieces of a tensor's tokens; their gradients become one again without an addition."""

    @staticmethod
    def forward(ctx, tensor, dim, spans, groups):
        """Views, or copies where there are groups."""
        ctx.dim, ctx.groups = dim, groups
        return tuple(share_of(tensor, dim, span, groups) for span in spans)

    @staticmethod
    def backward(ctx, *gradients):
        """One."""
        return together(gradients, ctx.dim, ctx.groups), None, None, None


class Plain:
    """A keeper that leaves what is saved to autograd."""

    def __init__(self, groups=1):
        self.groups = groups

    def piece(self, _p):
        """A context."""
        return contextlib.nullcontext()

    def attention(self):
        """A context."""
        return contextlib.nullcontext()

    def join(self, joins):
        """Copies in rows like those of a rounding buffer: how attention's output lies in memory depends on that
        of its arguments, and the bits of what follows on how that lies."""
        if self.groups > 1:
            return [together(tensors, dim, self.groups) for _, dim, tensors in joins]
        if not joins:
            return []
        _, dim, tensors = joins[0]
        num_tokens = sum(tensor.shape[dim] for tensor in tensors)
        joined = joined_of(joins, num_tokens)
        row_bytes = row_bytes_of(joined)
        memory = torch.empty(num_tokens * row_bytes, dtype=torch.uint8, device=tensors[0].device)
        return [Join.apply(rows_in(memory, 0, row_bytes, at, tensors[0].shape, num_tokens), dim, 1, *tensors)
                for at, (_, dim, tensors) in zip(joined, joins)]

    def attended(self, tensor):
        """Nothing."""

    def goes_on(self, p):
        """Nothing."""
