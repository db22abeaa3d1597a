"""Layers that save what a test gives them, through the calls that Megatron-Core's experts make."""
import types

import torch
from megatron.core.transformer.moe import paged_stash


class SaveFn(torch.autograd.Function):
    """Saves tensors; its backward says whether their live rows came back, and what stood behind."""

    @staticmethod
    def forward(ctx, x, tensors, seen):
        ctx.wants = [tensor.clone() for tensor in tensors]
        ctx.save_for_backward(*tensors)
        ctx.seen = seen
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        ctx.seen.append([(got, want) for got, want in zip(ctx.saved_tensors, ctx.wants)])
        return grad, None, None


def config(cuda=1.1, cpu=0.0):
    """What paged_stash_reset reads."""
    return types.SimpleNamespace(moe_paged_stash_page_size=64,
                                 moe_paged_stash_buffer_size_factor_cuda=cuda,
                                 moe_paged_stash_buffer_size_factor_cpu=cpu)


def rows(num, width, dtype=torch.bfloat16, scales=False, tag=True):
    """A tensor of random bytes, tagged as Transformer Engine tags what its experts save. On the
    tape, so that it is no leaf, as an activation is not."""
    size = num * width * torch.empty(0, dtype=dtype).element_size()
    out = torch.randint(1, 120, (size,), dtype=torch.uint8).view(dtype).view(num, width)
    if dtype.is_floating_point and out.element_size() > 1:
        out = out.requires_grad_() * 1
    if tag:
        out.grouped_tensor_scale_inv = scales
    return out


class Model:
    """`layers` of experts with buffers of `capacity` rows.

    make(layer): what it saves, by default a bf16 and an fp32 tensor and one of scales. seen: of
    each backward the list of (restored, wanted)."""

    def __init__(self, layers=3, capacity=256, average=128, make=None, device="cpu"):
        self.layers, self.capacity, self.average = layers, capacity, average
        self.device = device
        self.make, self.seen = make or self._tensors, []

    def _tensors(self, layer):
        return [rows(self.capacity, 64), rows(self.capacity, 1, torch.float32),
                rows(self.capacity // 32, 16, torch.uint8, scales=True)]

    def forward(self, live, broken_at=None):
        """One micro-batch; live: rows of each layer, or one number for all."""
        paged_stash.paged_stash_init_chunk_handler(1, 0)
        x = torch.zeros(4, device=self.device, requires_grad=True)
        for layer in range(self.layers):
            if layer == broken_at:
                raise ValueError("broken")
            x = paged_stash.paged_stash_group_start(x)
            num = live[layer] if isinstance(live, (list, tuple)) else live
            with paged_stash.get_paged_stash_context(
                    name="experts", max_num_tokens=self.capacity,
                    num_tokens_tensor=num if isinstance(num, torch.Tensor) else torch.tensor(num),
                    avg_num_tokens=self.average):
                x = SaveFn.apply(x, self.make(layer), self.seen)
            x = paged_stash.paged_stash_group_commit(x)
        return x.sum()

    def step(self, live, micro_batches=2, settings=None, **kwargs):
        """Forwards, then backwards, of all micro-batches. The (restored, wanted) of the step."""
        self.seen.clear()
        paged_stash.paged_stash_reset(True, settings or config())
        losses = [self.forward(live, **kwargs) for _ in range(micro_batches)]
        for loss in reversed(losses):
            loss.backward()
        return list(self.seen)

    def evaluate(self, live, micro_batches=1):
        """Forward only."""
        paged_stash.paged_stash_reset(False, config())
        with torch.no_grad():
            return [self.forward(live) for _ in range(micro_batches)]


def as_bytes(tensor, num_rows):
    """Of the first rows."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8).view(
        tensor.shape[0], -1)[:num_rows]


def wrong(seen, live, capacity=256):
    """How many tensors did not come back exactly, zeros behind their live rows, or whole."""
    bad = 0
    for tensors in seen:
        for got, want in tensors:
            num = -(-live * want.shape[0] // capacity)
            exact = torch.equal(as_bytes(got, num), as_bytes(want, num))
            tail = as_bytes(got, None)[num:]
            bad += not (exact and (not tail.any()
                                   or torch.equal(tail, as_bytes(want, None)[num:])))
    return bad
