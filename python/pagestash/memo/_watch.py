"""What a layer does beside returning a tensor, and what is done to its tensors: found where it would give wrong
gradients without a sign."""
import gc

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from .._c import Error

_COMPUTED = ("_orig", "_g")  # of a weight's parameters, where torch computes it in each forward


def tensors_in(values):
    """All tensors, however deep."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def only_first(out, name):
    """(the tensor that a layer returned, what else: a tuple, or None). Errors: there are other tensors."""
    first, others = (out[0], tuple(out[1:])) if isinstance(out, tuple) and out else (out, None)
    if not isinstance(first, torch.Tensor):
        raise Error(f"{name}: it returns a {type(first).__name__}: a tensor is wanted, or a tuple that begins with one")
    num = len(tensors_in(others))
    if num:
        raise Error(f"{name}: it returns {1 + num} tensors: one is allowed")
    return first, others


def attributes(module):
    """Tensors that hang on a module and are no parameters or buffers: by path."""
    out = {}
    for path, one in module.named_modules():
        for key, value in vars(one).items():
            if key not in ("_parameters", "_buffers", "_modules") and \
                    not any(key + end in one._parameters for end in _COMPUTED):
                for i, tensor in enumerate(tensors_in(value)):
                    out[f"{path}.{key}".lstrip("."), i] = tensor
    return out


def check_attributes(before, after, name):
    """before, after: attributes() behind a run of all tokens, and of the pieces. Errors: there is one with a
    history that is of a piece's tokens."""
    for key, tensor in after.items():
        if tensor.grad_fn is None:
            continue
        other = before.get(key)
        if other is None or other.shape != tensor.shape or \
                not torch.allclose(other.detach().double(), tensor.detach().double(), 1e-3, 1e-3):
            raise Error(f"{name}: it leaves a tensor with a history in {key[0]!r}, which is of some of its tokens "
                        "only: a layer's result is what it returns")


class Private:
    """Storages that nothing refers to behind a pass but what autograd saved."""

    def __init__(self):
        self.storages = []

    def add(self, tensor):
        """Its storage."""
        self.storages.append(StorageWeakRef(tensor.untyped_storage()))

    def has(self, tensor):
        """Whether a tensor lies in one."""
        return StorageWeakRef(tensor.untyped_storage()) in self.storages

    def check(self, name):
        """Errors: something does."""
        if all(storage.expired() for storage in self.storages):
            return
        gc.collect()
        if not all(storage.expired() for storage in self.storages):
            raise Error(f"{name}: something keeps its input, or what its attention takes, beyond its forward and is "
                        "not seen by autograd (ctx.x = x in place of ctx.save_for_backward(x), or an attribute): "
                        "that memory is written again")


class Unchanged:
    """What is read once more when a piece is computed again: parameters and arguments."""

    def __init__(self, module, arguments, name):
        self.module, self.name = module, name
        self.parameters = list(module.parameters())
        self.tensors = [(tensor, tensor._version) for tensor in [*self.parameters, *tensors_in(arguments)]
                        if not tensor.is_inference()]

    def check(self):
        """Errors: they are others now, or were changed in place."""
        now = list(self.module.parameters())
        if len(now) != len(self.parameters) or any(a is not b for a, b in zip(now, self.parameters)):
            raise Error(f"{self.name}: its parameters are others in its backward than in its forward, and the tokens "
                        "that were dropped are computed from them")
        if any(tensor._version != version for tensor, version in self.tensors):
            raise Error(f"{self.name}: a parameter or an argument was changed in place between its forward and its "
                        "backward, and the tokens that were dropped are computed from it")


class Stays:
    """A tensor that autograd keeps itself; with hooks it does not look whether that was changed."""
    __slots__ = ("tensor", "version", "name")

    def __init__(self, tensor, name):
        self.tensor = tensor if tensor.grad_fn is None else tensor.detach()
        self.version, self.name = tensor._version, name

    def get(self):
        """The tensor. Errors: it was changed."""
        if self.tensor._version != self.version:
            raise Error(f"{self.name}: a tensor that its backward needs, of shape {tuple(self.tensor.shape)}, was "
                        "changed in place behind its forward")
        return self.tensor
