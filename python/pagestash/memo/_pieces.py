"""Runs a transformer layer in two pieces of its tokens, with attention over all of them in between.

Everything in a layer but attention is token-wise: it can be run for some of the tokens. The layer's own
forward is called for the first tokens. Where it calls attention, it is called once more, for the other
tokens; where that calls attention, the queries, keys and values of all tokens are there, attention runs,
and both calls go on with their tokens' share of what it returned."""
import contextlib
import threading

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .._c import Error

_SDPA = torch.nn.functional.scaled_dot_product_attention
_MULTI_HEAD = torch.nn.functional.multi_head_attention_forward
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


class Spotter(TorchFunctionMode):
    """Hands calls of scaled_dot_product_attention to the pass that runs."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is _SDPA:
            return current().attend(func, args, kwargs, token_dim=-2)
        if func is _MULTI_HEAD:  # which calls it
            with self:
                return func(*args, **kwargs)
        return func(*args, **kwargs)


def spans_of(num_tokens, cut):
    """The pieces: (first token, token behind the last)."""
    return [(0, cut), (cut, num_tokens)] if 0 < cut < num_tokens else [(0, num_tokens)]


def part_of(value, span, num_tokens, token_dim):
    """A layer's argument for the tokens of a piece: of a tensor the dimension that has as many elements as
    there are tokens, token_dim if that is one; one that has it twice, as a mask has, goes as it is."""
    def narrow(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        dims = [dim for dim, size in enumerate(leaf.shape) if size == num_tokens]
        if len(dims) != 1:
            return leaf if token_dim not in dims or len(dims) > 1 else leaf.narrow(
                token_dim, span[0], span[1] - span[0])
        return leaf.narrow(dims[0], span[0], span[1] - span[0])
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
    piece(p), attention(): contexts; join(i, dim, tensors) -> the tensor of all tokens; attended(tensor):
    attention's output; goes_on(p): behind it."""

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
            whole = [self._whole(i, same, token_dim) for i, same in enumerate(zip(*leaves))]
            args, kwargs = pytree.tree_unflatten(whole, spec)
            out = call(*args, **kwargs)
        self.asked = [True] * len(self.spans)  # lets go of the pieces
        first, *others = out if isinstance(out, tuple) else (out,)
        if any(isinstance(one, torch.Tensor) for one in others):
            raise Error(f"{self.unit.name}: its attention returns {1 + len(others)} tensors: one is allowed")
        self.unit.attention_others = tuple(others) if isinstance(out, tuple) else None
        self.keeper.attended(first)
        dim = self.unit.output_dim(first, self.spans[-1][1], token_dim)
        shares = [first]
        if len(self.spans) > 1:
            shares = Divide.apply(first, dim, self.spans, self.unit.groups)
        self.shares = [(share, *others) for share in shares] if isinstance(out, tuple) else shares

    def _whole(self, i, same, token_dim):
        """An argument of attention for all tokens."""
        if not isinstance(same[0], torch.Tensor):
            return same[0]
        dim = self.unit.argument_dim(i, same, self.spans, token_dim)
        return same[0] if dim is None else self.keeper.join(i, dim, same)


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

    def join(self, _i, dim, tensors):
        """A copy."""
        return together(tensors, dim, self.groups) if len(tensors) > 1 else tensors[0]

    def attended(self, tensor):
        """Nothing."""

    def goes_on(self, p):
        """Nothing."""
