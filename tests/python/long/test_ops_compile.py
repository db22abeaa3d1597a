#!/usr/bin/env python3
"""torch.ops.pagestash.* under torch.compile(fullgraph=True) and export: the graphs are what was
written, restores stand in the backward, and gradients are eager torch's."""
import unittest

from common.needs import absent, main, needs

if not absent("torch"):
    import torch
    import torch.nn.functional as F
    from common import ops as helper
    from common.ops import CAPACITY, CompiledCase, LIVE, rows, taken
    helper.use_binary()
    from pagestash.torch import ops
    kernels = torch.ops.pagestash
else:
    CompiledCase = unittest.TestCase



if not absent("torch"):
    class Linear(torch.autograd.Function):
        """x @ w, whose x waits in pages."""

        @staticmethod
        def forward(ctx, x, w, counts, pool):
            token = kernels.stash([x], counts, pool, x.shape[0])
            ctx.save_for_backward(token, w)
            ctx.shape, ctx.pool = x.shape, pool
            return x @ w

        @staticmethod
        def backward(ctx, dy):
            token, w = ctx.saved_tensors
            x = dy.new_empty(ctx.shape)
            kernels.restore(token, [x], ctx.pool, after=dy)
            return dy @ w.t(), x.t() @ dy, None, None


def gradients(function, *tensors):
    """The result, and the gradients of a loss of its live rows."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    y = function(*leaves)
    torch.where(torch.arange(CAPACITY)[:, None] < LIVE, y, 0).square().sum().backward()
    return [y.detach()] + [leaf.grad for leaf in leaves]


@needs("torch")
class Compiled(CompiledCase):
    def compare(self, paged, plain, *tensors, backend="aot_eager"):
        """Has the bits of torch's own operators that were compiled, too: a compiler may write silu's backward
        in steps that round unlike the operator, as that of torch 2.9 does."""
        compiled = torch.compile(paged, backend=backend, fullgraph=True)
        own = torch.compile(plain, backend="aot_eager", fullgraph=True)
        for _ in range(2):
            for got, want, eager in zip(gradients(compiled, *tensors), gradients(own, *tensors),
                                        gradients(plain, *tensors)):
                self.assertTrue(torch.equal(got[:LIVE], want[:LIVE]))
                rtol, atol = (0.02, 0.05) if got.dtype == torch.bfloat16 else (1e-5, 1e-5)
                torch.testing.assert_close(got[:LIVE], eager[:LIVE], rtol=rtol, atol=atol)

    def test_autograd_function_restores_in_the_backward_graph(self):
        from torch._dynamo.backends.common import aot_autograd
        from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
        graphs = []

        def keep(graph, _):
            graphs.append([str(node.target) + str(node.args) for node in graph.graph.nodes])
            return make_boxed_func(graph.forward)

        backend = aot_autograd(fw_compiler=keep, bw_compiler=keep,
                               partition_fn=min_cut_rematerialization_partition)
        self.compare(lambda x, w: Linear.apply(x.sin(), w, self.counts, self.handle),
                     lambda x, w: x.sin() @ w, rows(CAPACITY, 8), rows(8, 4), backend=backend)
        forward, backward = ["\n".join(graph) for graph in graphs]
        self.assertIn("pagestash.stash", forward)
        self.assertNotIn("pagestash.restore", forward)
        self.assertIn("pagestash.restore", backward)
        self.assertNotIn("sin(", backward)  # what waits in pages is not computed again

    def test_swiglu(self):
        def plain(x):
            gate, up = x.chunk(2, -1)
            return F.silu(gate) * up

        for dtype in (torch.float32, torch.bfloat16):
            # Twice the same: compilers merge what looks alike, and each token is restored once.
            self.compare(lambda x: kernels.swiglu(x, self.counts, self.handle) * 2 +
                         kernels.swiglu(x, self.counts, self.handle),
                         lambda x: plain(x) * 2 + plain(x), rows(CAPACITY, 32, dtype=dtype))

    def test_capacities_are_dynamic(self):
        seen = []

        def backend(graph, _):
            seen.append(graph)
            return graph.forward

        compiled = torch.compile(lambda x: kernels.swiglu(x * 2, self.counts, self.handle),
                                 backend=backend, fullgraph=True, dynamic=True)
        for capacity in (64, 48, 32):
            compiled(rows(capacity, 8).requires_grad_()).sum().backward()
        self.assertEqual(len(seen), 1)

    def test_functions_of_the_module(self):
        def paged(x):
            token = ops.stash([x], self.counts, self.handle, capacity=CAPACITY)
            y = torch.empty_like(x)
            ops.restore(token, [y], self.handle)
            return y

        x = rows(CAPACITY, 8)
        got = torch.compile(paged, backend="aot_eager", fullgraph=True)(x)
        self.assertTrue(torch.equal(got[:LIVE], x[:LIVE]))
        self.assertEqual(got[LIVE:].abs().sum(), 0)

    def test_an_unused_stash_is_left_out(self):
        def paged(x):
            kernels.stash([x], self.counts, self.handle, CAPACITY)
            return x + 1

        torch.compile(paged, backend="aot_eager", fullgraph=True)(rows(CAPACITY, 8))
        self.assertEqual(taken(self.pool), 0)


@needs("torch")
class Exported(CompiledCase):
    def test_export(self):
        handle = self.handle

        class Module(torch.nn.Module):
            def forward(self, x, counts):
                token = kernels.stash([x], counts, handle, x.shape[0])
                y = torch.empty_like(x)
                kernels.restore(token, [y], handle)
                return y, kernels.swiglu(x, counts, handle)

        x = rows(CAPACITY, 8)
        program = torch.export.export(Module(), (x, self.counts))
        names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
        self.assertEqual([name for name in names if name.startswith("pagestash.")],
                         ["pagestash.stash.default", "pagestash.restore.default",
                          "pagestash.swiglu.default"])
        for module in (program.module(), program.run_decompositions().module()):
            restored, activated = module(x, self.counts)
            self.assertTrue(torch.equal(restored[:LIVE], x[:LIVE]))
            self.assertTrue(torch.equal(activated, F.silu(x[:, :4]) * x[:, 4:]))


if __name__ == "__main__":
    main()
