"""Megatron-Core's paged stash with pages of pagestash.

    import pagestash.megatron            # before megatron.core where there is no Triton
    pagestash.megatron.install()         # before the model is built

Megatron's flags (moe_paged_stash, the buffer size factors), its schedule and its runner stay."""
import math
import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from .._abi import PST_PAGE_BYTES_MAX, PST_PAGE_BYTES_MIN
from .._c import Error
from . import seams

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..torch import Stash
    from .buffers import Buffers
    from .gated import Glu
    from .manager import Manager
    from .swapped import MegatronRun

__all__ = ["Error", "glu", "install", "memo", "scratch", "uninstall"]
_installed = None  # (module, manager, arguments, what the names of the module were before)
seams.stand_in()


def install(*, page_bytes: Optional[int] = None, grow: bool = True, headroom: float = 1.1,
            max_pages: Optional[int] = None, recovery: str = "grow", num_sms: int = 0,
            tail: str = "zero", scrub: bool = False,
            allocator_plan: Union[None, str, "os.PathLike[str]"] = None,
            version: Optional[str] = None) -> "Manager":
    """Puts pages of pagestash behind Megatron-Core's paged stash. Answers the manager.

    page_bytes: 16 KiB to 4 MiB, a power of two; None: chosen from what the first step saves.
    grow: a pool that a step overflowed is made anew with `headroom` times the pages that it
        wanted, up to max_pages.
    recovery: "grow": Megatron's runner runs that step again with the larger pool; "dropless": once
        more without stash, as Megatron does, and the next step has the larger pool. Either way
        from the state before the step.
    num_sms: SM budget of a copy; 0: all.
    tail: "zero": rows behind the live ones are zeros in what is restored; "untouched": they are
        whatever torch.empty has, as in Megatron's own restore.
    scrub: pages are cleared when they are freed.
    allocator_plan: a file of `pagestash plan` (docs/planner.md): what the thread that runs a
        training step allocates follows it, through pagestash.allocator.mem_pool; not with
        full-iteration CUDA graphs, which have memory of their own.
    version: of Megatron-Core, one that was not tried with this package and is to be taken anyhow.

    A second call with the same arguments answers the same manager. Errors: no Megatron-Core, a
    version that was not tried, one without paged stash; its manager is in use; other arguments
    than before; torch has no GPU."""
    global _installed
    arguments = dict(page_bytes=page_bytes, grow=grow, headroom=headroom, max_pages=max_pages,
                     recovery=recovery, num_sms=num_sms, tail=tail, scrub=scrub,
                     allocator_plan=allocator_plan)
    _check_arguments(arguments)
    if _installed is not None:
        module, manager, before, _ = _installed
        if module.PagedStashManager.STASH_MGR is manager:
            if before != arguments:
                raise Error(f"pagestash.megatron.install: it is installed with {before}; "
                            "uninstall() first")
            return manager
        uninstall()  # somebody took the manager out
    module = seams.find(version)
    if module.PagedStashManager.STASH_MGR is not None:
        raise Error("pagestash.megatron.install: Megatron-Core's own manager is in use already; "
                    "install() comes before the model and the runner are built")
    try:
        from . import manager as managers, runner
    except ImportError as error:  # of what only another version has elsewhere
        raise Error(f"pagestash.megatron: this Megatron-Core is another than those tried "
                    f"({', '.join(seams.TRIED)}): {error}") from None
    seams.check_cuda()
    manager = managers.Manager(managers.Options(**arguments))
    before = {name: getattr(module, name) for name in (
        "check_paged_stash_overflow", "check_paged_stash_host_spill", "PagedStashRunner")}
    names = {"check_paged_stash_overflow": _answer(module, manager, "overflow", before),
             "check_paged_stash_host_spill": _answer(module, manager, "host_spill", before),
             "PagedStashRunner": runner.Runner}
    module.PagedStashManager.STASH_MGR = manager
    _set_names(module, before, names)
    _installed = module, manager, arguments, (before, names)
    return manager


def uninstall() -> None:
    """Puts everything back and frees the pool. Errors: captured graphs hold it; nothing is done."""
    global _installed
    if _installed is None:
        return
    module, manager, _, (before, names) = _installed
    manager.close()
    _set_names(module, names, before)
    if module.PagedStashManager.STASH_MGR is manager:
        module.PagedStashManager.STASH_MGR = None
    _installed = None


def memo(model, fraction: Any = "auto", *,
         micro_batches: Union[None, int, Callable[[], int]] = None,
         schedule: Optional["Schedule"] = None, version: Optional[str] = None,
         **fields) -> "MegatronRun":
    """Keeps what a model's TransformerLayers save by tokens, as MEMO does (pagestash.memo.run).

    model: a GPTModel, as it is or in DDP, or the list of this rank's chunks. Of a layer with
        experts it is what comes before them; the experts are paged by install().
    fraction, and fields (keep_last, host_bytes, ...): as pagestash.memo.run has them, but for
        attention and token_dim, which are Megatron-Core's.
    micro_batches: of a step, a number or a function; None: Megatron-Core's calculator is asked.
    schedule: in which order this rank runs its passes; None: as Megatron-Core's configuration
        says.
    version: as install has it.

    Megatron-Core's schedules begin and end the steps: nothing is to be called. Evaluations run
    under torch.no_grad(). close() puts everything back. Errors: no Megatron-Core, a version that
    was not tried, what the configuration has and MEMO cannot be with, one sentence each."""
    seams.find(version)
    from . import swapped
    return swapped.run(model, fraction=fraction, micro_batches=micro_batches, schedule=schedule,
                       **fields)


def glu(stash: Optional["Stash"] = None, *, version: Optional[str] = None) -> "Glu":
    """Has pagestash.torch.glu compute the experts' gated activation, where torch computes it.

    That is with bias_activation_fusion and without Transformer Engine's fused experts: SwiGLU, and quick
    GEGLU with its clamp and offset, times the tokens' probabilities. One launch instead of several, which
    rounds once: other bits than Megatron-Core's. What has a bias, and activation_func_fp8_input_store,
    stay Megatron-Core's.

    stash: a pagestash.torch.Stash into whose pages the activation's input goes until its backward; None: it
        stays in memory. stash.step() after each step is the caller's, and so is stash.valid before the
        optimizer: Megatron-Core's runner looks at install()'s pages alone. Those it is independent of:
        Megatron-Core pages what the fused experts save, whose activation is in their products.
    version: as install has it.

    close() of the answer puts everything back. Errors: no Megatron-Core, a version that was not tried; it
    is there already."""
    seams.find(version)
    from . import gated
    return gated.Glu(stash)


def scratch(*, device=None, on_held: Optional[str] = None, version: Optional[str] = None) -> "Buffers":
    """Has Megatron-Core's global memory buffer lease from pagestash.torch.scratch.

    Its layers gather their inputs into one recycled buffer. With this a buffer has one user at a time, at an
    address that never moves, shared with pagestash's own layers under names of its own; and who still holds a
    tensor when the next one takes it is named with both places.

    device: of torch; None: cuda if there is one.
    on_held: "warn": once for each pair of places; "raise": an Error; None: raise with PAGESTASH_CHECK=1.
    version: as install has it.

    Before or after initialize_model_parallel(). close() of the answer puts Megatron-Core's own back. Errors: no
    Megatron-Core, a version that was not tried; it is there already."""
    seams.find(version)
    from . import buffers
    return buffers.Buffers(device, on_held)


def _check_arguments(arguments):
    for name, allowed in (("recovery", ("grow", "dropless")), ("tail", ("zero", "untouched"))):
        if arguments[name] not in allowed:
            raise Error(f"pagestash.megatron.install: {name} {arguments[name]!r}: allowed are "
                        f"{', '.join(allowed)}")
    headroom = arguments["headroom"]
    if not isinstance(headroom, (int, float)) or not 1 <= headroom < math.inf:
        raise Error(f"pagestash.megatron.install: headroom {headroom!r}: allowed is at least 1")
    for name, least in (("max_pages", 1), ("num_sms", 0), ("page_bytes", PST_PAGE_BYTES_MIN)):
        value = arguments[name]
        if value is not None and not (isinstance(value, int) and least <= value < 1 << 31):
            raise Error(f"pagestash.megatron.install: {name} {value!r}: allowed is at least {least}")
    size = arguments["page_bytes"]
    if size is not None and (size > PST_PAGE_BYTES_MAX or size & size - 1):
        raise Error(f"pagestash.megatron.install: page_bytes {size}: allowed are powers of two from "
                    f"{PST_PAGE_BYTES_MIN} to {PST_PAGE_BYTES_MAX}")


def _answer(module, manager, word, before):
    """Megatron's question, which its own code does not ask during an evaluation."""
    def ask():
        if module.PagedStashManager.STASH_MGR is manager:
            return getattr(manager, word).ne(0)
        return before[f"check_paged_stash_{word}"]()

    ask.__doc__ = f"Whether {word} of the last training step is set, in an evaluation, too."
    return ask


def _set_names(module, old, new):
    """In the module, and where Megatron's training loop has imported them from it."""
    training = sys.modules.get("megatron.training.training")
    for name, value in new.items():
        setattr(module, name, value)
        if training is not None and getattr(training, name, None) is old[name]:
            setattr(training, name, value)
