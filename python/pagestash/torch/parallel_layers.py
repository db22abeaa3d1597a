"""Modules of the parallel linear layers: weights of their own, or those of layers that are there."""
import copy
import functools
from typing import Callable, Optional

import torch
import torch.distributed as dist
from torch import nn

from .._checks import Error, is_a, shown, within
from . import leases
from .parallel import column_parallel_linear, group_of, row_parallel_linear

_MARKS = ("tensor_model_parallel", "partition_dim", "partition_stride", "sequence_parallel")
_OTHERS = {"gather_output": False, "skip_bias_add": False, "input_is_parallel": True}  # of Megatron-Core's layers


class _ParallelLinear(nn.Module):
    """What both have in common. split: the dimension of the weight that the ranks share."""

    split = 0

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *,
                 group: Optional[dist.ProcessGroup] = None, sequence_parallel: bool = False,
                 gradient_accumulation_fusion: bool = False,
                 init_method: Optional[Callable[[torch.Tensor], object]] = None,
                 scratch: Optional[leases.Scratch] = None, device=None,
                 dtype: Optional[torch.dtype] = None):
        super().__init__()
        most = (1 << 31) - 1
        self._set(within(in_features, "in_features", 1, most), within(out_features, "out_features", 1, most),
                  group, sequence_parallel, gradient_accumulation_fusion, scratch)
        if init_method is not None and not callable(init_method):
            raise Error(f"init_method {shown(init_method)}: a function of a tensor is wanted")
        shape = [out_features, in_features]
        shape[self.split] //= self.size
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.bias = None
        if bias:
            num = out_features if self.split else shape[0]
            self.bias = nn.Parameter(torch.empty(num, device=device, dtype=dtype))
        self.init_method = init_method
        self.reset_parameters()
        self._mark()

    def _set(self, in_features, out_features, group, sequence_parallel, fused, scratch):
        kind = type(self).__name__
        self.group, self.size = group_of(group, kind)
        self.rank = self.group.rank() if self.group is not None else 0
        self.in_features, self.out_features = in_features, out_features
        split = (out_features, in_features)[self.split]
        if split % self.size:
            name = ("out_features", "in_features")[self.split]
            raise Error(f"{kind}: {name} {split}: they are to be divided by {self.size} ranks")
        self.sequence_parallel, self.gradient_accumulation_fusion = bool(sequence_parallel), bool(fused)
        self.scratch = scratch if scratch is None else is_a(scratch, leases.Scratch, "scratch")

    def reset_parameters(self) -> None:
        """Draws the weight anew. Every rank draws all of it and takes its part: with the same random state on
        all, it is that of the undivided layer, whatever the number of ranks."""
        bias = self.bias is not None
        if self.init_method is None:
            whole = nn.Linear(self.in_features, self.out_features, bias, self.weight.device, self.weight.dtype)
        else:  # as Megatron-Core on the CPU
            whole = nn.Linear(self.in_features, self.out_features, bias, "meta", torch.float32)
            whole.to_empty(device=self.weight.device)
            with torch.no_grad():
                self.init_method(whole.weight)
                if bias:
                    whole.bias.zero_()
        self.load_whole(whole.weight, whole.bias)

    @torch.no_grad()
    def load_whole(self, weight: torch.Tensor, bias: Optional[torch.Tensor] = None) -> None:
        """Takes this rank's part of an undivided layer's weight and bias. Errors: shapes; bias where the layer
        has none, or the other way round."""
        kind, shape = type(self).__name__, (self.out_features, self.in_features)
        if is_a(weight, torch.Tensor, f"{kind}: weight").shape != shape:
            raise Error(f"{kind}: weight {tuple(weight.shape)}: {shape} is wanted")
        if (bias is None) != (self.bias is None):
            raise Error(f"{kind}: bias {shown(bias)}: the layer has {'no' if self.bias is None else 'a'} bias")
        self.weight.copy_(weight.chunk(self.size, self.split)[self.rank])
        if bias is not None:
            if is_a(bias, torch.Tensor, f"{kind}: bias").shape != shape[:1]:
                raise Error(f"{kind}: bias {tuple(bias.shape)}: {shape[:1]} is wanted")
            self.bias.copy_(bias if self.split else bias.chunk(self.size)[self.rank])

    def _mark(self):
        """For Megatron-Core: which parameters are parts, and which have gradients of parts of the sequence."""
        for parameter in (self.weight, None if self.split else self.bias):
            if parameter is not None:
                parameter.tensor_model_parallel, parameter.partition_stride = True, 1
                parameter.partition_dim = self.split
        if self.split and self.bias is not None:
            self.bias.sequence_parallel = self.sequence_parallel

    @classmethod
    def wrap(cls, layer: nn.Module, *, group: Optional[dist.ProcessGroup] = None,
             sequence_parallel: Optional[bool] = None, gradient_accumulation_fusion: Optional[bool] = None,
             scratch: Optional[leases.Scratch] = None, **options) -> "_ParallelLinear":
        """A layer with the parameters of another one: a torch.nn.Linear that has this rank's part, or one of
        Megatron-Core's layers of this name.

        group, sequence_parallel, gradient_accumulation_fusion: None: those of the layer, else the default
        group and False. Errors: it has no weight; it gathers its output, gives its bias back, or divides its
        input, which this one does not."""
        kind = cls.__name__
        weight = getattr(is_a(layer, nn.Module, f"{kind}.wrap"), "weight", None)
        if not isinstance(weight, nn.Parameter) or weight.dim() != 2:
            raise Error(f"{kind}.wrap: {type(layer).__name__}: it has no weight of two dimensions")
        for name, wanted in _OTHERS.items():
            if getattr(layer, name, wanted) != wanted:
                raise Error(f"{kind}.wrap: {type(layer).__name__} has {name}={getattr(layer, name)}: allowed is "
                            f"{wanted}")
        of = functools.partial(getattr, layer)
        self = cls.__new__(cls)
        nn.Module.__init__(self)
        group = of("tp_group", None) if group is None else group
        sizes = list(weight.shape)
        sizes[cls.split] *= group_of(group, kind)[1]
        self._set(sizes[1], sizes[0], group,
                  of("sequence_parallel", False) if sequence_parallel is None else sequence_parallel,
                  of("gradient_accumulation_fusion", False) if gradient_accumulation_fusion is None
                  else gradient_accumulation_fusion, scratch)
        self._options(**options)
        self.weight, self.bias, self.init_method = weight, of("bias", None), None
        return self

    def _options(self):
        """Those of one of the two alone."""

    def __deepcopy__(self, memo):
        """With weights of its own, and this group and scratch, which cannot be copied."""
        memo[id(self)] = out = type(self).__new__(type(self))
        memo[id(self.group)] = self.group
        out.__dict__.update(copy.deepcopy(self.__dict__, memo))
        for name, parameter in self._parameters.items():
            if parameter is not None:  # what says how it is split
                vars(out._parameters[name]).update(
                    (mark, value) for mark, value in vars(parameter).items() if mark in _MARKS)
        return out

    def extra_repr(self) -> str:
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}, ranks={self.size}, "
                f"sequence_parallel={self.sequence_parallel}")


class ColumnParallelLinear(_ParallelLinear):
    """y = x A' + b, of whose outputs each rank of the group computes its part.

    x: with sequence_parallel this rank's part, (s / ranks, ..., in_features), of the same shape on every rank;
        else everybody's, (s, ..., in_features). y: (s, ..., out_features / ranks).
    recompute: the gathered input is gathered again in the backward, beside the product of the input's
        gradient, and stands in scratch both times. False: it stays in memory until then.
    gradient_accumulation_fusion: the weight's gradient is added to weight.main_grad, float32 or of the
        weight's dtype, and weight.grad is left alone.
    init_method: fills an undivided weight, in float32; None: as torch.nn.Linear does, bias, too.
    group: of torch.distributed; None: the default one; where there is none, one rank alone.
    scratch: a pagestash.torch.Scratch, for ranks that are threads; None: the device's.
    Errors: Error: sizes that the ranks do not divide, shapes, dtypes, devices."""

    split = 0

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, recompute: bool = True,
                 **options):
        super().__init__(in_features, out_features, bias, **options)
        self._options(recompute)

    def _options(self, recompute=True):
        self.recompute = bool(recompute)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return column_parallel_linear(
            x, self.weight, self.bias, group=self.group, sequence_parallel=self.sequence_parallel,
            recompute=self.recompute, gradient_accumulation_fusion=self.gradient_accumulation_fusion,
            scratch=self.scratch)


class RowParallelLinear(_ParallelLinear):
    """y = x A' + b, of whose inputs each rank of the group has its part.

    x: (s, ..., in_features / ranks). y: with sequence_parallel this rank's part of the sum,
        (s / ranks, ..., out_features); else all of it. The bias is everybody's, and with sequence_parallel its
        gradient is of this rank's part: to be added up over the ranks, as Megatron-Core does.
    The other arguments, and errors, are those of ColumnParallelLinear; there is nothing to recompute."""

    split = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return row_parallel_linear(
            x, self.weight, self.bias, group=self.group, sequence_parallel=self.sequence_parallel,
            gradient_accumulation_fusion=self.gradient_accumulation_fusion, scratch=self.scratch)
