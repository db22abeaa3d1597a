"""A small MoE transformer with static expert buffers, as one GPU of expert parallelism has them: `ep`
ranks one after the other, each with buffers for the worst routing, and nothing that waits for the
device. And a training loop over it, with two schedules, that answers bits."""
import contextlib
import dataclasses
import hashlib
import pathlib
import struct

import torch
import torch.nn.functional as F
from torch import nn

import pagestash.torch

SCHEDULES = {
    "FFBB": lambda micro: [("F", m) for m in range(micro)] + [("B", m) for m in range(micro)],
    "FBFB": lambda micro: [(kind, m) for m in range(micro) for kind in "FB"],
}


@dataclasses.dataclass(frozen=True)
class Shape:
    """Of the model and of its batches."""
    layers: int = 4
    hidden: int = 64
    heads: int = 4
    ffn: int = 96
    experts: int = 8
    topk: int = 2
    ep: int = 4
    layout: str = "prefix"  # or "segments": a slab for each expert
    dtype: torch.dtype = torch.float32
    batch: int = 4
    sequence: int = 128
    micro: int = 2  # micro-batches of a step
    vocab: int = 256
    glu: bool = False  # the activation is pagestash.torch.glu, else torch's own operators

    @property
    def local(self):
        """Experts of a rank."""
        return self.experts // self.ep

    @property
    def capacity(self):
        """Rows of a rank's buffers, or of one of its slabs: every token at every choice."""
        tokens = self.batch * self.sequence
        return tokens * self.topk if self.layout == "prefix" else tokens

    @property
    def row_bytes(self):
        """Of the tensors that a rank's experts keep: rows, [gate, up], probabilities, and what goes into the
        second product; without glu silu(gate) and silu(gate) * up, too."""
        widths = (self.hidden, 2 * self.ffn, self.ffn)
        if self.glu:
            return (*(width * self.dtype.itemsize for width in widths), torch.float32.itemsize)
        return tuple(width * self.dtype.itemsize for width in (*widths, self.ffn, self.ffn, 1))


class Experts(nn.Module):
    """Rows behind the live ones are garbage (prefix) or zero (segments). stash: whose pages glu writes."""

    def __init__(self, shape):
        super().__init__()
        self.shape, self.stash = shape, None
        n, hidden, ffn = shape.local, shape.hidden, shape.ffn
        self.w1 = nn.Parameter(torch.randn(n, hidden, 2 * ffn) * hidden ** -0.5)
        self.w2 = nn.Parameter(torch.randn(n, ffn, hidden) * ffn ** -0.5)
        self.product = self.grouped if shape.layout == "prefix" else self.padded

    @staticmethod
    def grouped(x, weight, counts):
        """[rows, a] x [experts, a, b] -> [rows, b], by expert."""
        return F.grouped_mm(x, weight, offs=counts.cumsum(0, dtype=torch.int32))

    @staticmethod
    def padded(x, weight, counts):
        """[experts, rows, a] x [experts, a, b] -> [experts, rows, b]."""
        return torch.bmm(x, weight)

    def forward(self, x, probs, counts):
        y = self.activation(self.product(x, self.w1, counts), probs, counts)
        return self.product(y, self.w2, counts)

    def activation(self, x, probs, counts):
        """silu(gate) * up * probs."""
        if not self.shape.glu:
            gate, up = x.chunk(2, -1)
            return F.silu(gate) * up * probs
        # A grouped product reads live rows alone, a padded one the others, too.
        segments, tail = (0, "untouched") if x.dim() == 2 else (len(x), "zero")
        return pagestash.torch.glu(x, counts, stash=self.stash, probability=probs, segments=segments,
                                   tail=tail)


def by_rank(choice, first, num):
    """choice: [choices] expert of each. Which choices go to experts first..first + num - 1, in order of
    expert, others behind them, and how many each of them gets."""
    local = choice - first
    key = torch.where((local >= 0) & (local < num), local, num)
    counts = (key.unsqueeze(1) == torch.arange(num, device=key.device)).sum(0)
    return key.argsort(stable=True), counts


class MoE(nn.Module):
    """layer: opens the context in which a rank's experts run; around: wraps the call within it."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.router = nn.Linear(shape.hidden, shape.experts, bias=False)
        self.ranks = nn.ModuleList(Experts(shape) for _ in range(shape.ep))
        self.layer = lambda *args, **kwargs: contextlib.nullcontext()
        self.call = lambda experts, *args: experts(*args)

    def forward(self, x):
        shape, x = x.shape, x.flatten(0, -2)
        probs, choice = self.router(x).softmax(-1).topk(self.shape.topk, -1)
        choice, probs, out = choice.flatten(), probs.flatten(), torch.zeros_like(x)
        run = self.prefix if self.shape.layout == "prefix" else self.segments
        for rank, experts in enumerate(self.ranks):
            order, counts = by_rank(choice, rank * self.shape.local, self.shape.local)
            token, y = run(experts, x, probs, order, counts)
            out = out.index_add(0, token, y)
        return out.view(shape)

    def prefix(self, experts, x, probs, order, counts):
        """Live rows first: [choices, hidden]."""
        capacity, token = order.numel(), order // self.shape.topk
        live = (torch.arange(capacity, device=x.device) < counts.sum()).unsqueeze(1)
        rows = torch.where(live, x[token], 0)
        chosen = torch.where(live, probs[order].unsqueeze(1), 0)
        with self.layer(counts, capacity):
            y = self.call(experts, rows, chosen, counts)
        return token, torch.where(live, y, 0)

    def segments(self, experts, x, probs, order, counts):
        """A slab of every expert: [experts, tokens, hidden]."""
        capacity, first = x.size(0), counts.cumsum(0) - counts
        row = torch.arange(capacity, device=x.device)
        live = (row < counts.unsqueeze(1)).unsqueeze(2)
        at = order[(first.unsqueeze(1) + row).clamp(max=order.numel() - 1)]
        token = at // self.shape.topk
        rows = torch.where(live, x[token], 0)
        chosen = torch.where(live, probs[at].unsqueeze(2), 0)
        with self.layer(counts, capacity, segments=len(counts)):
            y = self.call(experts, rows, chosen, counts)
        return token.flatten(), torch.where(live, y, 0).flatten(0, 1)


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        hidden, self.heads = shape.hidden, shape.heads
        self.norm1, self.norm2 = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.proj = nn.Linear(hidden, hidden, bias=False)
        self.moe = MoE(shape)

    def attention(self, x):
        """[batch, sequence, hidden], causal."""
        batch, sequence, hidden = x.shape
        qkv = self.qkv(x).view(batch, sequence, 3, self.heads, hidden // self.heads)
        y = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4), is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(x.shape))

    def attend(self, x):
        """The half before the experts."""
        return x + self.attention(self.norm1(x))

    def forward(self, x):
        x = self.attend(x)
        return x + self.moe(self.norm2(x))


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def loss(self, batch):
        """batch: [batch, sequence + 1] tokens. Mean cross entropy, float32."""
        logits = self(batch[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())

    def use(self, stash):
        """Every rank of every layer runs in stash.layer; None: in none."""
        for block in self.blocks:
            block.moe.layer = stash.layer if stash else lambda *a, **k: contextlib.nullcontext()
            for experts in block.moe.ranks:
                experts.stash = stash if isinstance(stash, pagestash.torch.Stash) else None


def text():
    """Bytes of the repository's licence as tokens."""
    roots = pathlib.Path(__file__).resolve().parents
    path = next(root / "LICENSE" for root in roots if (root / "LICENSE").is_file())
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).long()


def batches(shape, steps, seed=2):
    """[steps][micro] batches of the text."""
    tokens, generator = text(), torch.Generator().manual_seed(seed)

    def batch():
        at = torch.randint(0, len(tokens) - shape.sequence - 1, (shape.batch,), generator=generator)
        return torch.stack([tokens[i:i + shape.sequence + 1] for i in at])
    return [[batch() for _ in range(shape.micro)] for _ in range(steps)]


def build(shape, seed=1):
    """A model with the weights of this seed."""
    torch.manual_seed(seed)
    return Model(shape).to(shape.dtype)


def run_step(model, micro_batches, schedule):
    """Forwards and backwards of one step in this order; the losses, as tensors."""
    losses = {}
    for kind, m in SCHEDULES[schedule](len(micro_batches)):
        if kind == "F":
            losses[m] = model.loss(micro_batches[m])
        else:
            losses[m].backward()
            losses[m] = losses[m].detach()
    return [losses[m] for m in sorted(losses)]


@dataclasses.dataclass
class Result:
    """losses: of every micro-batch; after: bits of all gradients and then weights, step by step."""
    losses: list
    after: list

    @property
    def bits(self):
        """Of the losses, and of the gradients and weights after the last step."""
        return [struct.pack("<d", loss) for loss in self.losses], self.after[-1]

    def equal_steps(self, other):
        """How many steps from the first on have equal bits, losses, gradients and weights."""
        per_step = len(self.losses) // len(self.after)
        for step, (mine, others) in enumerate(zip(self.after, other.after)):
            span = slice(step * per_step, (step + 1) * per_step)
            if mine != others or struct.pack(f"<{per_step}d", *self.losses[span]) != struct.pack(
                    f"<{per_step}d", *other.losses[span]):
                return step
        return len(self.after)


def bits(tensors):
    """SHA-256 of every tensor's bytes."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def weight_bits(model):
    """Of every parameter."""
    return bits(model.parameters())


def train(shape, stash=None, steps=20, schedule="FFBB", on_step=None):
    """Trains a model of seed 1. stash: anything that has `layer` and `step`; on_step(status) gets what
    its step answers."""
    model = build(shape)
    model.use(stash)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    result = Result([], [])
    for micro_batches in batches(shape, steps):
        result.losses += [loss.item() for loss in run_step(model, micro_batches, schedule)]
        gradients = bits(parameter.grad for parameter in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        if stash is not None:
            status = stash.step()
            if on_step is not None:
                on_step(status)
        result.after.append((gradients, weight_bits(model)))
    return result


@contextlib.contextmanager
def poisoned():
    """Memory that nobody has written is NaN, and algorithms are deterministic."""
    before = torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.utils.deterministic.fill_uninitialized_memory = filled
