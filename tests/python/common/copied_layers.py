"""Layers that only copy, which are real on the pretended GPU: two dense ones and two with experts, whose outputs
and weights are bytes of what they kept. Import it after pretended.start()."""
import torch
from torch import nn

TOKENS, WIDTH, ROWS, ALWAYS = 32, 64, 160, 8  # the first ALWAYS rows of experts are live in every routing
HALF = WIDTH // 2


def cat(tensors, dim=0):
    """In place of torch.cat, which is a kernel: contiguous copies."""
    size = list(tensors[0].shape)
    size[dim] = sum(tensor.shape[dim] for tensor in tensors)
    out, start = torch.empty(size, dtype=tensors[0].dtype, device=tensors[0].device), 0
    for tensor in tensors:
        out.narrow(dim, start, tensor.shape[dim]).copy_(tensor)
        start += tensor.shape[dim]
    return out


def rows_of(tensor):
    """[..., WIDTH] as rows."""
    return tensor.detach().reshape(-1, WIDTH)


class Mix(torch.autograd.Function):
    """Of each row the right half is the weight's. What it keeps comes back in `gradient`."""

    @staticmethod
    def forward(ctx, x, weight, gradient):
        y = torch.empty_like(x)
        y.copy_(x)
        for row, other in zip(rows_of(y), weight):
            row[HALF:].copy_(other[HALF:])
        ctx.save_for_backward(x, y)
        ctx.gradient = gradient
        return y

    @staticmethod
    def backward(ctx, dy):
        x, y = map(rows_of, ctx.saved_tensors)
        for row, before, after in zip(ctx.gradient, x, y):
            row[HALF:].copy_(before[:HALF])
            row[:HALF].copy_(after[HALF:])
        dx = torch.empty_like(dy)
        dx.copy_(dy)
        return dx, None, None


class Swap(torch.autograd.Function):
    """Attention: both halves of the tokens change places."""

    @staticmethod
    def forward(ctx, q, seen):
        out = halves_swapped(q)
        ctx.save_for_backward(q, out)
        ctx.seen = seen
        return out

    @staticmethod
    def backward(ctx, dy):
        for seen, tensor in zip(ctx.seen, ctx.saved_tensors):
            seen.copy_(tensor)
        return halves_swapped(dy), None


def halves_swapped(x):
    out, half = torch.empty_like(x), x.shape[1] // 2
    out[:, :half].copy_(x[:, half:])
    out[:, half:].copy_(x[:, :half])
    return out


class Attention(nn.Module):
    """seen: what it kept, in its last backward."""

    def __init__(self):
        super().__init__()
        self.seen = torch.zeros(2, 1, TOKENS, WIDTH).cuda()

    def forward(self, q):
        return Swap.apply(q, self.seen)


class Written:
    """Tensors that a backward writes: no arguments, since those may not change before the backward."""

    def __init__(self, tensors):
        self.tensors = tensors


class Dense(nn.Module):
    """A layer; weights: of its two mixtures, by token; written: their gradients."""

    def __init__(self, draws=False):
        super().__init__()
        self.core, self.draws = Attention(), draws

    def forward(self, x, weights, written):
        gradients = written.tensors
        y = Mix.apply(x, weights[0], gradients[0])
        if self.draws:
            torch.rand(1)  # of the CPU's generator: a kernel that draws cannot be captured here
        return Mix.apply(self.core(y), weights[1], gradients[1])


class Dispatch(torch.autograd.Function):
    """The first tokens to rows, before those that routing brought."""

    @staticmethod
    def forward(ctx, x, brought):
        out = torch.empty_like(brought)
        out.copy_(brought)
        out[:ALWAYS].copy_(x[0, :ALWAYS])
        return out

    @staticmethod
    def backward(ctx, dy):
        dx = torch.zeros(1, TOKENS, WIDTH, device=dy.device)
        dx[0, :ALWAYS].copy_(dy[:ALWAYS])
        return dx, None


class Combine(torch.autograd.Function):
    """Back to the tokens; the others are as they were before."""

    @staticmethod
    def forward(ctx, rows, x):
        out = torch.empty_like(x)
        out.copy_(x)
        out[0, :ALWAYS].copy_(rows[:ALWAYS])
        return out

    @staticmethod
    def backward(ctx, dy):
        drows = torch.zeros(ROWS, WIDTH, device=dy.device)
        drows[:ALWAYS].copy_(dy[0, :ALWAYS])
        return drows, None


class Experts(nn.Module):
    """Rows [ROWS, WIDTH], of which `counts` are live and the others zero."""

    def forward(self, rows, counts, weight, gradient):
        return Keep.apply(Keep.apply(rows, weight, gradient[0]), weight, gradient[1])


class Keep(torch.autograd.Function):
    """The first rows become the weight's; what it keeps comes back in `gradient`."""

    @staticmethod
    def forward(ctx, rows, weight, gradient):
        out = torch.empty_like(rows)
        out.copy_(rows)
        for row, other in zip(out[:ALWAYS], weight):
            row[:HALF].copy_(other[:HALF])
        ctx.save_for_backward(out)
        ctx.gradient = gradient
        return out

    @staticmethod
    def backward(ctx, dy):
        ctx.gradient.copy_(ctx.saved_tensors[0])
        out = torch.empty_like(dy)
        out.copy_(dy)
        return out, None, None


class Model:
    """dense, experts, dense, experts. Each step: fill() writes a routing and an input; run() computes loss and
    gradients, and writes the weights."""

    def __init__(self, draws=False, micro_batches=1):
        draw = torch.Generator().manual_seed(1)
        self.draw = torch.Generator().manual_seed(2)
        self.dense = [Dense(draws) for _ in range(4)]  # 0 and 2 alone, 1 and 3 before experts
        self.experts = [Experts() for _ in range(2)]
        self.weights = [torch.rand(2, TOKENS, WIDTH, generator=draw).cuda() for _ in self.dense]
        self.gradients = [torch.zeros(2, TOKENS, WIDTH).cuda() for _ in self.dense]
        self.expert_weights = [torch.rand(ALWAYS, WIDTH, generator=draw).cuda() for _ in self.experts]
        self.expert_gradients = [torch.zeros(2, ROWS, WIDTH).cuda() for _ in self.experts]
        self.brought = [torch.zeros(ROWS, WIDTH).cuda() for _ in self.experts]
        self.counts = [torch.zeros(1, dtype=torch.int64).cuda() for _ in self.experts]
        self.xs = [torch.empty(1, TOKENS, WIDTH, device="cuda", requires_grad=True)
                   for _ in range(micro_batches)]
        self.dy = torch.zeros(1, TOKENS, WIDTH).cuda()
        self.dxs = [torch.zeros(1, TOKENS, WIDTH).cuda() for _ in self.xs]
        self.losses = [torch.zeros(1, TOKENS, WIDTH).cuda() for _ in self.xs]

    def fill(self, full=False):
        """New ones. full: every row is live."""
        for x in self.xs:
            x.detach().copy_(torch.rand(1, TOKENS, WIDTH, generator=self.draw))
        self.dy.copy_(torch.rand(1, TOKENS, WIDTH, generator=self.draw))
        for brought, count in zip(self.brought, self.counts):
            live = int(torch.randint(ALWAYS, ROWS + 1, (), generator=self.draw))
            live = ROWS if full else live
            rows = torch.rand(ROWS, WIDTH, generator=self.draw)
            rows[live:] = 0
            brought.copy_(rows)
            count.copy_(torch.tensor([live]))

    def run(self):
        """A step: all forwards, then all backwards."""
        ys = [self.forward(x) for x in self.xs]
        for x, y, loss, dx in zip(self.xs, ys, self.losses, self.dxs):
            loss.copy_(y.detach())
            its, = torch.autograd.grad(y, [x], self.dy)
            dx.copy_(its)
        for weight, gradient in zip(self.weights, self.gradients):
            weight.copy_(gradient)
        for weight, gradient in zip(self.expert_weights, self.expert_gradients):
            weight.copy_(gradient[1, :ALWAYS])

    def forward(self, x):
        """Of a micro-batch."""
        for i, (layer, weights, gradients) in enumerate(zip(self.dense, self.weights, self.gradients)):
            x = layer(x, weights, Written(gradients))
            if i % 2:
                k = i // 2
                rows = self.experts[k](Dispatch.apply(x, self.brought[k]), self.counts[k],
                                       self.expert_weights[k], self.expert_gradients[k])
                x = Combine.apply(rows, x)
        return x

    def become(self, other):
        """The weights of another one."""
        for mine, its in zip((*self.weights, *self.expert_weights), (*other.weights, *other.expert_weights)):
            mine.copy_(its)

    def state(self):
        """All bytes that a step wrote."""
        torch.cuda.synchronize()
        return [tensor.detach().cpu().clone() for tensor in (
            *self.losses, *self.dxs, *self.weights, *self.expert_weights, *self.expert_gradients,
            *(layer.core.seen for layer in self.dense))]
