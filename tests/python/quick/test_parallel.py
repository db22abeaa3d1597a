"""Parallel linear layers of one rank: what they are without a group, and what they refuse. Ranks are in
long/test_parallel.py."""
import unittest

import torch
from torch.nn import functional

import pagestash.torch
from pagestash.torch import (ColumnParallelLinear, RowParallelLinear, Scratch, column_parallel_linear,
                             row_parallel_linear)

BOTH = (column_parallel_linear, row_parallel_linear)


class OneRank(unittest.TestCase):
    def refuses(self, text):
        return self.assertRaisesRegex(pagestash.Error, text)

    def test_is_torchs_linear(self):
        torch.manual_seed(1)
        for call in BOTH:
            for shape in ((5, 8), (4, 3, 8), (0, 8)):
                for has_bias in (False, True):
                    tensors = [torch.randn(shape, requires_grad=True), torch.randn(6, 8, requires_grad=True)]
                    tensors += [torch.randn(6, requires_grad=True)] if has_bias else []
                    dy = torch.randn(*shape[:-1], 6)
                    want = functional.linear(*tensors)
                    got = call(*tensors, sequence_parallel=True)
                    self.assertTrue(torch.allclose(got, want, atol=1e-6))
                    for a, b in zip(torch.autograd.grad(got, tensors, dy), torch.autograd.grad(want, tensors, dy)):
                        self.assertTrue(torch.allclose(a, b, atol=1e-5))

    def test_gradients_as_wanted(self):
        """No gradient is computed that nobody wants; inputs may lie anywhere."""
        x, weight = torch.randn(8, 5).t(), torch.randn(6, 8)
        for call in BOTH:
            self.assertFalse(call(x, weight).requires_grad)
            weight.requires_grad_()
            y = call(x, weight)
            y.backward(torch.ones(6, 5).t())
            self.assertEqual(weight.grad.shape, (6, 8))
            weight.grad = None
            with torch.no_grad():
                self.assertFalse(call(x, weight).requires_grad)
            with torch.inference_mode():
                self.assertEqual(call(x, weight).shape, (5, 6))
            weight.requires_grad_(False)

    def test_fused_accumulation(self):
        for dtype, atol in ((torch.float32, 1e-5), (torch.bfloat16, 0.1)):
            for call in BOTH:
                x, weight = torch.randn(5, 8, dtype=dtype), torch.randn(6, 8, dtype=dtype, requires_grad=True)
                weight.main_grad = torch.ones(6, 8, dtype=torch.float32)
                call(x, weight, gradient_accumulation_fusion=True).sum().backward()
                self.assertIsNone(weight.grad)
                want = torch.ones(6, 5) @ x.float() + 1
                self.assertTrue(torch.allclose(weight.main_grad, want, atol=atol))
                weight.grad_added_to_main_grad = False
                call(x, weight, gradient_accumulation_fusion=True).sum().backward()
                self.assertTrue(weight.grad_added_to_main_grad)
                self.assertEqual(weight.grad.shape, weight.shape)

    def test_under_autocast(self):
        x, weight = torch.randn(5, 8, requires_grad=True), torch.randn(6, 8, requires_grad=True)
        for call in BOTH:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = call(x, weight, torch.zeros(6))
            self.assertEqual(y.dtype, torch.bfloat16)
            y.float().sum().backward()
            self.assertEqual((x.grad.dtype, weight.grad.dtype), (torch.float32, torch.float32))

    def test_modules(self):
        torch.manual_seed(3)
        plain = torch.nn.Linear(8, 6)
        for kind in (ColumnParallelLinear, RowParallelLinear):
            torch.manual_seed(3)
            layer = kind(8, 6)
            self.assertTrue(torch.equal(layer.weight, plain.weight) and torch.equal(layer.bias, plain.bias))
            wrapped = kind.wrap(plain)
            self.assertIs(wrapped.weight, plain.weight)
            x = torch.randn(2, 8)
            self.assertTrue(torch.equal(wrapped(x), layer(x)))
            self.assertIn("in_features=8, out_features=6, bias=True, ranks=1", repr(layer))
            self.assertEqual(sorted(layer.state_dict()), ["bias", "weight"])
            with self.refuses(r"weight \(6, 7\): \(6, 8\) is wanted"):
                layer.load_whole(torch.zeros(6, 7), torch.zeros(6))
            with self.refuses("the layer has a bias"):
                layer.load_whole(torch.zeros(6, 8))
            with self.refuses("in_features 0"):
                kind(0, 6)
            with self.refuses("a function of a tensor"):
                kind(8, 6, init_method=3)
            plain.gather_output = True
            with self.refuses("has gather_output=True: allowed is False"):
                kind.wrap(plain)
            del plain.gather_output
            with self.refuses("it has no weight of two dimensions"):
                kind.wrap(torch.nn.LayerNorm(8))

    def test_what_is_refused(self):
        x, weight = torch.randn(5, 8), torch.randn(6, 8)
        other = Scratch("cpu")
        other.torch_device = torch.device("cuda", 1)  # as one of a GPU
        for call in BOTH:
            for arguments, options, text in (
                    ((x[:, :7], weight), {}, r"input \(5, 7\), weight \(6, 8\)"),
                    ((x[0], weight), {}, r"input \(8,\)"),
                    ((x, weight[0]), {}, r"weight \(8,\)"),
                    ((x, weight, torch.zeros(5)), {}, r"bias \(5,\): \(6,\) is wanted"),
                    ((x.double(), weight), {}, "input is torch.float64, and weight torch.float32"),
                    ((x.to("meta"), weight), {}, "input is on meta, and weight on cpu"),
                    ((3, weight), {}, "input: int"),
                    ((x, weight.clone().requires_grad_()), {"gradient_accumulation_fusion": True}, "main_grad"),
                    ((x, weight), {"group": 3}, "group: int"),
                    ((x, weight), {"scratch": other}, "ParallelLinear: input is on cpu, and scratch on cuda:1"),
                    ((x, weight), {"scratch": 3}, "scratch: int")):
                with self.refuses(text):
                    call(*arguments, **options)
        other.close()

    def test_derivatives_that_there_are_not(self):
        x, weight = torch.randn(5, 8, requires_grad=True), torch.randn(6, 8, requires_grad=True)
        for call in BOTH:
            first, = torch.autograd.grad(call(x, weight).square().sum(), x, create_graph=True)
            with self.assertRaisesRegex(RuntimeError, "a parallel linear layer has no second derivative"):
                first.sum().backward()
            with torch.autograd.forward_ad.dual_level(), self.refuses("no forward-mode derivative"):
                call(torch.autograd.forward_ad.make_dual(x.detach(), x.detach()), weight)


if __name__ == "__main__":
    unittest.main()
