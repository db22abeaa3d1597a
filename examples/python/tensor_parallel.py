"""nanotron's tensor-parallel linears, gathered inputs recycled: python tensor_parallel.py [STEPS]

nanotron's TensorParallelColumnLinear and TensorParallelRowLinear (mode REDUCE_SCATTER) call column_linear and
row_linear with a process group and tp_recompute_allgather. Below are two functions of these names and arguments
over pagestash, and plain ones that keep what they gather. A small Llama-like model trains on two ranks with
both: same losses, fewer bytes between forward and backward."""
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import pagestash.torch

RANKS, LAYERS, TOKENS, HIDDEN, HEADS, FFN, WORDS = 2, 4, 64, 64, 4, 128, 96


# ---- with pagestash: what a port of nanotron's callers looks like

def column_linear(x, weight, bias, group, tp_recompute_allgather=True):
    """The input, in parts over the ranks, gathered; times this rank's rows of the weight."""
    return pagestash.torch.column_parallel_linear(x, weight, bias, group=group, sequence_parallel=True,
                                                  recompute=tp_recompute_allgather)


def row_linear(x, weight, bias, group):
    """This rank's columns of the weight; the sum of all ranks in parts."""
    return pagestash.torch.row_parallel_linear(x, weight, bias, group=group, sequence_parallel=True)


# ---- plain: what is gathered is kept by autograd

class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part, group):
        ctx.group = group
        whole = part.new_empty(part.shape[0] * group.size(), *part.shape[1:])
        dist.all_gather_into_tensor(whole, part.contiguous(), group=group)
        return whole

    @staticmethod
    def backward(ctx, gradient):
        return _Scatter.forward(ctx, gradient, ctx.group), None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, whole, group):
        ctx.group = group
        part = whole.new_empty(whole.shape[0] // group.size(), *whole.shape[1:])
        dist.reduce_scatter_tensor(part, whole.contiguous(), group=group)
        return part

    @staticmethod
    def backward(ctx, gradient):
        return _Gather.forward(ctx, gradient, ctx.group), None


def plain_column_linear(x, weight, bias, group, _=None):
    """The same as column_linear."""
    return functional.linear(_Gather.apply(x, group), weight, bias)


def plain_row_linear(x, weight, bias, group):
    """The same as row_linear, of no bias."""
    return _Scatter.apply(functional.linear(x, weight, bias), group)


# ---- a model, as nanotron's LlamaDecoderLayer calls them

class Layer(nn.Module):
    """Attention and a gated MLP, of this rank's heads and features."""

    def __init__(self, group, column, row):
        super().__init__()
        self.group, self.column, self.row = group, column, row
        self.norms = nn.ModuleList(nn.RMSNorm(HIDDEN) for _ in range(2))
        shapes = {"qkv": (3 * HIDDEN // RANKS, HIDDEN), "out": (HIDDEN, HIDDEN // RANKS),
                  "up": (2 * FFN // RANKS, HIDDEN), "down": (HIDDEN, FFN // RANKS)}
        self.weights = nn.ParameterDict({name: nn.Parameter(torch.randn(shape) * shape[1] ** -0.5)
                                         for name, shape in shapes.items()})

    def forward(self, x):
        """x: this rank's part of the sequence."""
        q, k, v = (t.view(TOKENS, HEADS // RANKS, -1).transpose(0, 1) for t in self.column(
            self.norms[0](x), self.weights["qkv"], None, self.group).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1)
        x = x + self.row(attended.reshape(TOKENS, -1), self.weights["out"], None, self.group)
        gate, up = self.column(self.norms[1](x), self.weights["up"], None, self.group).chunk(2, -1)
        return x + self.row(functional.silu(gate) * up, self.weights["down"], None, self.group)


def train(rank, steps, column, row):
    """(losses, bytes that autograd keeps between forward and backward)."""
    torch.manual_seed(rank)  # each rank's weights are its own
    group, kept, losses = dist.group.WORLD, {}, []
    layers = nn.Sequential(*(Layer(group, column, row) for _ in range(LAYERS)))
    torch.manual_seed(99)  # these are everybody's
    words, head = nn.Embedding(WORDS, HIDDEN), nn.Linear(HIDDEN, WORDS, bias=False)
    parameters = [*layers.parameters(), *words.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-3)
    shared = [p for p in parameters if p.dim() == 1 or p is words.weight or p is head.weight]

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    tokens = torch.arange(TOKENS + 1) * 5 % WORDS
    for _ in range(steps):
        kept.clear()
        part = slice(rank * TOKENS // RANKS, (rank + 1) * TOKENS // RANKS)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = functional.cross_entropy(head(layers(words(tokens[:-1][part]))), tokens[1:][part]) / RANKS
        loss.backward()
        for parameter in shared:  # seen by each rank with its own part of the sequence
            dist.all_reduce(parameter.grad, group=group)
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach()
        dist.all_reduce(total, group=group)
        losses.append(float(total))
    of_weights = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    return losses, sum(size for address, size in kept.items() if address not in of_weights)


def main(rank, folder, steps):
    """One rank, a process."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    plain, plain_bytes = train(rank, steps, plain_column_linear, plain_row_linear)
    losses, kept_bytes = train(rank, steps, column_linear, row_linear)
    if rank == 0:
        scratch = pagestash.torch.scratch.info("cpu")
        print(f"loss {losses[0]:.4f}, after {steps} steps {losses[-1]:.4f}; "
              f"plain differs by {max(abs(a - b) for a, b in zip(losses, plain)):.1e}")
        print(f"kept between forward and backward: {kept_bytes} bytes, plain {plain_bytes}; "
              f"scratch for all layers: {scratch.peak_leased_bytes}")
    dist.destroy_process_group()


if __name__ == "__main__":
    given = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory() as directory:
        context = torch.multiprocessing.get_context("spawn")
        ranks = [context.Process(target=main, args=(r, directory, given)) for r in range(RANKS)]
        for child in ranks:
            child.start()
        for child in ranks:
            child.join()
    sys.exit(any(child.exitcode for child in ranks))
