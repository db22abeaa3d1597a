"""Megatron-Core's experts with pagestash.torch.glu for their activation: near Megatron-Core's own, in pages
as in memory, and Megatron-Core's own where glu does not compute it."""
import os
import sys
import types
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # Megatron-Core compiles its activations, which takes long

from common.needs import absent, main, needs  # noqa: E402

if not absent("megatron"):
    import torch
    import pagestash.megatron
    from common.ops import rows
    from common.stashes import StashTest, stash_of
    from megatron.core.fusions.fused_bias_geglu import quick_gelu
    from megatron.core.transformer import mlp
    from megatron.core.transformer.moe import experts

    class Linear(torch.nn.Module):
        """A product as the experts have it; each expert has the same weight."""

        def __init__(self, weight):
            super().__init__()
            self.weight = [weight]

        def forward(self, x, *_):
            return x @ self.weight[0], None
else:
    StashTest = unittest.TestCase

TOKENS, HIDDEN, FFN = 40, 16, 24


def config(**fields):
    """What the experts read of a TransformerConfig."""
    return types.SimpleNamespace(**{
        "use_te_activation_func": False, "bias_activation_fusion": True, "gated_linear_unit": True,
        "activation_func": torch.nn.functional.silu, "activation_func_fp8_input_store": False,
        "glu_linear_offset": 0.0, "activation_func_clamp_value": None, "moe_mlp_glu_interleave_size": None,
        "fp8": None, "fp4": None, "moe_apply_probs_on_input": False, "delay_offload_until_cuda_graph": False,
        "moe_router_padding_for_quantization": False, "moe_router_padding_for_fp8": False,
        "moe_token_dispatcher_type": "alltoall", **fields})


def grouped(settings, x, probs, w1, w2):
    """TEGroupedMLP.forward, of products that are torch's."""
    self = types.SimpleNamespace(
        config=settings, activation_func=settings.activation_func, _with_fused_impl=False,
        linear_fc1=Linear(w1), linear_fc2=Linear(w2), offload_expert_fc1=False, offload_moe_act=False,
        activation_recompute=False, _apply_bias=experts.TEGroupedMLP._apply_bias)
    return experts.TEGroupedMLP.forward(self, x, torch.tensor([30, 0, 10]), probs)[0]


def sequential(settings, x, probs, w1, w2):
    """MLP.forward, as SequentialMLP calls it for an expert."""
    self = types.SimpleNamespace(config=settings, activation_func=settings.activation_func,
                                 linear_fc1=Linear(w1), linear_fc2=Linear(w2))
    return mlp.MLP.forward(self, x, per_token_scale=probs)[0]


@needs("megatron")
class Glu(StashTest):
    CONFIGS = {"swiglu": {}, "quick": {"activation_func": "quick"},
               "gpt-oss": {"activation_func": "quick", "glu_linear_offset": 1.0,
                           "activation_func_clamp_value": 0.71},
               "offset": {"activation_func": "quick", "glu_linear_offset": 0.5}}

    def gradients(self, run, name, **fields):
        """The experts' output, and the gradients of what they are given."""
        fields = {**self.CONFIGS[name], **fields}
        if fields.get("activation_func") == "quick":
            fields["activation_func"] = quick_gelu
        given = (rows(TOKENS, HIDDEN), rows(TOKENS, seed=1), rows(HIDDEN, 2 * FFN, seed=2),
                 rows(FFN, HIDDEN, seed=3))
        leaves = [tensor.requires_grad_() for tensor in given]
        y = run(config(**fields), *leaves)
        y.backward(rows(*y.shape, seed=4))
        return [y.detach()] + [leaf.grad for leaf in leaves]

    def test_is_near_megatron_s_own(self):
        for run in (grouped, sequential):
            for name in self.CONFIGS:
                with self.subTest(run=run.__name__, config=name):
                    want = self.gradients(run, name)
                    installed = pagestash.megatron.glu()
                    try:
                        got = self.gradients(run, name)
                    finally:
                        installed.close()
                    self.assertEqual(installed.num_calls, 1)
                    for mine, theirs in zip(got, want, strict=True):
                        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
                    self.same(self.gradients(run, name), want)  # Megatron-Core's own is back
                    self.assertEqual(installed.num_calls, 1)

    def test_pages_change_no_bit(self):
        with stash_of() as stash:
            for run in (grouped, sequential):
                results = []
                for where in (None, stash):
                    installed = pagestash.megatron.glu(where)
                    try:
                        results.append(self.gradients(run, "gpt-oss"))
                    finally:
                        installed.close()
                self.same(*results)
            stash.step()
            self.assertGreater(stash.status().high_water[0], 0)
            self.nothing_lost(stash)

    def test_what_stays_megatron_s(self):
        installed = pagestash.megatron.glu()
        try:
            self.gradients(grouped, "swiglu", bias_activation_fusion=False)
            x, weights = rows(4, 8), rows(4, 1)
            experts.weighted_bias_swiglu_impl(x, None, weights, True)  # kept in 8 bits
            with self.assertRaisesRegex(NotImplementedError, "Bias"):
                experts.weighted_bias_swiglu_impl(x, rows(8), weights)
            self.assertEqual(installed.num_calls, 0)
            with self.assertRaisesRegex(pagestash.Error, "is there already"):
                pagestash.megatron.glu()
        finally:
            installed.close()


if __name__ == "__main__":
    main()
