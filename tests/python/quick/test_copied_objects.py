#!/usr/bin/env python3
"""copy, deepcopy and pickle of the package's objects, as a user's module that has one does them."""
import copy
import gc
import pickle
import unittest

import torch
import torch.distributed as dist

from common.edges import setUpModule, tearDownModule  # noqa: F401
from pagestash import Error
from pagestash.pool import Device, Form, Pool, Rows, Space
from pagestash.schedule import Layer, Part, Schedule, TorchScheduler, form_of
from pagestash.torch import ColumnParallelLinear, RowParallelLinear, Scratch, Stash


class Owner(torch.nn.Module):
    def __init__(self, owned):
        super().__init__()
        self.owned, self.linear = owned, torch.nn.Linear(3, 3)


class Copies(unittest.TestCase):
    def test_what_the_process_has_once(self):
        """A copy of a module shares it; one that dies takes nothing along."""
        pool, scratch, stash = Pool(Device.open("host"), 8), Scratch("cpu"), Stash("cpu", pages=8)
        lease = scratch.lease("a", (4,), torch.float32)
        form = form_of([torch.empty(8, 4)], torch.tensor([1]))
        scheduler = TorchScheduler(pool, [Layer(parts=[Part(form)])], schedule=Schedule(num_micro_batches=2))
        for one in (pool.device, pool, scratch, lease, stash, scheduler):
            module = Owner(one)
            for made in (copy.copy(one), copy.deepcopy(module).owned):
                self.assertIs(made, one)
            with self.assertRaisesRegex(Error, f"a {type(one).__name__} belongs to its process: it cannot be "
                                               "pickled"):
                pickle.dumps(module)
            del module, made
            gc.collect()
        lease.release()
        scheduler.close()
        for one in (pool, scratch, stash):
            one.close()

    def test_what_never_changes(self):
        """Copies and pickles do what the original did, which is gone."""
        for make, ask in (
                (lambda: Form([Space(8, "segments", 2, 4)], [Rows(64), Rows(32, num=1, den=3)]),
                 lambda form: (form.spaces, form.tensors, form.measure([3, 5]))),
                *((lambda kind=kind, fields=fields: Schedule(kind, num_stages=2, stage=1, num_micro_batches=6,
                                                             **fields),
                   lambda schedule: (repr(schedule), list(schedule), schedule.info, schedule.slots(0)))
                  for kind, fields in (("1f1b", {}), ("interleaved", {"num_chunks": 2, "group": 3,
                                                                      "overlaps_exchange": True}),
                                       ("zb-v", {"limit": 3}), ("dualpipe", {}))),
                (lambda: Schedule.of([("F", 0, 0), ("B", 0, 0)], num_stages=3, stage=2),
                 lambda schedule: (repr(schedule), list(schedule)))):
            want = ask(make())
            for made in (copy.copy(make()), copy.deepcopy([make()])[0], pickle.loads(pickle.dumps(make()))):
                self.assertEqual(ask(made), want)

    def test_parallel_layers(self):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        for kind in (ColumnParallelLinear, RowParallelLinear):
            layer = kind(4, 6, sequence_parallel=True)
            layer.weight.requires_grad_(False)
            other = copy.deepcopy(torch.nn.Sequential(layer, layer))
            self.assertIs(other[0], other[1])
            other = other[0]
            self.assertIs(other.group, layer.group)
            self.assertIsNot(other.weight, layer.weight)
            self.assertFalse(other.weight.requires_grad)
            for name, parameter in layer.named_parameters():
                self.assertEqual(vars(other.get_parameter(name)), vars(parameter))
            x = torch.randn(2, 4)
            self.assertTrue(torch.equal(other(x), layer(x)))
            self.assertEqual(repr(other), repr(layer))


class Exceptions(unittest.TestCase):
    def test_the_users_exception_is_the_one_that_comes_out(self):
        """Not that what it left alive cannot be closed."""
        x = torch.randn(32, 8, requires_grad=True)
        for make in (lambda: Stash("cpu", pages=8), lambda: Scratch("cpu")):
            with self.assertRaisesRegex(ValueError, "mine"), make() as one:
                if isinstance(one, Stash):
                    with one.layer(torch.tensor([3]), 32):
                        held = (x * 1).square()
                else:
                    held = one.lease("a", (4,), torch.float32)
                raise ValueError("mine")
            with self.assertRaisesRegex(Error, "1 tickets|leased"), one:
                """Without an exception it is told."""
            held = held.sum().backward() if isinstance(one, Stash) else held.release()
            one.close()


if __name__ == "__main__":
    unittest.main()
