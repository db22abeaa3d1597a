"""A Run's steps as iterations of the allocator that follows a plan."""
import os

from .. import allocator
from .._c import Error
from . import _fingerprint


class Planned:
    """The plan of a Run. Its first step is not of the plan: there buffers, pinned memory and the optimizer's
    state are made, which have memory of their own."""

    def __init__(self, plan, modules):
        if isinstance(plan, (str, os.PathLike)):
            from ._profile import load  # pylint: disable=import-outside-toplevel
            plan = load(plan)
        if not hasattr(plan, "check_layers"):
            raise Error(f"plan: a {type(plan).__name__}: a MemoPlan, or the file of one, is wanted")
        plan.check_layers(modules)
        if not allocator.is_installed():
            allocator.install()
        self.plan, self.is_followed, self.is_begun = plan, False, True

    def begin(self, is_first: bool) -> None:
        """An iteration of the allocator. is_first: nothing is known of the layers yet."""
        self.is_begun = True
        if is_first:
            return
        if not self.is_followed:
            self.plan.use()
            self.is_followed = True
        allocator.mark_iteration()

    def end(self) -> None:
        """Of a step. Errors: it was not begun."""
        if not self.is_begun:
            raise Error("step: with a plan begin() or iteration() comes before a step's first request of memory")
        self.is_begun = False


def refuse_cpu(x) -> None:
    """Errors: the plan is of the GPU's memory, and the layers are not there."""
    if not x.is_cuda:
        raise Error(f"plan: it is of a GPU's memory, and the hidden states are on {x.device}")


def layers_mismatch(plan: dict, modules) -> str:
    """What differs between the layers of a plan's fingerprint and these, one sentence; "" where they agree."""
    modules = list(modules)
    if plan["layers"] != len(modules):
        return f"the plan is of {plan['layers']} layers, and {len(modules)} are given"
    for number, module in enumerate(modules):
        own = _fingerprint.tensors(module, {id(parameter) for parameter in module.parameters()})
        said = _fingerprint.differs(plan["layer"], own, "the plan's layer", f"layer {number}")
        if said:
            return said
    return ""
