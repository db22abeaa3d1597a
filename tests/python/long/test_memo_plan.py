"""MEMO's plan half on the pretended GPU: one layer recorded, many planned, trained by the plan; beside it
torch's own allocator."""
import functools
import os
import tempfile
import unittest

from common import pretended

pretended.start()

import torch  # noqa: E402 pylint: disable=wrong-import-position
from common.trainer import Trainer  # noqa: E402 pylint: disable=wrong-import-position
from pagestash import Error, allocator, command, memo, plans  # noqa: E402 pylint: disable=wrong-import-position
from pagestash.memo import _trace  # noqa: E402 pylint: disable=wrong-import-position

torch.set_num_threads(1)
STEPS = 3


def profiled(**how):
    """A profile of one layer; how: of Trainer."""
    return memo.profile(functools.partial(Trainer, **how), Trainer.step, device="host")


def trained(plan, layers, **how):
    """Figures of a model trained by the plan in this process."""
    plan.use(device="host")
    trainer = Trainer(layers, **how)
    plan.check(trainer)
    trainer.step()
    before = allocator.stats()["requests"]
    for _ in range(STEPS):
        allocator.mark_iteration()
        trainer.step()
    allocator.mark_iteration()
    return {**allocator.stats(), "before": before}


def natively(layers, **how):
    """(reserved, allocated) of torch's own allocator for a training, and before its first step."""
    trainer = Trainer(layers, **how)
    for _ in range(STEPS):
        trainer.step()
    return torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()


class Plans(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def assertFollows(self, figures, plan):
        self.assertEqual((figures["first_deviation"], figures["last_failure"]), ("", ""))
        self.assertEqual(sum(figures["deviations"].values()), 0)
        self.assertEqual(figures["planned_peak_bytes"], plan["peak"])
        self.assertEqual(figures["arena_bytes"], plan["peak"])
        self.assertEqual(figures["planned"], STEPS * plan["tensors"])
        self.assertEqual(figures["planned"], figures["requests"] - figures["before"])

    def test_a_process_profiles_plans_and_trains(self):
        """MEMO's workflow: four lines."""
        def run():
            profile = memo.profile(Trainer, Trainer.step, device="host")
            plan = profile.expand(8).plan()
            plan.use()
            trainer = Trainer(8)
            trainer.step()
            before = allocator.stats()["requests"]
            for _ in range(STEPS):
                allocator.mark_iteration()
                trainer.step()
            allocator.mark_iteration()
            large = profile.expand(32).plan()
            print("32 layers:", large, sep="\n")
            return {**allocator.stats(), "before": before}, plan.answer.json, large.answer.json, str(plan)
        figures, plan, large, said = pretended.in_child(run)
        print(said)
        for answer in (plan, large):
            self.assertEqual((answer["status"], answer["gap"]), ("optimal", 0))
        self.assertFollows(figures, plan)
        self.assertIn("exact: it is what a model with more layers asked for", said)

    def test_other_steps(self):
        """No temporaries, lists of them, from parameter to parameter; layers that are computed again."""
        for how in ({"optimizer": "sgd", "clip": False}, {"optimizer": "loop"}, {"clip": False},
                    {"reentrant": False}, {"reentrant": True}, {"between": True}):
            def run(how=how):
                plan = profiled(**how).expand(8).plan()
                return trained(plan, 8, **how), plan.answer.json, plan.exact
            figures, plan, exact = pretended.in_child(run)
            self.assertTrue(exact, how)
            self.assertFollows(figures, plan)

    def test_with_layers_swapped_by_tokens(self):
        """Both halves of MEMO: the last two layers are kept and ask for less, so five are recorded."""
        class Swapped(Trainer):
            """Half of the tokens of each layer go to the host."""

            def __init__(self, layers):
                super().__init__(layers)
                self.run = memo.run(self.model.layers, fraction="1/2", check=False)

            def step(self):
                super().step()
                self.run.step()

        def run():
            pretended.use_as_cuda()
            profile = memo.profile(Swapped, Swapped.step, device="host")
            plan = profile.expand(8).plan()
            plan.use()
            trainer = Swapped(8)
            trainer.step()
            trainer.step()
            before = allocator.stats()["requests"]
            for _ in range(STEPS):
                allocator.mark_iteration()
                trainer.step()
            allocator.mark_iteration()
            return {**allocator.stats(), "before": before}, plan.answer.json, profile.layers, profile.exact
        figures, plan, layers, exact = pretended.in_child(run)
        self.assertEqual((layers, exact), (5, True))
        self.assertFollows(figures, plan)

    def test_micro_batches_before_one_optimizer(self):
        """The first makes the gradients, the others add to them."""
        def run():
            profile = memo.profile(Trainer, Trainer.backward, optimize=Trainer.optimize, device="host")
            profile.save(self.path("profile.csv"))
            plan = memo.load(self.path("profile.csv")).expand(8, 4).plan()
            plan.use()
            trainer = Trainer(8)
            trainer.step()
            before = allocator.stats()["requests"]
            for _ in range(STEPS):
                allocator.mark_iteration()
                for _ in range(4):
                    trainer.backward()
                trainer.optimize()
            allocator.mark_iteration()
            ahead = profile.expand(8, 4, "1f1b", num_stages=3).plan()
            return ({**allocator.stats(), "before": before}, plan.answer.json, profile.exact,
                    ahead.answer.json)
        figures, plan, exact, ahead = pretended.in_child(run)
        self.assertTrue(exact)
        self.assertFollows(figures, plan)
        self.assertEqual((ahead["status"], ahead["tensors"]), ("optimal", plan["tensors"]))
        self.assertGreater(ahead["peak"], 2 * plan["peak"])

    def test_processes_of_their_own(self):
        """Through files, and through the commands, which need to be told nothing."""
        saved, planned, by_hand = map(self.path, ("profile.csv", "plan.csv", "hand.csv"))
        pretended.in_child(lambda: profiled().save(saved))
        pretended.in_child(lambda: memo.load(saved).expand(8).plan().save(planned))
        figures = pretended.in_child(lambda: trained(memo.load(planned), 8))
        plan = memo.load(planned)
        self.assertFollows(figures, plan.answer.json)

        command.run(["trace", "--trace", saved, "--expand", "8", "--out", self.path("eight.csv")])
        plans.plan(self.path("eight.csv")).save(by_hand)

        def run():
            allocator.install(plan=by_hand, device="host")
            trainer = Trainer(8)
            trainer.step()
            for _ in range(STEPS):
                allocator.mark_iteration()
                trainer.step()
            allocator.mark_iteration()
            return allocator.stats()
        figures = pretended.in_child(run)
        self.assertEqual(sum(figures["deviations"].values()), 0)
        self.assertEqual(figures["planned_peak_bytes"], plan.peak)

    def test_ranks_that_ask_for_other_things(self):
        """Two ranks of context parallelism, each with its profile and its plan."""
        def run(rank):
            torch.distributed.init_process_group("gloo", init_method=f"file://{self.path('meet')}",
                                                 rank=rank, world_size=2)
            profile = profiled(rank=rank)
            name = profile.save(self.path("profile.csv"))
            torch.distributed.barrier()
            plan = memo.load(self.path("profile.csv"), rank=rank).expand(8).plan()
            other = memo.load(self.path("profile.csv"), rank=1 - rank).expand(8).plan()
            figures = trained(plan, 8, rank=rank)
            try:
                other.check(Trainer(8))
            except Error as error:
                return name, plan.answer.json, figures, str(error)
            return None
        import concurrent.futures
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            answers = list(threads.map(lambda rank: pretended.in_child(run, rank), range(2)))
        names, peaks = [], []
        for rank, (name, plan, figures, said) in enumerate(answers):
            self.assertFollows(figures, plan)
            self.assertEqual(said, f"check: the plan is of rank {1 - rank}, and this is rank {rank}")
            names.append(os.path.basename(name))
            peaks.append(plan["peak"])
        self.assertEqual(names, ["profile.rank0.csv", "profile.rank1.csv"])
        self.assertGreater(peaks[0], peaks[1])

    def test_beside_torchs_own_allocator(self):
        """The rules are what torch's allocator does, for the very requests; and the whole run."""
        saved = self.path("plan.csv")

        def run():
            reserved = {}
            profile = profiled()
            for layers in (8, 32):
                plan = profile.expand(layers).plan()
                plan.save(saved.replace(".csv", f"{layers}.csv"))
                reserved[layers] = plan.reserved
            trainer = Trainer(8)
            held = sum(parameter.nbytes for parameter in trainer.model.parameters())
            return reserved, held
        modelled, weights = pretended.in_child(run)
        for layers in (8, 32):
            plan = memo.load(saved.replace(".csv", f"{layers}.csv"))
            native = pretended.in_child(plan.measure_reserved)
            self.assertEqual(native.method, "native")
            self.assertEqual((modelled[layers].reserved, modelled[layers].allocated),
                             (native.reserved, native.allocated))
            self.assertGreaterEqual(native.reserved, plan.peak)
            print(f"{layers} layers, one iteration: plan {plan.peak}, torch {native} "
                  f"{100 * native.fragmentation:.2f} %")
        reserved, allocated = pretended.in_child(lambda: natively(8))
        print(f"8 layers, whole run: torch reserved {reserved}, allocated {allocated}, "
              f"{100 * (1 - allocated / reserved):.2f} %; weights {weights}")

    def test_the_model_of_torchs_allocator_on_random_requests(self):
        import random

        def rows(seed):
            chance, live, out = random.Random(seed), [], []
            for number in range(400):
                if live and chance.random() < 0.48:
                    out.append(_trace.Row("free", live.pop(chance.randrange(len(live))), 0, 0, "", None,
                                          None, ""))
                else:
                    size = int(2 ** chance.uniform(0, 25))
                    out.append(_trace.Row("malloc", number, size, chance.randrange(2), "", None, None, ""))
                    live.append(number)
            return out
        for seed in range(8):
            ours = memo.reserved(rows(seed))
            theirs = pretended.in_child(lambda seed=seed: memo.native_reserved(rows(seed)))
            self.assertEqual((ours.reserved, ours.allocated), (theirs.reserved, theirs.allocated), seed)

    def test_what_is_refused(self):
        def run():
            said = []

            def refused(call):
                try:
                    call()
                except Error as error:
                    said.append(str(error))
                else:
                    said.append("")
            refused(lambda: memo.profile(Trainer, Trainer.step, blocks=lambda trainer: [], device="host"))
            refused(lambda: memo.profile(lambda layers: torch.nn.Linear(2, 2).cuda(), lambda model: None))
            refused(lambda: memo.profile(Trainer, lambda trainer: None))
            refused(lambda: memo.profile(Trainer, Trainer.loss))
            refused(lambda: memo.profile(Trainer, lambda trainer: (trainer.step(), trainer.step())))
            held = []

            def leaks(trainer):
                held.append(torch.empty(1 << len(held), 1000, device="cuda"))
                trainer.step()
            refused(lambda: memo.profile(Trainer, leaks))
            refused(lambda: memo.profile(lambda layers: Trainer(layers, hidden=64 * layers), Trainer.step))
            plan = profiled().expand(4).plan()
            refused(lambda: plan.check(Trainer(6)))
            refused(lambda: plan.check(Trainer(4, hidden=128)))
            refused(plan.measure_reserved)
            return said
        for said, wanted in zip(pretended.in_child(run), (
                "blocks: 0 layers: build was asked for 1",
                "a model built with 1 layers has no ModuleList of 1: blocks=",
                "profile: a step ran 0 forwards of 1 layers",
                "no layer has a backward", "a step ran 2 forwards of 1 layers",
                "two steps do not ask for the same", "profile: of models with 1 and 2 layers",
                "the plan is of 4 layers, and the model has 6", "norm1.weight is float32",
                "native_reserved: this process allocates with"), strict=True):
            self.assertIn(wanted, said)
            self.assertNotIn("\n", said)

    def test_a_model_that_strays_is_served(self):
        def run():
            plan = profiled().expand(8).plan()
            figures = trained(plan, 8)
            trainer = Trainer(8)
            allocator.mark_iteration()
            with torch.no_grad():
                trainer.loss()
            torch.empty(12345, device="cuda")
            allocator.mark_iteration()
            return figures, allocator.stats()
        _, figures = pretended.in_child(run)
        self.assertGreater(sum(figures["deviations"].values()), 0)
        self.assertEqual(figures["failures"], 0)


if __name__ == "__main__":
    unittest.main()
