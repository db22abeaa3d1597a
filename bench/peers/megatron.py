"""The user's own copy of Megatron-LM's megatron/core/transformer/moe/ops/paged_stash.py, timed
beside the others. Nothing of it is part of this project: only the names of its two kernels and of
their arguments are known here, and checked before the file is run."""
import ast
import importlib.util

from paged_rows import PAGE_ROWS, PagedRows

BLOCK_NAME = "GLOBAL_BLOCK_SIZE"
SHARED = {"num_tokens_ptr", "page_record_ptr", "overflow_ptr", "free_list_cuda_ptr",
          "free_list_host_ptr", "free_list_tail_ptr", "free_list_capacity_ptr",
          "PAGE_SIZE", "HIDDEN_SIZE", "BLOCK_SIZE"}
# kernel -> arguments it must have, arguments it may have
KERNELS = {
    "paged_stash_copy_kernel": (SHARED | {
        "src_ptr", "cuda_dst_ptr", "host_dst_ptr", "free_list_head_ptr", "host_spill_global_ptr",
        "spilled_to_host_ptr", "new_free_list_head_ptr", "HAS_HOST_BUFFER"}, set()),
    "paged_stash_pop_kernel": (SHARED | {
        "cuda_src_ptr", "host_src_ptr", "dst_ptr", "spilled_to_host_ptr",
        "new_free_list_tail_ptr"}, {"MAX_NUM_TOKENS", "ZERO_PADDED_TOKENS"}),
}


class BadFile(Exception):
    """The file is not what --megatron-ops wants; the text says what is missing."""


def arguments_of(path):
    """{kernel: names of its arguments} of the two kernels, from the source alone."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        raise BadFile(f"{path}: not Python: {error}") from error
    functions = {node.name: node.args for node in tree.body if isinstance(node, ast.FunctionDef)}
    names = {target.id for node in tree.body if isinstance(node, ast.Assign)
             for target in node.targets if isinstance(target, ast.Name)}
    for kernel, (wanted, allowed) in KERNELS.items():
        if kernel not in functions:
            raise BadFile(f"{path}: no function {kernel}; wanted is Megatron-LM's "
                          "megatron/core/transformer/moe/ops/paged_stash.py")
        found = [argument.arg for argument in functions[kernel].args]
        if missing := sorted(wanted - set(found)):
            raise BadFile(f"{path}: {kernel} has no argument {', '.join(missing)}")
        if unknown := [name for name in found if name not in wanted | allowed]:
            raise BadFile(f"{path}: {kernel} has an argument that is not known here: "
                          f"{', '.join(unknown)}")
    if BLOCK_NAME not in names:
        raise BadFile(f"{path}: no constant {BLOCK_NAME}")
    return {kernel: [a.arg for a in functions[kernel].args] for kernel in KERNELS}


def load(path):
    """Runs the file as a module, after arguments_of() has passed it."""
    spec = importlib.util.spec_from_file_location("megatron_paged_stash", path)
    if spec is None:
        raise BadFile(f"{path}: not the name of a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadFile(f"{path}: cannot be loaded: {type(error).__name__}: {error}") from error
    return module


class MegatronRows(PagedRows):
    name = "megatron"

    def __init__(self, payload, module, arguments):
        super().__init__(payload)
        self.module, self.arguments = module, arguments

    def launch_stash(self, tensor):
        pool = tensor.pool
        self._launch("paged_stash_copy_kernel", tensor, src_ptr=tensor.source,
                     cuda_dst_ptr=pool.pages, host_dst_ptr=pool.pages,
                     free_list_head_ptr=pool.head, host_spill_global_ptr=pool.any_spilled,
                     new_free_list_head_ptr=tensor.new_head, HAS_HOST_BUFFER=0)

    def launch_pop(self, tensor):
        pool = tensor.pool
        self._launch("paged_stash_pop_kernel", tensor, cuda_src_ptr=pool.pages,
                     host_src_ptr=pool.pages, dst_ptr=tensor.destination,
                     new_free_list_tail_ptr=tensor.new_tail, MAX_NUM_TOKENS=tensor.capacity,
                     ZERO_PADDED_TOKENS=False)

    def _launch(self, kernel, tensor, **own):
        pool = tensor.pool
        values = {"num_tokens_ptr": tensor.live, "page_record_ptr": tensor.record,
                  "overflow_ptr": pool.overflow, "spilled_to_host_ptr": tensor.spilled,
                  "free_list_cuda_ptr": pool.freelist, "free_list_host_ptr": pool.host_freelist,
                  "free_list_tail_ptr": pool.tail, "free_list_capacity_ptr": pool.slots,
                  "PAGE_SIZE": PAGE_ROWS, "HIDDEN_SIZE": tensor.shape.width,
                  "BLOCK_SIZE": getattr(self.module, BLOCK_NAME), **own}
        launch = getattr(self.module, kernel)[tensor.grid]
        launch(**{name: values[name] for name in self.arguments[kernel]})
