"""memo.run: its copies to host memory and back, their order and bytes, are those of the simulator."""
import collections
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
from common import copies, gpt
from pagestash import SimulatedLayer, memo, simulate
from pagestash._simulate import EVENT_KINDS
from pagestash.pool import Device
from pagestash.schedule import Schedule

torch.set_num_threads(1)
LAYERS, HIDDEN, HEADS, TOKENS, SWAPPED = 4, 32, 2, 64, 32


class Stage:
    """Some layers of a model, run by a schedule of a pipeline."""

    def __init__(self, schedule, fraction):
        torch.manual_seed(7 + schedule.stage)
        self.layers = torch.nn.ModuleList(gpt.Block(HIDDEN, HEADS) for _ in range(LAYERS))
        self.schedule, self.todo = schedule, collections.deque(schedule)
        self.run = memo.run(self.layers, fraction=fraction, cut=SWAPPED, block_tokens=16, schedule=schedule,
                            host_bytes=1 << 30)
        self.inputs, self.outputs = {}, {}

    def forward(self, x):
        """Of all layers."""
        self.inputs[len(self.inputs)] = x = x.detach().requires_grad_()
        for layer in self.layers:
            x = layer(x)
        self.outputs[len(self.outputs)] = x
        return x.detach()


def pipelined(num_stages, micro_batches, fraction, steps=1):
    """Runs a pipeline in one process: (its stages, after the steps)."""
    stages = [Stage(one, fraction) for one in Schedule.pipeline("1f1b", num_stages, micro_batches)]
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        waiting = {("forward", 0, m): torch.randn(1, TOKENS, HIDDEN, generator=generator)
                   for m in range(micro_batches)}
        while any(stage.todo for stage in stages):
            for s, stage in enumerate(stages):
                key = (stage.todo[0].kind, s, stage.todo[0].micro_batch) if stage.todo else None
                if key not in waiting:
                    continue
                given, m = waiting.pop(key), key[2]
                stage.todo.popleft()
                if key[0] == "forward":
                    last = s + 1 == num_stages
                    waiting["backward" if last else "forward", s if last else s + 1, m] = stage.forward(given)
                else:
                    stage.outputs[m].backward(given)
                    waiting["backward", s - 1, m] = stage.inputs[m].grad
        for stage in stages:
            stage.run.step()
            stage.todo, stage.inputs, stage.outputs = collections.deque(stage.schedule), {}, {}
    return stages


def gradients(stages):
    """Of all parameters."""
    return [p.grad.clone() for stage in stages for p in stage.layers.parameters()]


def bytes_of_block():
    """What leaves of gpt.Block in fp32, from its shape."""
    token = 16 + 4 * 6 * HIDDEN + 8 * 4 * HIDDEN
    return 4 * (2 * HIDDEN + HEADS) * TOKENS + SWAPPED * token


def simulated(schedule):
    """(direction, layer, slot, bytes) of each copy of a step."""
    num_bytes = bytes_of_block()
    events = simulate(schedule, SimulatedLayer.repeat(LAYERS, keep="swapped", swap_bytes=num_bytes),
                      out_rate=10 ** 9, in_rate=10 ** 9).raw_events()
    kinds = {"swap out": "out", "swap in": "in"}
    return [(kinds[EVENT_KINDS[one.kind]], one.visit.layer, schedule.slot(0, one.visit.micro_batch), num_bytes)
            for one in events if EVENT_KINDS[one.kind] in kinds]


def real(stage, made):
    """(direction, address in host memory, bytes) of each copy that a device made from and to a stage's buffers."""
    memory = stage.run.buffers.memory
    begin, end = memory.data_ptr(), memory.data_ptr() + memory.nbytes
    out = []
    for to, source, num_bytes in made:
        if begin <= source < end:
            out.append(("out", to, num_bytes))
        elif begin <= to < end:
            out.append(("in", source, num_bytes))
    return out


class Order(unittest.TestCase):
    def compare(self, num_stages, micro_batches):
        with copies.of(Device.open("host")) as made:
            stages = pipelined(num_stages, micro_batches, "1/2", steps=2)
        for stage in stages:
            expected = simulated(stage.schedule) * 2
            got = real(stage, made)
            self.assertEqual([(way, num_bytes) for way, _, num_bytes in got],
                             [(way, num_bytes) for way, _, _, num_bytes in expected])
            places = {}
            for (_, address, _), (_, layer, slot, _) in zip(got, expected):
                self.assertEqual(places.setdefault(address, (layer, slot)), (layer, slot))
            self.assertEqual(len(set(places.values())), len(places))
        plain = pipelined(num_stages, micro_batches, None, steps=2)
        self.assertTrue(all(map(torch.equal, gradients(stages), gradients(plain))))
        for stage in stages + plain:
            stage.run.close()
        return len(simulated(stages[0].schedule))

    def test_one_micro_batch(self):
        self.assertEqual(self.compare(1, 1), 2 * (LAYERS - 2))

    def test_accumulated_gradients(self):
        self.assertEqual(self.compare(1, 3), 3 * 2 * (LAYERS - 2))

    def test_a_pipeline_of_two_stages(self):
        self.assertGreater(self.compare(2, 3), 3 * 2 * (LAYERS - 2))


if __name__ == "__main__":
    unittest.main()
