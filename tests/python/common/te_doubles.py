"""Doubles of Transformer Engine, which runs on NVIDIA GPUs only: what pagestash.te meets of it.

Names, attributes, signatures, shapes and orders are those of commit
d0067d0da6cb01811b8072a7d304f0e00344ce2b (main, 22 August 2026):
  pytorch/utils.py                                mark_grouped_tensor
  pytorch/cpu_offload.py                          mark_not_offload, start_offload
  pytorch/quantized_tensor.py                     prepare_for_saving, restore_from_saved, detach, make_like
  pytorch/tensor/storage/mxfp8_tensor_storage.py  MXFP8TensorStorage; MXFP8Tensor beside it
  pytorch/tensor/storage/grouped_tensor_storage.py, tensor/grouped_tensor.py
  pytorch/ops/fused/grouped_mlp.py                what GroupedMLP saves, in its order
The bodies are ours. Quantisation is a power of two for 32 rows of a column, and signed bytes: like MXFP8
in its shapes, not in its numbers."""
import torch

BLOCK = 32


def mark_grouped_tensor(*tensors):
    for tensor in tensors:
        if tensor is None:
            continue
        if hasattr(tensor, "columnwise_data"):
            assert tensor.columnwise_data is not None and tensor.columnwise_scale_inv is not None
            tensor.columnwise_data.grouped_tensor_scale_inv = False
            tensor.columnwise_scale_inv.grouped_tensor_scale_inv = True
        else:
            tensor.grouped_tensor_scale_inv = False


def mark_not_offload(*tensors):
    plain, shells = prepare_for_saving(*tensors)
    for tensor in plain:
        if tensor is not None:
            tensor._TE_do_not_offload = True
    restore_from_saved(shells, plain)


def start_offload(*tensors, offload_base_tensor=False):
    plain, shells = prepare_for_saving(*tensors)
    for tensor in plain:
        if tensor is not None and offload_base_tensor and tensor._base is not None:
            tensor.offload_base_tensor = True
    restore_from_saved(shells, plain)


def prepare_for_saving(*tensors):
    plain, shells = [], []
    for tensor in tensors:
        if tensor is None or isinstance(tensor, torch.Tensor):
            plain.append(tensor)
            shells.append(None)
        else:
            parts, shell = tensor.prepare_for_saving()
            plain.extend(parts)
            shells.append(shell)
    return plain, shells


def restore_from_saved(tensors, saved_tensors):
    saved, out = list(saved_tensors), []
    for tensor in tensors:
        if tensor is None or isinstance(tensor, torch.Tensor):
            out.append(saved.pop(0))
        else:
            saved = tensor.restore_from_saved(saved)
            out.append(tensor)
    return out


def _wrapper(cls, shape, dtype, requires_grad=False):
    return torch.Tensor._make_wrapper_subclass(cls, tuple(shape), dtype=dtype,
                                               requires_grad=requires_grad)


class _Parts:
    """An object of several tensors, which it can hand out and take back."""
    _FIELDS = ()

    def prepare_for_saving(self):
        tensors = [getattr(self, name) for name in self._FIELDS]
        for name in self._FIELDS:
            setattr(self, name, None)
        return tensors, self

    def restore_from_saved(self, tensors):
        for name, tensor in zip(self._FIELDS, tensors):
            setattr(self, name, tensor)
        return tensors[len(self._FIELDS):]

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return args[0]._like()
        raise NotImplementedError(f"{cls.__name__} double: {func}")


class MXFP8TensorStorage(_Parts):
    _FIELDS = ("_rowwise_data", "_columnwise_data", "_rowwise_scale_inv", "_columnwise_scale_inv")

    def __new__(cls, rowwise_data, rowwise_scale_inv, columnwise_data, columnwise_scale_inv, fp8_dtype,
                quantizer, with_gemm_swizzled_scales, *, fake_dtype=torch.float32, shape=None,
                requires_grad=False):
        if cls is MXFP8TensorStorage:
            self = object.__new__(cls)
        else:
            self = _wrapper(cls, shape, fake_dtype, requires_grad)
        self._rowwise_data, self._rowwise_scale_inv = rowwise_data, rowwise_scale_inv
        self._columnwise_data, self._columnwise_scale_inv = columnwise_data, columnwise_scale_inv
        self._fp8_dtype, self._quantizer = fp8_dtype, quantizer
        self._with_gemm_swizzled_scales = with_gemm_swizzled_scales
        return self

    def __init__(self, *_, **__):
        pass


class MXFP8Tensor(MXFP8TensorStorage, torch.Tensor):
    def _like(self):
        return MXFP8Tensor(self._rowwise_data, self._rowwise_scale_inv, self._columnwise_data,
                           self._columnwise_scale_inv, self._fp8_dtype, self._quantizer,
                           self._with_gemm_swizzled_scales, fake_dtype=self.dtype, shape=self.shape)

    def detach(self):
        return self._like()


class GroupedTensorStorage(_Parts):
    _FIELDS = ("rowwise_data", "columnwise_data", "scale_inv", "columnwise_scale_inv", "amax",
               "columnwise_amax", "scale", "first_dims", "last_dims", "tensor_offsets")

    def __new__(cls, shape, dtype, *, num_tensors, quantizer=None, with_gemm_swizzled_scales=False,
                **parts):
        if cls is GroupedTensorStorage:
            self = object.__new__(cls)
        else:
            self = _wrapper(cls, shape, dtype)
        self.logical_shape, self.fake_dtype, self.num_tensors = tuple(shape), dtype, num_tensors
        self.quantizer, self._with_gemm_swizzled_scales = quantizer, with_gemm_swizzled_scales
        for name in self._FIELDS:
            setattr(self, name, parts.get(name))
        return self

    def __init__(self, *_, **__):
        pass


class GroupedTensor(GroupedTensorStorage, torch.Tensor):
    def _like(self):
        return GroupedTensor(self.logical_shape, self.dtype, num_tensors=self.num_tensors,
                             quantizer=self.quantizer,
                             with_gemm_swizzled_scales=self._with_gemm_swizzled_scales,
                             **{name: getattr(self, name) for name in self._FIELDS})


def _up(value, multiple):
    return -(-value // multiple) * multiple


def quantise_columnwise(x, padded=True):
    """uint8 data [rows, columns] and uint8 scales, one for 32 rows, [ceil(rows / 32), columns], padded to
    multiples of [4, 128] with bytes that nobody may read."""
    rows, columns = x.shape
    blocks = torch.nn.functional.pad(x.float(), (0, 0, 0, -rows % BLOCK)).view(-1, BLOCK, columns)
    exponents = torch.frexp(blocks.abs().amax(1).clamp_min(2.0 ** -40)).exponent
    data = torch.round(torch.ldexp(blocks, (6 - exponents)[:, None])).view(-1, columns)[:rows]
    scales = (exponents + 127).to(torch.uint8)
    if padded:
        scales = torch.nn.functional.pad(
            scales, (0, _up(columns, 128) - columns, 0, _up(len(scales), 4) - len(scales)), value=0xAA)
    return (data.to(torch.int16) + 128).to(torch.uint8), scales


def dequantise_columnwise(data, scales):
    """float32 [rows, columns]."""
    rows, columns = data.shape
    exponents = scales[:-(-rows // BLOCK), :columns].to(torch.int32) - 127
    return torch.ldexp(data.float() - 128, exponents.repeat_interleave(BLOCK, 0)[:rows] - 6)


def grouped(x, split_sizes, cls=GroupedTensorStorage):
    """As the fused op has it: flat columnwise data and scales of rows whose groups follow one another."""
    data, scales = quantise_columnwise(x, padded=False)
    offsets = torch.cat((split_sizes.new_zeros(1), split_sizes.cumsum(0))) * x.shape[1]
    return cls(x.shape, x.dtype, num_tensors=split_sizes.numel(), columnwise_data=data.reshape(-1),
               columnwise_scale_inv=scales.reshape(-1), first_dims=split_sizes, tensor_offsets=offsets,
               with_gemm_swizzled_scales=True)


class GroupedMLP(torch.autograd.Function):
    """Two linear layers by experts with a squared ReLU and a factor for each row between them, which keeps
    what the fused op keeps: its input and the activation's output quantised, the activation's input and
    the factors as they are. Rows behind the live ones are neither read nor written.

    forward(x [rows, hidden], scales [rows], split_sizes [experts], w1 [experts, hidden, ffn],
            w2 [experts, ffn, hidden], cls of the quantised tensors, mark) -> [rows, hidden]"""

    @staticmethod
    def forward(ctx, x, scales, split_sizes, w1, w2, cls, mark):
        groups = _groups(split_sizes)
        activation_in = x.new_full((len(x), w1.shape[2]), float("nan"))
        for rows, one in zip(groups, w1):
            activation_in[rows] = x[rows] @ one
        hidden = activation_in.relu().square() * scales[:, None]
        out = x.new_full(x.shape, float("nan"))
        for rows, one in zip(groups, w2):
            out[rows] = hidden[rows] @ one
        saved_x, grouped_fc2_x = (grouped(_finite(t, split_sizes), split_sizes, cls) for t in (x, hidden))
        scales = scales.detach().clone()
        mark(saved_x, activation_in, scales, grouped_fc2_x)
        plain, ctx.shells = prepare_for_saving(split_sizes, saved_x, w1, activation_in, scales,
                                               grouped_fc2_x, w2)
        ctx.save_for_backward(*plain)
        return out

    @staticmethod
    def backward(ctx, grad):
        split_sizes, saved_x, w1, activation_in, scales, grouped_fc2_x, w2 = restore_from_saved(
            ctx.shells, ctx.saved_tensors)
        x, hidden = (dequantise_columnwise(
            t.columnwise_data.view(t.logical_shape),
            t.columnwise_scale_inv.view(-1, t.logical_shape[1])) for t in (saved_x, grouped_fc2_x))
        grad_x, grad_scales = torch.zeros_like(grad), torch.zeros_like(scales)
        grads = torch.zeros_like(w1), torch.zeros_like(w2)
        for e, rows in enumerate(_groups(split_sizes)):
            grads[1][e] = hidden[rows].to(w2.dtype).t() @ grad[rows]
            grad_hidden = grad[rows] @ w2[e].t()
            relu = activation_in[rows].relu()
            grad_scales[rows] = (grad_hidden * relu.square()).sum(1)
            grad_in = grad_hidden * scales[rows, None] * 2 * relu
            grads[0][e] = x[rows].to(w1.dtype).t() @ grad_in
            grad_x[rows] = grad_in @ w1[e].t()
        return grad_x, grad_scales, None, *grads, None, None


def _groups(split_sizes):
    ends = split_sizes.cumsum(0).tolist()
    return [slice(begin, end) for begin, end in zip([0] + ends, ends)]


def _finite(x, split_sizes):
    live = int(split_sizes.sum())
    return torch.cat((x[:live].detach(), torch.zeros_like(x[live:])))
