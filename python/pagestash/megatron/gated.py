"""Megatron-Core's gated activations of experts, computed by pagestash.torch.glu.

Its experts call them by a name of their module where torch computes them (bias_activation_fusion); where
Transformer Engine does, in the products' kernels, nothing is called, and nothing is changed."""
import importlib

import torch

from .._c import Error
from ..torch import glu

_MODULES = ("megatron.core.transformer.moe.experts", "megatron.core.transformer.mlp")
_NAMES = ("weighted_bias_swiglu_impl", "weighted_bias_quick_geglu_impl")
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_ALPHA = 1.702  # of Megatron-Core's quick_gelu
_installed = []


class Glu:
    """See pagestash.megatron.glu. num_calls: activations that were computed here."""

    def __init__(self, stash):
        if _installed:
            raise Error("pagestash.megatron.glu: it is there already; close() the one before")
        self.stash, self.num_calls = stash, 0
        self._before = []  # (module, name, what it was, what it is)
        for module in map(importlib.import_module, _MODULES):
            for name, make in zip(_NAMES, (self._swiglu, self._quick_geglu)):
                if not hasattr(module, name):
                    raise Error(f"pagestash.megatron.glu: {module.__name__} has no {name}: this "
                                "Megatron-Core is another than those tried")
                before = getattr(module, name)
                self._before.append((module, name, before, make(before)))
        for module, name, _, now in self._before:
            setattr(module, name, now)
        _installed.append(self)

    def close(self):
        """Puts Megatron-Core's own back."""
        for module, name, before, now in self._before:
            if getattr(module, name) is now:
                setattr(module, name, before)
        self._before = []
        if self in _installed:
            _installed.remove(self)

    def _swiglu(self, before):
        def weighted_bias_swiglu(input, bias, weights, fp8_input_store=False):
            if not _takes(input, bias, weights, fp8_input_store):
                return before(input, bias, weights, fp8_input_store)
            return self._compute(input, weights, kind="swiglu")
        return weighted_bias_swiglu

    def _quick_geglu(self, before):
        def weighted_bias_quick_geglu(input, bias, weights, fp8_input_store=False, linear_offset=0.0,
                                      clamp_value=None):
            if not _takes(input, bias, weights, fp8_input_store):
                return before(input, bias, weights, fp8_input_store, linear_offset, clamp_value)
            if clamp_value is None and linear_offset == 0:
                return self._compute(input, weights, kind="quick_geglu")
            limit = float("inf") if clamp_value is None else clamp_value
            return self._compute(input, weights, kind="clamped", limit=limit, alpha=_ALPHA,
                                 bias=linear_offset)
        return weighted_bias_quick_geglu

    def _compute(self, x, weights, **how):
        self.num_calls += 1
        rows = x.reshape(-1, x.shape[-1])
        y = glu(rows, stash=self.stash, probability=weights.reshape(-1), **how)
        return y.view(*x.shape[:-1], y.shape[-1])


def _takes(x, bias, weights, fp8_input_store):
    """Whether glu computes this; a bias, and an input that is kept in 8 bits, are Megatron-Core's own."""
    return bias is None and not fp8_input_store and x.dtype in _DTYPES and \
        weights.numel() * x.shape[-1] == x.numel()
