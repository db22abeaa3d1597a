#!/usr/bin/env python3
"""pagestash.estimate and pagestash.plan: the commands' answers as objects, and what they refuse."""
import contextlib
import copy
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import pagestash
from pagestash import command

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
DATA = os.path.join(ROOT, "tests", "data")
MINIMALLOC = os.path.join(DATA, "minimalloc", "A.1048576.csv")


def lines(name):
    with open(os.path.join(DATA, "estimator", name), encoding="ascii") as file:
        return [line.split() for line in file if line.strip() and line[0] != "#"]


def as_flags(words):
    """--a-b 3 --c as {"a_b": 3, "c": True}."""
    flags, name = {}, ""
    for word in words:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            flags[name] = True
        else:
            flags[name] = int(word) if word.isdigit() else word
    return flags


@contextlib.contextmanager
def variable(name, value):
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ[name] = before or ""
        if before is None:
            del os.environ[name]


class CommandTest(unittest.TestCase):
    @contextlib.contextmanager
    def refused(self, text, exit_code=None):
        with self.assertRaisesRegex(pagestash.Error, text) as caught:
            yield
        self.assertEqual(getattr(caught.exception, "exit_code", None), exit_code)
        self.assertNotIn("\n", str(caught.exception))


class Estimates(CommandTest):
    def test_runs(self):
        """Figures of the runs, asked as keyword arguments and as a launch line."""
        runs = {name: words for name, *words in lines("runs.txt")}
        asked = [line for line in lines("figures.txt") if line[1] == "stage" and line[0] in runs]
        self.assertGreater(len(asked), 30)
        for name, words in runs.items():
            words = [*words, "--no-gradient-accumulation-fusion"]  # as the figures are
            report = pagestash.estimate(**as_flags(words))
            self.assertEqual(pagestash.estimate(" ".join(words)), report)
            for _, _, number, *figures in (line for line in asked if line[0] == name):
                stage = report.stages[int(number)]
                of = {"params": stage.params.total, "expert": stage.params.expert,
                      "states": stage.bytes.states, "head": stage.bytes.head,
                      "saved": stage.bytes.activations,
                      "total": stage.bytes.total - stage.bytes.workspaces,
                      "live": "+".join(map(str, stage.in_flight))}
                for key, value in (figure.split("=") for figure in figures):
                    self.assertEqual(str(of.get(key, value)), value, (name, number, key))

    def test_floats(self):
        """Also of numpy, which are floats of another repr."""
        class Float(float):
            __repr__ = object.__repr__
        self.assertEqual(command.flags_of({"gap": Float(0.5)}, True), ["--gap", "0.5"])

    def test_report(self):
        report = pagestash.estimate(preset="mixtral-8x7b", world_size=64, expert_model_parallel_size=8,
                                    pipeline_model_parallel_size=4, swiglu=False, fp16=None)
        self.assertEqual(report.version, pagestash.__version__)
        self.assertEqual(report.peak_bytes, max(stage.bytes.peak for stage in report.stages))
        self.assertEqual(report.fits, report.peak_bytes <= report.cluster.gpu_memory_bytes)
        self.assertEqual(report.ledger.moe["norm1.in"], report.json["ledger"]["moe"]["norm1.in"])
        self.assertEqual(len(str(report).splitlines()), 2 + 4 + 1)
        self.assertEqual(report._repr_html_().count("<tr>"), 1 + 4)
        self.assertEqual(pickle.loads(pickle.dumps(report)), report)
        self.assertEqual(copy.deepcopy(report).json, report.json)

    def test_frozen(self):
        report = pagestash.estimate(preset="llama2-7b")
        with self.assertRaisesRegex(AttributeError, "frozen"):
            report.version = "2"
        with self.assertRaisesRegex(AttributeError, "there is no stage here, but .*stages"):
            print(report.stage)
        report.json["stages"][0]["bytes"]["peak"] = 0
        self.assertGreater(report.peak_bytes, 0)

    def test_lists(self):
        report = pagestash.estimate(preset="mixtral-8x7b", num_layers=4, ffn_hidden_size=1024,
                                    moe_layer_freq=[0, 1, 1, True], expert_tensor_parallel_size=1,
                                    recompute_granularity="selective",
                                    recompute_modules=["core_attn", "moe_act"])
        self.assertEqual(report.config.is_moe, (0, 1, 1, 1))
        self.assertLessEqual({"attention", "experts"}, set(report.config.recompute))

    def test_modes(self):
        """The answer no is an answer."""
        asked = {"preset": "mixtral-8x7b", "world_size": 64, "expert_model_parallel_size": 8}
        report = pagestash.estimate(**asked)
        fit = pagestash.estimate(**asked, fit=True)
        self.assertEqual((fit.fits, fit.needed_bytes), (report.fits, report.peak_bytes))
        self.assertFalse(pagestash.estimate(**asked, fit=True, gpu_memory="1GiB").fits)
        self.assertTrue(pagestash.estimate(**asked, fit=True, gpu_memory=1 << 50).fits)
        search = pagestash.estimate(**asked, search=True)
        self.assertEqual(search.given.needed_bytes, report.peak_bytes)
        self.assertLessEqual(len(search.best), search.fitting)
        self.assertEqual(len(str(search).splitlines()), 2 + len(search.best))
        nothing = pagestash.estimate(**asked, search=True, gpu_memory="1MiB")
        self.assertEqual((nothing.fitting, any(of.fits for of in nothing.best)), (0, False))
        self.assertIn("0 of", nothing._repr_html_())
        events = pagestash.estimate(**asked, timeline=0)
        self.assertEqual({event.kind for event in events}, {"forward", "backward"})
        self.assertEqual(max(event.saved_bytes for event in events), report.stages[0].bytes.activations)

    def test_refuses(self):
        with self.refused("--preset x: allowed are .*llama2-7b", 2):
            pagestash.estimate(preset="x")
        with self.refused("--num-layer: no such flag: did you mean --num-layers", 2):
            pagestash.estimate(preset="llama2-7b", num_layer=3)
        self.assertTrue(pagestash.estimate("--preset llama2-7b --own-depth 3").warnings)
        with self.refused("^--num-attention-heads .* 5", 2):
            pagestash.estimate("--preset llama2-7b --own-depth 3 --tensor-model-parallel-size 5")
        with self.refused("config.json", 3):
            pagestash.estimate(hf_config=os.path.join(ROOT, "config.json"))
        for value in (object(), {"a": 1}, b"bytes", [None], "nul\0"):
            with self.refused("is no value of a flag"):
                pagestash.estimate(preset="llama2-7b", num_layers=value)
        with self.refused("launch line: No closing quotation"):
            pagestash.estimate("--preset 'llama2-7b")
        for name in ("json", "help", "version", "compat"):
            with self.refused(f"estimate: {name} is no argument here"):
                pagestash.estimate(**{name: True})


class Plans(CommandTest):
    ROWS = [("malloc", 1, 1000), ("malloc", 2, 2000), ("free", 1), ("malloc", 3, 700), ("free", 2),
            ("free", 3)]

    def check(self, plan, sizes, lives):
        """No two tensors that live together overlap; the peak is where the highest ends."""
        ends = {number: offset + -(-sizes[number] // plan.align) * plan.align
                for number, offset in zip(plan.ids, plan.offsets)}
        offsets = dict(zip(plan.ids, plan.offsets))
        self.assertEqual(max(ends.values()), plan.peak)
        for a, (begin, end) in lives.items():
            for b in (b for b, (lower, upper) in lives.items() if b > a and begin < upper and lower < end):
                self.assertTrue(ends[a] <= offsets[b] or ends[b] <= offsets[a], (a, b))

    def test_minimalloc(self):
        """The benchmark's capacity stands in the name of its file; it is met, and proved lowest."""
        capacity = int(MINIMALLOC.split(".")[-2])
        plan = pagestash.plan(minimalloc=MINIMALLOC, capacity=capacity)
        self.assertEqual((plan.status, plan.fits, plan.reason), ("optimal", True, ""))
        self.assertEqual(plan.lower_bound, plan.peak)
        with open(MINIMALLOC, encoding="ascii") as file:
            table = [tuple(map(int, line.split(","))) for line in list(file)[1:]]
        self.assertEqual(plan.tensors, len(table))
        self.check(plan, {number: size for number, _, _, size in table},
                   {number: (lower, upper) for number, lower, upper, _ in table})
        self.assertEqual(pagestash.plan(minimalloc=table, capacity=capacity).placements, plan.placements)

    def test_rows(self):
        sizes, lives = {1: 1000, 2: 2000, 3: 700}, {1: (0, 2), 2: (1, 4), 3: (3, 5)}
        plan = pagestash.plan(self.ROWS)
        self.check(plan, sizes, lives)
        self.assertEqual(plan.peak, plan.lower_bound)
        named = [dict(zip(("op", "id", "size"), row)) for row in self.ROWS]
        self.assertEqual(pagestash.plan(named).placements, plan.placements)
        self.assertEqual([of.offset for of in plan.placements], list(plan.offsets))
        pinned = pagestash.plan(self.ROWS, pin={2: 4096, 3: 512}, reserve=[(0, 512), (8192, 9216)])
        self.check(pinned, sizes, lives)
        self.assertEqual(list(pinned.offsets)[1:], [4096, 512])
        self.assertGreaterEqual(pinned.offsets[0], 512)
        self.assertIn("the rows given", str(plan))
        self.assertEqual(plan._repr_html_().count("<tr>"), 2)

    def test_arrays(self):
        plan = pagestash.plan(self.ROWS)
        self.assertEqual(plan.ids.itemsize, 8)
        if "numpy" in sys.modules:
            with self.assertRaises(ValueError):
                plan.offsets[0] = 1
        self.assertEqual(list(pickle.loads(pickle.dumps(plan)).offsets), list(plan.offsets))

    def test_save(self):
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs, out = (os.path.join(folder, name) for name in ("ours", "theirs", "out"))
            plan = pagestash.plan(minimalloc=MINIMALLOC, out=out)
            plan.save(ours)
            subprocess.run([command.command_path(), "plan", "--minimalloc", MINIMALLOC, "--out", theirs],
                           check=True, stdout=subprocess.DEVNULL)
            contents = []
            for name in (ours, theirs, out):
                with open(name, "rb") as file:
                    contents.append(file.read())
            self.assertEqual(contents[0], contents[1])
            self.assertEqual(contents[0], contents[2])
            with self.refused("save: .*absent/plan: No such file"):
                plan.save(os.path.join(folder, "absent", "plan"))
            os.mkdir(os.path.join(folder, "taken"))
            with self.refused("save: .*taken: Is a directory"):
                plan.save(os.path.join(folder, "taken"))
            self.assertEqual(sorted(os.listdir(folder)), ["ours", "out", "taken", "theirs"])

    def test_no_is_an_answer(self):
        plan = pagestash.plan(minimalloc=MINIMALLOC, capacity=1000)
        self.assertEqual((plan.status, plan.fits, plan.peak, len(plan.offsets)),
                         ("impossible", False, None, 0))
        self.assertIn("are live at instant", plan.reason)
        self.assertIn(plan.reason, str(plan))
        with self.refused("save: there is no plan to write: --capacity 1000: impossible"):
            plan.save("plan.csv")
        plan = pagestash.plan(self.ROWS, gpu_memory="1KiB",
                              routing=os.path.join(ROOT, "bench", "data", "bytelm-e8-top2-l4.csv"))
        self.assertEqual((plan.status, plan.memory.fits, plan.fits), ("optimal", False, False))

    def test_snapshot(self):
        events = [{"action": "alloc", "addr": 4096, "size": 512, "stream": 0},
                  {"action": "alloc", "addr": 8192, "size": 1024, "stream": 0},
                  {"action": "free_completed", "addr": 4096, "size": 512, "stream": 0}]
        plan = pagestash.plan(pytorch={"device_traces": [events]})
        self.assertEqual((plan.tensors, plan.peak), (2, 512 + 1024))

    def test_refuses(self):
        with self.refused("nope: No such file or directory", 3):
            pagestash.plan("nope")
        with self.refused("standard input:2: field size", 3):
            pagestash.plan([("malloc", 1)])
        with self.refused("--capacity", 2):
            pagestash.plan(self.ROWS, capacity=-1)
        with self.refused("no trace given: allowed is one of trace, memo"):
            pagestash.plan()
        with self.refused("trace and memo given"):
            pagestash.plan("a", memo="b")
        for name, value in (("trace", 3), ("memo", self.ROWS), ("stalloc", 1.5), ("pytorch", b"")):
            with self.refused(f"{name} is a .*: allowed is a file"):
                pagestash.plan(**{name: value})
        for row, text in ((("a,b",), "comma"), (("malloc", 1, "2\n3"), "end of a line"), ("row", "a tuple"),
                          ({"sise": 1}, "'sise': allowed are op, id"), (range(10), "10 fields: allowed are 9")):
            with self.refused(f"plan: row 1: .*{text}"):
                pagestash.plan([self.ROWS[0], row])
        for name in ("json", "mip_model"):
            with self.refused(f"plan: {name} is no argument here"):
                pagestash.plan(self.ROWS, **{name: "x"})


class TheCommand(CommandTest):
    def test_interrupted(self):
        """The command is told to end before KeyboardInterrupt goes on, and has ended."""
        with tempfile.TemporaryDirectory() as folder:
            path, told, begun = (os.path.join(folder, name) for name in ("pagestash", "told", "begun"))
            with open(path, "w", encoding="ascii") as file:
                file.write(f"#!/bin/sh\ntrap 'echo $$ >{told}; exit' TERM\necho >{begun}\n"
                           "while :; do sleep 0.02; done\n")
            os.chmod(path, 0o755)
            def interrupt():
                while not os.path.exists(begun):
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGINT)
            thread = threading.Thread(target=interrupt)
            with variable("PAGESTASH_COMMAND", path), self.assertRaises(KeyboardInterrupt):
                thread.start()
                pagestash.estimate(preset="llama2-7b")
            thread.join()
            with open(told, encoding="ascii") as file:
                pid = int(file.read())
            with self.assertRaises(ProcessLookupError):
                os.kill(pid, 0)

    def test_absent(self):
        with variable("PAGESTASH_COMMAND", "/nowhere/pagestash"):
            with self.refused("cannot run /nowhere/pagestash: No such file"):
                pagestash.estimate(preset="llama2-7b")
        with variable("PAGESTASH_COMMAND", ""), variable("PATH", "/nowhere"):
            try:
                command.command_path()
            except pagestash.Error as error:
                self.assertIn("neither with this Python's scripts nor in PATH", str(error))

    def test_another(self):
        """Of another version, or no such program at all."""
        other = json.dumps({"version": "9.8.7"})
        scripts = {f"echo '{other}'": "is version 9.8.7, and this package",
                   "[ $1 != --version ] || echo pagestash 9.8.7; exit 2": "is version 9.8.7, and this package",
                   "echo no json": "is version json, and this package",
                   "kill -9 $$": "is version unknown"}
        for script, text in scripts.items():
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "pagestash")
                with open(path, "w", encoding="ascii") as file:
                    file.write(f"#!/bin/sh\n{script}\n")
                os.chmod(path, 0o755)
                with variable("PAGESTASH_COMMAND", path), self.refused(text):
                    pagestash.estimate(preset="llama2-7b")


if __name__ == "__main__":
    unittest.main()
