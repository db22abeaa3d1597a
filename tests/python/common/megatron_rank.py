"""One of two ranks of megatron_ranks.py: runs scenarios, writes what came of them as JSON."""
import importlib
import json
import os
import sys
import warnings

warnings.filterwarnings("ignore")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import torch  # noqa: E402

from common import cuda_shim  # noqa: E402

cuda_shim.install()
import pagestash.megatron  # noqa: E402


def main(rank, store, names, out):
    """Runs the scenarios of these names."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # with NaN
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    cuda_shim.install_megatron()
    results = {}
    for name in names:
        file, _, function = name.rpartition(".")
        scenarios = importlib.import_module(f"common.{file or 'megatron_scenarios'}")
        results[function] = getattr(scenarios, function)()
    with open(f"{out}.{rank}", "w", encoding="utf-8") as file:
        json.dump(results, file)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[4:], sys.argv[3])
