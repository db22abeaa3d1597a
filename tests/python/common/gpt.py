"""A small GPT in plain torch, and its training."""
import torch
import torch.nn.functional as F
from torch import nn

WORDS = 101


class Block(nn.Module):
    """A layer with scaled_dot_product_attention."""

    def __init__(self, hidden, heads, dropout=0.0):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, tokens, hidden = x.shape
        q, k, v = (t.view(batch, tokens, self.heads, -1).transpose(1, 2)
                   for t in self.qkv(self.norm1(x)).chunk(3, -1))
        o = self.attend(q, k, v)
        x = x + F.dropout(self.out(o.transpose(1, 2).reshape(batch, tokens, hidden)), self.dropout)
        return x + self.down(F.gelu(self.up(self.norm2(x))))

    def attend(self, q, k, v):
        """Flash attention, where there is one."""
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Core(nn.Module):
    """Attention written out: it keeps the shares of all tokens."""

    def __init__(self, size):
        super().__init__()
        self.register_buffer("scale", torch.tensor(size ** -0.5))

    def forward(self, q, k, v):
        """[batch, heads, tokens, size]."""
        later = torch.full((q.shape[-2],) * 2, -torch.inf, dtype=q.dtype, device=q.device).triu_(1)
        return (q * self.scale @ k.transpose(-2, -1) + later).softmax(-1) @ v


class PlainBlock(Block):
    """A layer whose module `core` is its attention."""

    def __init__(self, hidden, heads, dropout=0.0):
        super().__init__(hidden, heads, dropout)
        self.core = Core(hidden // heads)

    def attend(self, q, k, v):
        """Plain."""
        return self.core(q, k, v)


class GPT(nn.Module):
    """Embedding, layers, head."""

    def __init__(self, layers, hidden=64, heads=4, block=Block, **fields):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, hidden)
        self.layers = nn.ModuleList(block(hidden, heads, **fields) for _ in range(layers))
        self.head = nn.Linear(hidden, WORDS)

    def forward(self, words):
        x = self.embedding(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def loss_of(model, words):
    """Of the next word."""
    return F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


def words_of(step, batch, tokens):
    """The same for the same step."""
    generator = torch.Generator().manual_seed(1000 + step)
    return torch.randint(0, WORDS, (batch, tokens + 1), generator=generator)


def train(model, run=None, steps=3, batch=1, tokens=256, micro_batches=1, device="cpu"):
    """Losses of the steps."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    losses = []
    for step in range(steps):
        for micro_batch in range(micro_batches):
            loss = loss_of(model, words_of(step * micro_batches + micro_batch, batch, tokens).to(device))
            loss.backward()
            losses.append(loss.item())
        if run is not None:
            run.step()
        optimizer.step()
        optimizer.zero_grad()
    return losses
