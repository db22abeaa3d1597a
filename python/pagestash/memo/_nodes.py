"""Nodes of autograd's graph that stand before and behind a unit, and call its visit's hooks in the backward."""
import torch
from torch.utils import _pytree as pytree

from .._c import Error


class Begin(torch.autograd.Function):
    """What comes into a unit, as it is. Its backward is the end of the unit's. hook: a tensor that wants a
    gradient, so that there is such a node even where nothing that comes in wants one."""

    @staticmethod
    def forward(ctx, call, _hook, *tensors):
        """The same."""
        ctx.set_materialize_grads(False)
        ctx.call = call
        return tensors

    @staticmethod
    def backward(ctx, *gradients):
        """The same."""
        ctx.call.backward_ends()
        return None, None, *gradients


class End(torch.autograd.Function):
    """What goes out of a unit, as it is. Its backward is the begin of the unit's."""

    @staticmethod
    def forward(ctx, call, *tensors):
        """The same."""
        ctx.set_materialize_grads(False)
        ctx.call = call
        return tensors

    @staticmethod
    def backward(ctx, *gradients):
        """The same."""
        ctx.call.backward_begins()
        return None, *gradients


class Both(torch.autograd.Function):
    """What goes out of a unit that has no backward: its visit's begins and ends here."""

    @staticmethod
    def forward(ctx, call, _hook, tensor):
        """The same."""
        ctx.call = call
        return tensor

    @staticmethod
    def backward(ctx, _gradient):
        """None."""
        ctx.call.backward_begins()
        ctx.call.backward_ends()
        return None, None, None


class Unseen:
    """In place of a Call, where there is no scheduler yet: autograd's graph is as it will be."""

    def __init__(self, unit):
        self.unit = unit

    def backward_begins(self):
        """Nothing."""

    def backward_ends(self):
        """Nothing."""


def _floating(leaves):
    return [i for i, leaf in enumerate(leaves)
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


def between(call, hook, forward, args, kwargs):
    """forward(*args, **kwargs), with nodes around it. Errors: no floating-point tensor comes in or out."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    floating = _floating(leaves)
    chosen = [i for i in floating if leaves[i].requires_grad] or floating[:1]
    if call.unit.wants_gradients(leaves[i] for i in chosen):
        if not chosen:
            raise Error(f"{call.unit.name}: none of its arguments is a floating-point tensor")
        for i, tensor in zip(chosen, Begin.apply(call, hook, *(leaves[i] for i in chosen))):
            leaves[i] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, spec)
    leaves, spec = pytree.tree_flatten(forward(*args, **kwargs))
    floating = _floating(leaves)
    chosen = [i for i in floating if leaves[i].requires_grad]
    if chosen:
        for i, tensor in zip(chosen, End.apply(call, *(leaves[i] for i in chosen))):
            leaves[i] = tensor
    elif floating:
        leaves[floating[0]] = Both.apply(call, hook, leaves[floating[0]])
    else:
        raise Error(f"{call.unit.name}: it returns no floating-point tensor")
    return pytree.tree_unflatten(leaves, spec)
