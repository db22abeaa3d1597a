"""A layer that is swapped: finds what it keeps, and runs it so that it is kept in a rounding buffer."""
import contextlib
import dataclasses
import time

import torch

from .._c import Error
from . import _pieces, _watch
from ._around import (Around, autocast_dtypes, has_drawn, random_state, set_random_state,
                      without_autocast_cache)
from ._kept import PLAIN, aligned
from ._measured import Measured, Scale, wait_for
from ._wrap import Wrapped

_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 4e-2}
_NAMES = ("hidden_states", "x", "input", "src")  # of hidden states, where they are no first argument


def _with(x, place, args, kwargs):
    """Arguments with other hidden states."""
    return ((x, *args[1:]), kwargs) if place == 0 else (args, {**kwargs, place: x})


class Unit(Wrapped):
    """A module (or what has a method of this name) of which each call is a visit of a layer that is swapped.

    token_dim: of the hidden states. attention: the path of a module within it, or a function from it to a
    module; None: scaled_dot_product_attention is looked for. groups: see _pieces.apart."""

    groups = 1

    def __init__(self, run, place, module, *, method="forward", token_dim=1, attention=None, name=""):
        super().__init__(run, place, module, method, name)
        self.token_dim, self.measured, self.layout = token_dim, None, None
        self.attention_others, self._dims, self._output_dim = None, {}, None
        self._cuts = None
        self.core = self._core(attention)
        if getattr(module, "_compiled_call_impl", None) or hasattr(module, "_orig_mod"):
            raise Error(f"{self.name}: it is compiled, with its attention: compile what surrounds that")

    # ---- wrapping ----

    def _core(self, attention):
        if attention is None:
            return None
        if callable(attention) and not isinstance(attention, torch.nn.Module):
            return attention(self.module)
        try:
            return self.module.get_submodule(attention)
        except (AttributeError, TypeError):
            raise Error(f"{self.name}: attention {attention!r}: there is no such module in it") from None

    def wrap(self):
        """From now on calls of the module come here."""
        super().wrap()
        if self.core is not None:
            forward = self.core.forward

            def attend(*args, **kwargs):
                one = _pieces.current()
                if one is None or one.unit is not self:
                    return forward(*args, **kwargs)
                return one.attend(forward, args, kwargs)
            self._set(self.core, "forward", attend)

    def spotter(self):
        """A context within which calls of attention are found."""
        return _pieces.Spotter() if self.core is None else contextlib.nullcontext()

    # ---- arguments ----

    def _place_of(self, args, kwargs):
        """Of the hidden states: 0, the first argument, or a name."""
        if args and isinstance(args[0], torch.Tensor):
            return 0
        for name in _NAMES:
            if isinstance(kwargs.get(name), torch.Tensor):
                return name
        raise Error(f"{self.name}: its first argument is no tensor: hidden states are wanted")

    def hidden(self, args, kwargs):
        """The hidden states among the arguments, and a function that puts others in their place."""
        place = self._place_of(args, kwargs)
        x = args[0] if place == 0 else kwargs[place]
        if not -x.dim() <= self.token_dim < x.dim():
            raise Error(f"{self.name}: hidden states of shape {tuple(x.shape)}: token_dim {self.token_dim} is none of "
                        "their dimensions")
        return x, lambda other: _with(other, place, args, kwargs)

    def rest(self, args, kwargs):
        """The arguments but the hidden states."""
        return self.hidden(args, kwargs)[1](None)

    def pieces_of(self, args, kwargs, xs, spans):
        """The arguments of the pieces."""
        x, put = self.hidden(args, kwargs)
        place, num_tokens, rest = self._place_of(args, kwargs), x.shape[self.token_dim], put(None)
        return [_with(x_p, place, *self.part_of(rest, span, num_tokens)) for span, x_p in zip(spans, xs)]

    def cuts(self, args, kwargs):
        """Which arguments are cut for a piece, and how they are nested."""
        x, put = self.hidden(args, kwargs)
        leaves, spec = torch.utils._pytree.tree_flatten(put(None))
        num_tokens = x.shape[self.token_dim]
        return spec, [_pieces.cut_of(leaf, num_tokens) if isinstance(leaf, torch.Tensor) else -1 for leaf in leaves]

    def is_cut_otherwise(self, args, kwargs):
        """Whether an argument is cut that was not when the layer was measured, or the other way round."""
        if self._cuts is None:
            return False
        (was, before), (spec, now) = self._cuts, self.cuts(args, kwargs)
        return was == spec and any(a != b and -1 not in (a, b) for a, b in zip(before, now))

    def part_of(self, rest, span, num_tokens):
        """Arguments but the hidden states, for the tokens of a piece."""
        return _pieces.part_of(rest, span, num_tokens)

    def fixed(self, args, kwargs):
        """Addresses of storages that others hold, and that stay: parameters, buffers, arguments."""
        out = {tensor.untyped_storage().data_ptr() for tensor in self.module.parameters()}
        out.update(tensor.untyped_storage().data_ptr() for tensor in self.module.buffers())
        x, _ = self.hidden(args, kwargs)
        for leaf in torch.utils._pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor) and leaf is not x and type(leaf) in PLAIN:
                out.add(leaf.untyped_storage().data_ptr())
        return out

    def argument_dim(self, i, tensors, spans, token_dim):
        """Of attention's i-th argument the dimension of the tokens; None: it has none."""
        if i not in self._dims:
            if len(spans) == 1:
                return None
            sizes = [self.groups * (b - a) for a, b in spans]
            self._dims[i] = _pieces.dim_between(
                tensors, sizes, tensors[0].dim() + token_dim if token_dim is not None and token_dim < 0
                else self.token_dim, f"{self.name}: argument {i} of its attention")
        return self._dims[i]

    def output_dim(self, tensor, num_tokens, token_dim):
        """Of attention's output."""
        if self._output_dim is None:
            num_tokens *= self.groups
            dim = tensor.dim() + token_dim if token_dim is not None else self.token_dim
            if tensor.shape[dim] != num_tokens:
                dims = [d for d, size in enumerate(tensor.shape) if size == num_tokens]
                if len(dims) != 1:
                    raise Error(f"{self.name}: its attention returns {tuple(tensor.shape)}: which dimension "
                                f"has the {num_tokens} tokens?")
                dim = dims[0]
            self._output_dim = dim
        return self._output_dim

    def expected(self, p, i):
        """Bytes of a token of the i-th tensor that piece p saves; 0: it stays."""
        rows = self.measured.rows
        return rows[i] if i < len(rows) else 0

    def deviates(self, what):
        """Something was not as measured: it stays in memory."""
        self.run.deviates(what)

    # ---- measuring ----

    def measure(self, args, kwargs, check=True):
        """Runs the layer whole and in two pieces, compares them, and finds what it keeps. The arguments are
        those of a call; nothing of it remains. Errors: its parts are not token-wise, ..."""
        x, put = self.hidden(args, kwargs)
        num_tokens = x.shape[self.token_dim]
        if num_tokens < 3:
            raise Error(f"{self.name}: {num_tokens} tokens: at least 3 are wanted")
        cut = max(1, num_tokens // 3)
        self._cuts = self.cuts(args, kwargs)
        x = x.detach()
        version = x._version
        trackers = self.run.trackers
        states = random_state(x.device, trackers)
        with torch.no_grad(), without_autocast_cache():
            self.original(*put(x)[0], **put(x)[1])  # makes what is made once
            set_random_state(x.device, states, trackers)
            if x._version != version:
                raise Error(f"{self.name}: it changes its input in place")
            whole, forward_ns = self._timed(put(x), x.device)
        draws = has_drawn(states, random_state(x.device, trackers))
        left = _watch.attributes(self.module)
        set_random_state(x.device, states, trackers)
        scale, outputs = self._in_pieces(put(x), x, cut, num_tokens)
        set_random_state(x.device, states, trackers)
        self._compare(whole, outputs, x, cut, check and not draws)
        _watch.check_attributes(left, _watch.attributes(self.module), self.name)
        if draws and check:
            self._compare_without_dropout(put(x), x, cut, num_tokens)
            set_random_state(x.device, states, trackers)
        self.measured = Measured(
            num_tokens, tuple(x.shape), x.dtype, aligned(x.nbytes), sum(map(aligned, scale.others)),
            self._rows(scale, cut, num_tokens), tuple(scale.joined), draws, forward_ns)
        if self.run.wants_times:
            del scale, outputs, whole
            self._measure_times(put(x), x, cut, num_tokens)
            set_random_state(x.device, states, trackers)
        return self.measured

    def _timed(self, arguments, device):
        """What the layer returns, and how long that took."""
        wait_for(device)
        begin = time.perf_counter_ns()
        out = self.original(*arguments[0], **arguments[1])
        wait_for(device)
        return out, time.perf_counter_ns() - begin

    def _measure_times(self, arguments, x, cut, num_tokens):
        """Of what was run before, and so compiled: the middle one of three."""
        with torch.no_grad(), without_autocast_cache():
            forwards = [self.measured.forward_ns] + [self._timed(arguments, x.device)[1] for _ in range(2)]
        again = [self._in_pieces(arguments, x, cut, num_tokens)[0].recompute_ns for _ in range(3)]
        self.measured = dataclasses.replace(self.measured, forward_ns=sorted(forwards)[1],
                                            recompute_ns=sorted(again)[1])

    def _compare_without_dropout(self, arguments, x, cut, num_tokens):
        """As in an evaluation; nothing is compared if it draws numbers in one, too."""
        was = [(module, module.training) for module in self.module.modules()]
        before = random_state(x.device, self.run.trackers)
        try:
            for module, _ in was:
                module.training = False
            with torch.no_grad(), without_autocast_cache():
                whole = self.original(*arguments[0], **arguments[1])
            if not has_drawn(before, random_state(x.device, self.run.trackers)):
                self._compare(whole, self._in_pieces(arguments, x, cut, num_tokens)[1], x, cut, True)
        finally:
            for module, training in was:
                module.training = training

    def _in_pieces(self, arguments, x, cut, num_tokens):
        spans = _pieces.spans_of(num_tokens, cut)
        scale = Scale(self, num_tokens, self.fixed(*arguments), x.device)
        try:
            with torch.enable_grad():
                memory, leaf = x.clone(), torch.zeros((), device=x.device, requires_grad=True)
                xs = _Alone.apply(leaf, memory, self.token_dim, spans)
                scale.fixed.add(memory.untyped_storage().data_ptr())
                scale.private.add(memory)
                one = _pieces.Pass(self, spans, self.pieces_of(*arguments, xs, spans), scale)
                outputs = [_watch.only_first(out, self.name)[0] for out in self._run_for_pieces(one)]
            if scale.is_changed():
                raise Error(f"{self.name}: it changes in place a tensor that it has saved")
        finally:
            scale.let_go()
        if any(map(scale.private.has, outputs)):
            outputs = [out.detach().clone() for out in outputs]
        del memory, xs, one
        scale.private.check(self.name)  # while the graph lives
        return scale, [out.detach() for out in outputs]

    def _run_for_pieces(self, one):
        """The first run in pieces: what raises here raised nothing for all tokens."""
        try:
            return one.run()
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
            if isinstance(error, (Error, torch.OutOfMemoryError)):
                raise
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise Error(f"{self.name}: it runs for all {one.spans[-1][1]} tokens and not for "
                        f"{one.spans[0][1]} of them: {text}") from error

    def _compare(self, whole, outputs, x, cut, compares):
        """Errors: what the pieces gave is not what the whole gave."""
        whole, _ = _watch.only_first(whole, self.name)
        wanted = [one.shape for one in x.tensor_split([cut], self.token_dim)]
        if whole.shape != x.shape or [out.shape for out in outputs] != wanted:
            shapes = ", ".join(str(tuple(out.shape)) for out in outputs)
            raise Error(f"{self.name}: it returns {tuple(whole.shape)} for {tuple(x.shape)}, and for pieces of "
                        f"its tokens {shapes}: it is not token-wise")
        if not compares:
            return
        whole = whole.detach().double()
        pieces = torch.cat([out.detach() for out in outputs], self.token_dim).double()
        scale = whole.abs().max().item() or 1.0
        others = [d for d in range(whole.dim()) if d != self.token_dim % whole.dim()]
        off = (whole - pieces).abs().amax(others)
        worst = off.max().item()
        dtypes = [outputs[0].dtype, *autocast_dtypes(x.device)]
        if not worst <= max(_TOLERANCE.get(dtype, 0) for dtype in dtypes) * scale:
            raise Error(f"{self.name}: token {int(off.argmax())} comes out otherwise by {worst:.3g}, of values "
                        f"up to {scale:.3g}, when the tokens from {cut} on are run on their own: what "
                        "surrounds its attention is not token-wise")

    def _rows(self, scale, cut, num_tokens):
        first, second = scale.saved
        if len(first) != len(second):
            raise Error(f"{self.name}: it saves {len(first)} tensors for the first tokens and {len(second)} "
                        "for the others: it is not token-wise")
        rows = []
        for a, b in zip(first, second):
            row = a // cut
            rows.append(row if a == row * cut and b == row * (num_tokens - cut) else 0)
        return tuple(rows)


class _Alone(torch.autograd.Function):
    """Pieces of memory that no graph refers to."""

    @staticmethod
    def forward(ctx, _leaf, memory, dim, spans):
        """No views of torch's, as those in a buffer."""
        parts = [memory.narrow(dim, start, stop - start) for start, stop in spans]
        return tuple(torch.empty(0, dtype=part.dtype, device=part.device).set_(
            part.untyped_storage(), part.storage_offset(), part.shape, part.stride()) for part in parts)

    @staticmethod
    def backward(ctx, *_gradients):
        """Nobody asks."""
        return None, None, None, None


class Enter(torch.autograd.Function):
    """The layer's input to the buffer; its pieces lie there. Its backward is the layer's end."""

    @staticmethod
    def forward(ctx, kept, _hook, x):
        """Pieces."""
        unit, layout = kept.unit, kept.layout
        ctx.kept, ctx.dim = kept, unit.token_dim
        stride, step = [0] * x.dim(), 1
        for d in reversed(range(x.dim())):
            stride[d], step = step, step * x.shape[d]
        kept.buffers.view(kept.index, x.dtype, 0, x.shape, stride).copy_(x)
        pieces = []
        for start, stop in layout.spans:
            size = list(x.shape)
            size[ctx.dim] = stop - start
            begin = start * stride[ctx.dim] * x.element_size()
            pieces.append(kept.buffers.view(kept.index, x.dtype, begin, size, stride))
        return tuple(pieces)

    @staticmethod
    def backward(ctx, *gradients):
        """Of the input."""
        out = torch.cat(gradients, ctx.dim) if len(gradients) > 1 else gradients[0]
        ctx.kept.unit.run.backward_ends(ctx.kept)
        return None, None, out


class Leave(torch.autograd.Function):
    """The output of all tokens. Its backward is the begin of the layer's."""

    @staticmethod
    def forward(ctx, kept, dim, *outputs):
        """One tensor."""
        ctx.kept, ctx.dim = kept, dim
        ctx.sizes = [out.shape[dim] for out in outputs]
        return torch.cat(outputs, dim)

    @staticmethod
    def backward(ctx, gradient):
        """Pieces."""
        ctx.kept.unit.run.backward_begins(ctx.kept)
        return None, None, *gradient.split(ctx.sizes, ctx.dim)


def forward_kept(unit, kept, args, kwargs, hook):
    """One call of the layer; what autograd saves goes to kept's buffer."""
    x, _ = unit.hidden(args, kwargs)
    layout = kept.layout
    kept.around = Around(x.device, unit.measured.draws and kept.drops, unit.run.trackers)
    if kept.drops:
        kept.unchanged = _watch.Unchanged(unit.module, unit.rest(args, kwargs), unit.name)
    xs = Enter.apply(kept, hook, x)
    versions = [piece._version for piece in xs]
    leaves = [piece.detach().requires_grad_() for piece in xs]
    kept.pieces = unit.pieces_of(args, kwargs, leaves, layout.spans)
    arguments = unit.pieces_of(args, kwargs, xs, layout.spans)
    outputs = _pieces.Pass(unit, layout.spans, arguments, kept).run()
    if [piece._version for piece in xs] != versions:
        raise Error(f"{unit.name}: it changes its input in place")
    kept.forward_ends()
    others = _watch.only_first(outputs[0], unit.name)[1]
    y = Leave.apply(kept, unit.token_dim, *(_watch.only_first(out, unit.name)[0] for out in outputs))
    return y if others is None else (y, *others)


def forward_plain(unit, spans, args, kwargs):
    """One call in pieces; what autograd saves stays."""
    x, _ = unit.hidden(args, kwargs)
    if len(spans) == 1:
        return unit.original(*args, **kwargs)
    xs = _pieces.Divide.apply(x, unit.token_dim, spans, 1)
    pieces = unit.pieces_of(args, kwargs, xs, spans)
    outputs = _pieces.Pass(unit, spans, pieces, _pieces.Plain(unit.groups)).run()
    others = _watch.only_first(outputs[0], unit.name)[1]
    y = torch.cat([_watch.only_first(out, unit.name)[0] for out in outputs], unit.token_dim)
    return y if others is None else (y, *others)
