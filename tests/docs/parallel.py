"""Before the block of docs/parallel.md: a group of one rank."""
import tempfile

import torch

import pagestash.torch

store = tempfile.NamedTemporaryFile()
torch.distributed.init_process_group("gloo", init_method=f"file://{store.name}", rank=0, world_size=1)
group, h, shape, dtype = torch.distributed.group.WORLD, 16, (8, 16), torch.float32
