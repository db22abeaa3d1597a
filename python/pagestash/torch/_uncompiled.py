"""What torch.compile runs as it stands; imported while it traces, since it costs the import of the compiler."""
import torch

from . import parallel

run = torch.compiler.disable(parallel.run_linear)
