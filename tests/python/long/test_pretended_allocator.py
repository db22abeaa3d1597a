"""The allocator under torch, on the pretended GPU: record, plan with the command, replay."""
import gc
import json
import os
import subprocess
import tempfile
import unittest
from unittest import mock

from common import built, pretended
from common.pages import run_block

pretended.start()

import torch  # noqa: E402 pylint: disable=wrong-import-position
from pagestash import Error, allocator  # noqa: E402 pylint: disable=wrong-import-position

torch.set_num_threads(1)
os.environ["PAGESTASH_TORCH_LIBRARY"] = built.torch_library()
WIDTH, LAYERS, STEPS = 256, 4, 5


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(WIDTH, WIDTH, bias=False, device="cuda") for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def train(steps=STEPS, rows=64, marks=True):
    """Weights before the first iteration, then the same step again and again; a mark at the end."""
    x = torch.empty(rows, WIDTH, device="cuda")
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
    for _ in range(steps):
        if marks:
            allocator.mark_iteration()
        net(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    allocator.mark_iteration()
    return x, net


def train_adam():
    """As docs/planner.md says: the first step, which makes Adam's state, comes before any mark."""
    x, net = torch.empty(64, WIDTH, device="cuda"), Net()
    optimizer = torch.optim.Adam(net.parameters(), foreach=False, capturable=True)
    for step in range(STEPS):
        if step > 0:
            allocator.mark_iteration()
        net(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step == 0:
            before = allocator.stats()["requests"]
    allocator.mark_iteration()
    return before


class Page:
    """What the blocks of docs/planner.md are given: a step over inputs, which come to the GPU with the first."""

    def __init__(self):
        self.net = self.x = None
        self.names = {"allocator": allocator, "first": None, "batches": range(STEPS), "step": self.step}

    def step(self, _batch):
        """Makes the model in the first one."""
        if self.net is None:
            self.net, self.x = Net(), torch.empty(64, WIDTH, device="cuda")
        self.net(self.x).sum().backward()
        self.net.zero_grad(set_to_none=True)

    def run(self, word):
        """The block."""
        run_block("docs/planner.md", word, self.names)
        return self


def command(*arguments):
    """The JSON of `pagestash ARGUMENTS --json`."""
    result = subprocess.run([built.command(), *arguments, "--json"], capture_output=True, text=True,
                            timeout=600, check=False)
    if result.returncode != 0:
        raise AssertionError(result)
    return json.loads(result.stdout)


def installed(**files):
    allocator.install(**files, device="host")
    train()
    return allocator.stats()


def pooled(**files):
    pool = allocator.mem_pool(**files, device="host")
    with torch.cuda.use_mem_pool(pool):
        train(marks=False)
    return allocator.stats()


class AllocatorTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.trace = os.path.join(folder.name, "trace.csv")
        self.plan = os.path.join(folder.name, "plan.csv")

    def assertFollows(self, figures, unplanned=0):
        self.assertEqual((figures["first_deviation"], figures["last_failure"]), ("", ""))
        self.assertEqual(set(figures["deviations"].values()), {0})
        self.assertEqual(figures["requests"] - figures["planned"], unplanned)

    def test_a_training_is_recorded_planned_and_replayed(self):
        recorded = pretended.in_child(lambda: installed(trace=self.trace))
        self.assertEqual((recorded["planned"], recorded["failures"]), (0, 0))
        self.assertGreater(recorded["requests"], 150)
        planned = command("plan", "--trace", self.trace, "--keep-unfreed",
                          "--out", self.plan)
        figures = pretended.in_child(lambda: installed(plan=self.plan))
        self.assertFollows(figures)
        self.assertEqual(figures["requests"], recorded["requests"])
        self.assertEqual(figures["arena_bytes"], planned["peak"])
        self.assertEqual(figures["taken_peak_bytes"], 0)
        self.assertLess(figures["arena_bytes"], recorded["taken_peak_bytes"])

    def test_of_one_iteration_the_peak_is_the_least_there_can_be(self):
        pretended.in_child(lambda: installed(trace=self.trace))
        planned = command("plan", "--trace", self.trace, "--iteration", "2", "--out", self.plan)
        self.assertEqual(planned["status"], "optimal")
        figures = pretended.in_child(lambda: installed(plan=self.plan))
        self.assertFollows(figures, unplanned=1 + LAYERS)
        self.assertEqual(figures["arena_bytes"], planned["peak"])
        self.assertEqual(figures["taken_bytes"], 4 * (64 * WIDTH + LAYERS * WIDTH * WIDTH))

    def test_what_an_optimizer_makes_in_the_first_step_is_in_nobodys_way(self):
        def run(**files):
            allocator.install(**files, device="host")
            return train_adam(), allocator.stats()
        pretended.in_child(lambda: run(trace=self.trace))
        command("plan", "--trace", self.trace, "--iteration", "1", "--out", self.plan)
        before, figures = pretended.in_child(lambda: run(plan=self.plan))
        self.assertFollows(figures, unplanned=before)

    def test_the_blocks_of_the_page(self):
        def recorded():
            Page().run("allocator.install(trace=")
            allocator.mark_iteration()
            return allocator.stats()

        def replayed():
            page = Page().run("allocator.install(plan=")
            page.step(None)
            before = allocator.stats()["requests"]
            for _ in range(STEPS):
                allocator.mark_iteration()
                page.step(None)
            allocator.mark_iteration()
            return before, allocator.stats()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(os.path.dirname(self.trace))
        with mock.patch.dict(os.environ, PAGESTASH_TORCH_DEVICE="host"):
            requests = pretended.in_child(recorded)["requests"]
            planned = command("plan", "--trace", self.trace, "--iteration", "1", "--out", self.plan)
            before, figures = pretended.in_child(replayed)
        self.assertEqual(figures["requests"], requests)
        self.assertFollows(figures, unplanned=before)
        self.assertEqual(figures["arena_bytes"], planned["peak"])

    def test_another_program_is_served_and_its_deviations_are_counted(self):
        pretended.in_child(lambda: installed(trace=self.trace))
        command("plan", "--trace", self.trace, "--keep-unfreed", "--out", self.plan)

        def other():
            allocator.install(self.plan, device="host")
            train(rows=96)
            return allocator.stats()

        figures = pretended.in_child(other)
        self.assertGreater(sum(figures["deviations"].values()), 10)
        self.assertNotEqual(figures["first_deviation"], "")
        self.assertEqual(figures["failures"], 0)

    def test_segments_of_a_pool_are_recorded_planned_and_replayed(self):
        recorded = pretended.in_child(lambda: pooled(trace=self.trace))
        self.assertGreater(recorded["requests"], 1)
        planned = command("plan", "--trace", self.trace, "--keep-unfreed", "--out", self.plan)
        figures = pretended.in_child(lambda: pooled(plan=self.plan))
        self.assertFollows(figures)
        self.assertEqual(figures["requests"], recorded["requests"])
        self.assertEqual(figures["arena_bytes"], planned["peak"])

    def test_a_pool_leaves_torch_its_own_allocator(self):
        def run():
            pool = allocator.record(self.trace, device="host")
            outside = torch.empty(1000, device="cuda")
            before = pretended.mallocs()
            with torch.cuda.use_mem_pool(pool):
                inside = torch.empty(1000, device="cuda")
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool.id):
                copied = torch.empty(1000, device="cuda")
                copied.copy_(inside)
            inside.copy_(torch.arange(1000.))
            graph.replay()
            assert torch.equal(copied.cpu(), torch.arange(1000.))
            assert torch.cuda.memory_allocated() >= 3 * 4000
            torch.cuda.MemPool()
            assert pretended.mallocs() == before, "asked CUDA"
            live = allocator.stats()["live"]
            del inside, copied, graph, pool
            gc.collect()
            torch.cuda.empty_cache()
            allocator.mark_iteration()
            return live, allocator.stats()["live"], outside.data_ptr() != 0
        live, left, _ = pretended.in_child(run)
        self.assertGreater(live, 0)
        self.assertEqual(left, 0)

    def test_installed_it_serves_captures_and_other_streams(self):
        def run():
            allocator.install(trace=self.trace, device="host")
            x, _ = train(steps=1)
            side = torch.cuda.Stream()
            used = torch.empty(777, device="cuda")
            used.record_stream(side)
            with torch.cuda.stream(side):
                beside = torch.empty(555, device="cuda")
            del used, beside
            torch.cuda.synchronize()
            before = allocator.stats()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="relaxed"):
                y = torch.empty_like(x)
                y.copy_(x)
                z = torch.empty_like(x)
                z.copy_(y)
            after = allocator.stats()
            assert after["requests"] == before["requests"], "a capture is recorded"
            for value in (1., 2.):
                x.copy_(torch.full((64, WIDTH), value))
                graph.replay()
                assert (z.cpu() == value).all()
            del y, z
            graph.reset()
            del graph
            allocator.mark_iteration()
            try:
                torch.cuda.MemPool()
            except RuntimeError:
                return allocator.stats()
            raise AssertionError("docs/planner.md says that torch.cuda.MemPool raises")
        figures = pretended.in_child(run)
        self.assertEqual(figures["failures"], 0)
        with open(self.trace, encoding="ascii") as file:
            rows = [line.strip().split(",") for line in file]
        sizes = {row[1]: row[2] for row in rows if row[0] == "malloc"}
        uses = [(sizes[row[1]], row[3]) for row in rows if row[8] == "use"]
        self.assertEqual(uses, [("3108", "1")])
        self.assertEqual([row[3] for row in rows if row[2] == "2220"], ["1"])

    def test_install_comes_first(self):
        def run():
            torch.empty(1, device="cuda")
            try:
                allocator.install(trace=self.trace, device="host")
            except Error as error:
                return str(error)
            return ""
        self.assertIn("torch does not change its allocator", pretended.in_child(run))

    def test_a_request_that_cannot_be_served_is_raised_at_the_mark(self):
        def run():
            pool = allocator.mem_pool(self.plan, device="host")
            with torch.cuda.use_mem_pool(pool):
                try:
                    torch.empty(1000, device="cuda")
                except torch.OutOfMemoryError:
                    pass
            try:
                allocator.mark_iteration()
            except Error as error:
                return str(error)
            return ""
        self.assertIn("plan.csv: No such file", pretended.in_child(run))

    def test_a_snapshot_of_torchs_own_allocator_is_a_trace(self):
        def run():
            torch.cuda.memory._record_memory_history(stacks="python", context=None)
            x = torch.empty(64, WIDTH, device="cuda")
            net = Net()
            for _ in range(3):
                net(x).sum().backward()
                net.zero_grad()
            torch.cuda.memory._dump_snapshot(self.trace)
            return torch.cuda.max_memory_allocated()
        peak = pretended.in_child(run)
        figures = command("trace", "--pytorch", self.trace)
        self.assertGreater(figures["tensors"], 50)
        self.assertEqual(figures["most_live_bytes"], peak)


if __name__ == "__main__":
    unittest.main()
