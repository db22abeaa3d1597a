"""memo.run where a step is not as the one before: other shapes, evaluation, exceptions, graphs that are
dropped, frozen and shared layers, other numbers of micro-batches, pipelines."""
import copy
import os
import pickle
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
from common import gpt
from common.edges import setUpModule, tearDownModule  # noqa: F401 pylint: disable=unused-import
from pagestash import Error, memo
from pagestash.schedule import Schedule

torch.set_num_threads(1)
TOKENS, CUT = 48, 16
OTHER = "hidden states of shape (1, 20, 16), torch.float32"


class Case(unittest.TestCase):
    def model(self, layers=3, fraction="1/2", swaps=None, seed=0, **fields):
        """(model, its run). swaps: which of its layers are given."""
        torch.manual_seed(seed)
        model = gpt.GPT(layers, hidden=16, heads=2)
        given = [model.layers[i] for i in swaps] if swaps else model.layers
        run = memo.run(given, fraction=fraction, cut=CUT, block_tokens=16, **fields)
        self.addCleanup(self.end, run)
        return model, run

    def end(self, run):
        run.abort()
        if run.scheduler is not None:
            self.assertEqual(run.scheduler._owned.held, {})
        run.close()

    @staticmethod
    def loss(model, seed=0, tokens=TOKENS):
        return gpt.loss_of(model, gpt.words_of(seed, 1, tokens))

    def same(self, script, **fields):
        """The gradients after script(model, run) are those without swapping; the deviations."""
        out = []
        for fraction in (None, fields.pop("fraction", "1/2")):
            model, run = self.model(fraction=fraction, **fields)
            script(model, run)
            out.append([p.grad for p in model.parameters()])
        for a, b in zip(*out):
            self.assertTrue(a is b or torch.equal(a, b))
        deviations = dict(run.deviations)
        self.good(model, run)
        return deviations

    def good(self, model, run):
        """A step of it has the gradients of one in which nothing is swapped."""
        model.requires_grad_()
        wanted, plain = self.model(len(model.layers), fraction=None)
        wanted.load_state_dict(model.state_dict())
        model.zero_grad(), wanted.zero_grad()
        run.begin(1)
        self.loss(model, 7).backward()
        run.step()
        self.loss(wanted, 7).backward()
        plain.step()
        for a, b in zip(model.parameters(), wanted.parameters()):
            self.assertTrue(torch.equal(a.grad, b.grad))


class Deviations(Case):
    def test_another_sequence_length(self):
        def script(model, run):
            for tokens in (TOKENS, 20, TOKENS):
                self.loss(model, 0, tokens).backward()
                run.step()
        self.assertEqual(self.same(script), {OTHER: 3})

    def test_another_sequence_length_within_a_step(self):
        def script(model, run):
            for m, tokens in enumerate((TOKENS, 20, TOKENS)):
                self.loss(model, m, tokens).backward()
            run.step()
        self.assertEqual(self.same(script, micro_batches=3)[OTHER], 3)

    def test_evaluation_is_not_seen(self):
        def script(model, run):
            evaluated = []
            handle = model.layers[1].register_forward_hook(lambda *_: evaluated.append(self.look(model)))
            self.loss(model).backward()
            handle.remove()
            run.step()
            with torch.no_grad():
                evaluated.append(self.loss(model))
            self.assertEqual(len(set(map(float, evaluated))), 1)
        self.assertEqual(self.same(script), {})

    def look(self, model):
        """An evaluation, in the middle of a forward."""
        hooks, model.layers[1]._forward_hooks = model.layers[1]._forward_hooks, {}
        with torch.no_grad():
            loss = self.loss(model)
        model.layers[1]._forward_hooks = hooks
        return loss

    def test_evaluation_with_gradients(self):
        def script(model, run):
            loss = self.loss(model)
            model.eval()
            seen = []
            with torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(t), t)[1], lambda t: t):
                self.loss(model, 1).backward()
            self.assertGreater(len(seen), 3 * len(model.layers))  # hooks around layers have what these keep
            model.train()
            loss.backward()
            run.step()
        self.assertEqual(self.same(script), {"a call in evaluation, with gradients": 3})

    def test_layers_without_gradients(self):
        for frozen in ((0,), (0, 1), (1,), (0, 1, 2)):
            def script(model, run, frozen=frozen):
                for module in (model.embedding, *(model.layers[i] for i in frozen)):
                    module.requires_grad_(False)
                for step in range(2):
                    self.loss(model, step).backward()
                    run.step()
                    model.layers[0].requires_grad_(False)
            with self.subTest(frozen=frozen):  # the first ones have no backward, and so no visits
                self.assertEqual(self.same(script), {"a layer without gradients": 1} if frozen == (1,) else {})

    def test_a_layer_that_stops_to_want_gradients(self):
        def script(model, run):
            self.loss(model).backward()
            run.step()
            model.embedding.requires_grad_(False)
            model.layers[0].requires_grad_(False)
            self.loss(model, 1).backward()
            run.step()
        self.assertEqual(self.same(script), {"a layer without gradients": 1})


class Broken(Case):
    """A step that does not end; the next one is good."""

    def setUp(self):
        self.net, self.run_ = self.model()

    def tearDown(self):
        self.good(self.net, self.run_)

    def test_exception_in_a_layer(self):
        """While layers are measured, and later."""
        for _ in range(2):
            handle = self.net.layers[1].norm2.register_forward_hook(raises)
            try:
                self.loss(self.net)
            except ValueError as error:
                kept = error  # and so the graph
            handle.remove()
            self.good(self.net, self.run_)
            self.assertEqual((kept.args, self.run_.deviations), (("mine",), {}))

    def test_exception_behind_the_layers(self):
        handle = self.net.head.register_forward_hook(raises)
        with self.assertRaises(ValueError):
            self.loss(self.net)
        handle.remove()

    def test_exception_in_a_backward(self):
        for layer in range(3):
            handle = self.net.layers[layer].norm1.register_full_backward_hook(raises)
            loss = self.loss(self.net, layer)
            with self.assertRaises(ValueError):
                loss.backward()
            handle.remove()
        self.assertEqual(self.run_.deviations, {"a step that was not ended: a backward that failed": 2})

    def test_a_graph_is_dropped(self):
        for _ in range(2):
            self.loss(self.net)
        self.assertEqual(self.run_.deviations,
                         {"a step that was not ended: a forward without its backward": 1})

    def test_a_backward_is_missing(self):
        loss = self.loss(self.net)
        with self.assertRaisesRegex(Error, "PST_E_ORDER"):
            self.run_.step()
        with self.assertRaisesRegex(Error, "given up, and what it kept is gone: .*PST_E_ORDER"):
            loss.backward()

    def test_abort(self):
        loss = self.loss(self.net)
        self.run_.abort()
        with self.assertRaisesRegex(Error, "given up, and what it kept is gone: abort"):
            loss.backward()

    def test_a_second_backward(self):
        loss = self.loss(self.net)
        loss.backward(retain_graph=True)
        with self.assertRaisesRegex(Error, "a second backward"):
            loss.backward()
        self.run_.step()

    def test_two_forwards_where_one_was_said(self):
        first = self.loss(self.net)
        with self.assertRaisesRegex(Error, "PST_E_ORDER"):
            self.loss(self.net, 1)
        del first

    def test_an_iteration(self):
        with self.assertRaises(ValueError):
            with self.run_.iteration():
                kept = self.loss(self.net)
                raise ValueError
        with self.run_.iteration():
            self.loss(self.net).backward()
        self.assertEqual(self.run_.deviations, {})
        del kept

    def test_another_step_begins(self):
        loss = self.loss(self.net)
        self.run_.begin()
        self.assertEqual(self.run_.deviations, {"a step that was not ended: another one began": 1})
        with self.assertRaisesRegex(Error, "gone: another one began"):
            loss.backward()


def raises(*_):
    raise ValueError("mine")


class Shared(Case):
    def test_a_layer_twice(self):
        """Two visits."""
        torch.manual_seed(0)
        block = gpt.Block(16, 2)
        out = []
        for fraction in (None, "1/2"):
            block.zero_grad()
            layers = [block, gpt.Block(16, 2).requires_grad_(False), block]
            torch.manual_seed(1)
            layers[1].load_state_dict(gpt.Block(16, 2).state_dict())
            run = memo.run(layers, fraction=fraction, cut=CUT, block_tokens=16)
            for seed in range(2):
                x = torch.randn(1, TOKENS, 16, generator=torch.Generator().manual_seed(seed))
                for layer in layers:
                    x = layer(x)
                x.sum().backward()
                run.step()
            out.append([p.grad.clone() for p in block.parameters()])
            if fraction:
                self.assertEqual(run.scheduler.stats().visits, 6)
            run.close()
        self.assertTrue(all(map(torch.equal, *out)))
        self.assertNotIn("forward", vars(block))
        with self.assertRaisesRegex(Error, "layer 0 of chunk 1: it is layer 0 of chunk 0, too"):
            memo.run([[block], [block]])


class Copies(Case):
    def test_copies_are_not_wrapped(self):
        model, run = self.model()
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            for p in other.parameters():
                p.data.mul_(1.5)
            wanted = gpt.GPT(3, hidden=16, heads=2)
            wanted.load_state_dict(other.state_dict())
            self.assertTrue(torch.equal(self.loss(other), self.loss(wanted)))
        self.assertIsNone(run.choice)
        with run:
            self.good(model, run)
        self.assertNotIn("forward", vars(model.layers[0]))
        self.assertTrue(torch.equal(self.loss(model), self.loss(copy.deepcopy(model))))

    def test_closed_by_an_exception(self):
        model, run = self.model()
        with self.assertRaises(ValueError), run:
            self.loss(model)
            raise ValueError
        self.assertNotIn("forward", vars(model.layers[0]))


class MicroBatches(Case):
    def accumulate(self, model, run, numbers):
        for step, number in enumerate(numbers):
            for m in range(number):
                self.loss(model, 10 * step + m).backward()
            run.step()

    def test_others_than_were_said(self):
        for numbers, deviations in (
                ((2, 1), {"fewer micro-batches in a step than were said": 1}),
                ((3, 2), {"more micro-batches in a step than were said": 1,
                          "fewer micro-batches in a step than were said": 1}),
                ((4, ), {"more micro-batches in a step than were said": 1})):
            with self.subTest(numbers=numbers):
                said = self.same(lambda model, run, numbers=numbers: self.accumulate(model, run, numbers),
                                 micro_batches=2)
                self.assertEqual(said, deviations)

    def test_others_that_are_said(self):
        def script(model, run):
            for number in (1, 3):
                with run.iteration(number):
                    for m in range(number):
                        self.loss(model, m).backward()
        self.assertEqual(self.same(script, micro_batches=1), {})


class Pipelines(Case):
    """Played in one process."""

    def test_all_forwards_then_all_backwards(self):
        for kind in ("gpipe", "gpipe-reversed"):
            def script(model, run, kind=kind):
                for number in (3, 2):
                    run.begin(number)
                    losses = [self.loss(model, m) for m in range(number)]
                    for loss in losses if kind == "gpipe" else reversed(losses):
                        loss.backward()
                    run.step()
            with self.subTest(kind=kind):
                self.assertEqual(self.same(script, schedule=Schedule(kind, num_micro_batches=3)), {})

    def test_two_stages(self):
        """1F1B of two stages with a run each; the first has two micro-batches in flight."""
        stages = Schedule.pipeline("1f1b", 2, 4)
        order = play(stages)
        out = []
        for fraction in (None, "1/4"):
            model, first = self.model(4, fraction, swaps=(0, 1), schedule=stages[0])
            second = memo.run(model.layers[2:], fraction=fraction, cut=CUT, block_tokens=16,
                              schedule=stages[1])
            self.addCleanup(self.end, second)
            for step in range(2):
                sent, got, losses = {}, {}, {}
                for stage, p in order:
                    m = p.micro_batch
                    words = gpt.words_of(4 * step + m, 1, TOKENS)
                    if stage == 0 and p.kind == "forward":
                        sent[m] = model.layers[1](model.layers[0](model.embedding(words[:, :-1])))
                    elif stage == 0:
                        sent.pop(m).backward(got.pop(m).grad)
                    elif p.kind == "forward":
                        got[m] = sent[m].detach().requires_grad_()
                        losses[m] = gpt.F.cross_entropy(
                            model.head(model.layers[3](model.layers[2](got[m]))).flatten(0, 1),
                            words[:, 1:].flatten())
                    else:
                        losses.pop(m).backward()
                first.step(), second.step()
            out.append([p.grad for p in model.parameters()])
        self.assertTrue(all(map(torch.equal, *out)))
        self.assertEqual((first.deviations, second.deviations), ({}, {}))
        figures = first.scheduler.stats()
        self.assertEqual((figures.visits, figures.swapped, figures.kept_in_place), (16, 8, 8))

    def test_chunks(self):
        schedule = Schedule("interleaved", num_chunks=2, num_micro_batches=2, group=2)
        out = []
        for fraction in (None, "1/2"):
            torch.manual_seed(0)
            model = gpt.GPT(4, hidden=16, heads=2)
            run = memo.run([list(model.layers[:2]), list(model.layers[2:])], fraction=fraction, cut=CUT,
                           block_tokens=16, schedule=schedule)
            self.addCleanup(self.end, run)
            for step in range(2):
                sent, got, losses = {}, {}, {}
                for p in schedule:
                    m, words = p.micro_batch, gpt.words_of(2 * step + p.micro_batch, 1, TOKENS)
                    if (p.kind, p.chunk) == ("forward", 0):
                        sent[m] = model.layers[1](model.layers[0](model.embedding(words[:, :-1])))
                    elif p.kind == "forward":
                        got[m] = sent[m].detach().requires_grad_()
                        losses[m] = model.head(model.layers[3](model.layers[2](got[m]))).square().mean()
                    elif p.chunk == 1:
                        losses.pop(m).backward()
                    else:
                        sent.pop(m).backward(got.pop(m).grad)
                run.step()
            out.append([p.grad for p in model.parameters()])
        self.assertTrue(all(map(torch.equal, *out)))
        self.assertEqual(run.deviations, {})

    def test_weight_passes_are_refused(self):
        with self.assertRaisesRegex(Error, "this one splits them"):
            memo.run([gpt.Block(16, 2)], schedule=Schedule("zb-h1", num_stages=2, num_micro_batches=4))


def play(stages):
    """(stage, pass) in an order in which a process can run them."""
    left, done, out = [list(one) for one in stages], set(), []
    while any(left):
        for stage, passes in enumerate(left):
            if not passes:
                continue
            kind, _, m, _ = passes[0]
            before = stage - 1 if kind == "forward" else stage + 1
            if 0 <= before < len(stages) and (before, kind, m) not in done:
                continue
            done.add((stage, kind, m))
            out.append((stage, passes.pop(0)))
    return out


if __name__ == "__main__":
    unittest.main()
