"""Where this package enters Megatron-Core, and which versions of it were tried."""
import importlib.util
import sys
import types

from .._c import Error

TRIED = ("0.19.2",)
KERNELS = "megatron.core.transformer.moe.ops.paged_stash"
_MODULE = "megatron.core.transformer.moe.paged_stash"
# What is overridden, called or read; a version without one of them is another one.
_MANAGER = ("get_instance", "get_schedule_layer", "update_pp_schedule", "update_model_chunk",
            "stash_paged_tensors", "reload_paged_tensors", "wait_for_stash_to_complete",
            "allocate_stash_buffers", "release_stash_buffers", "on_save_for_backward",
            "on_get_saved_tensor", "add_paged_tensor_to_stash", "remove_paged_tensor_from_stash")
_RUNNER = ("data_read", "check_moe_overflow", "prepare_for_rerun", "_set_moe_paged_stash_all")
_NAMES = ("PagedStashManager", "PagedStashRunner", "paged_stash_reset",
          "check_paged_stash_overflow", "check_paged_stash_host_spill")


class _NoKernel:
    """Stands for a Triton kernel on a machine without Triton."""

    def __getitem__(self, grid):
        raise Error("Megatron-Core's own paged stash needs Triton, which is not installed; "
                    "pagestash.megatron.install() comes before the model is built")


def stand_in():
    """Lets Megatron-Core be imported without Triton, which it imports at once and pages of
    pagestash do not need. Nothing is done where there is a Triton, or Megatron's kernels are in."""
    if KERNELS in sys.modules or "triton" in sys.modules:
        return
    if importlib.util.find_spec("triton") is not None:
        return
    module = types.ModuleType(KERNELS, "Megatron-Core's Triton kernels, where there is no Triton.")
    module.GLOBAL_BLOCK_SIZE = 1024
    module.paged_stash_copy_kernel = module.paged_stash_pop_kernel = _NoKernel()
    sys.modules[KERNELS] = module


def find(version=None):
    """Megatron-Core's module paged_stash. version: one that was not tried and is to be taken
    anyhow.

    Errors: no Megatron-Core, another version, one without paged stash or with another one."""
    try:
        import megatron.core as core
    except ImportError as error:
        raise Error(f"pagestash.megatron: Megatron-Core cannot be imported: {error}") from None
    found = str(getattr(core, "__version__", "unknown"))
    number = found.split("+")[0]  # a checkout appends its commit
    if number not in TRIED and version not in (found, number):
        raise Error(f"pagestash.megatron: Megatron-Core {found} was not tried with this package "
                    f"(tried: {', '.join(TRIED)}); install(version={number!r}) takes it all the "
                    "same")
    stand_in()
    try:
        module = importlib.import_module(_MODULE)
    except ImportError as error:
        raise Error(f"pagestash.megatron: Megatron-Core {found} has no paged stash ({error}); "
                    f"tried: {', '.join(TRIED)}") from None
    missing = [name for name in _NAMES if not hasattr(module, name)]
    if not missing:
        missing = [f"PagedStashManager.{n}" for n in _MANAGER
                   if not hasattr(module.PagedStashManager, n)]
        missing += [f"PagedStashRunner.{n}" for n in _RUNNER
                    if not hasattr(module.PagedStashRunner, n)]
    if missing:
        raise Error(f"pagestash.megatron: the paged stash of Megatron-Core {found} has no "
                    f"{', '.join(missing)}; tried: {', '.join(TRIED)}")
    return module


def check_cuda():
    """Errors: torch finds no GPU: a stream, which Megatron-Core's manager makes, can then end the
    process."""
    import torch  # pylint: disable=import-outside-toplevel
    if issubclass(torch.cuda.Stream, torch._C._CudaStreamBase) and not torch.cuda.is_available():
        raise Error(f"pagestash.megatron: torch {torch.__version__} finds no GPU, and Megatron-Core's "
                    "paged stash wants its streams")
