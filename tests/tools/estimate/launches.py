"""Launch lines that tests of `pagestash estimate` share, and what they read of its reports."""
import os

import reports
from cli import CommandTest, run

GIB = 1 << 30
LLAMA = ["--preset", "llama2-7b", "--bf16", "--use-distributed-optimizer", "--use-flash-attn"]
MIXTRAL = ["--preset", "mixtral-8x7b", *LLAMA[2:]]


def lines(name):
    path = os.path.join(os.path.dirname(__file__), *[os.pardir] * 2, "data", "estimator", name)
    with open(path, encoding="ascii") as file:
        return [line.split() for line in file if line.strip() and line[0] != "#"]


RUNS = {name: flags for name, *flags in lines("runs.txt")}


def estimate(*arguments):
    result = run("estimate", "--json", *arguments)
    if result.returncode:
        raise AssertionError(f"{arguments}: {result.stderr}")
    return reports.load(result.stdout)


def world(gpus, t=1, p=1, v=1, c=1, ep=1, etp=None, batch=64, b=1, s=4096):
    flags = ["--nproc-per-node", gpus, "--nnodes", 1, "--tensor-model-parallel-size", t,
             "--pipeline-model-parallel-size", p, "--context-parallel-size", c,
             "--micro-batch-size", b, "--global-batch-size", batch, "--seq-length", s]
    flags += ["--sequence-parallel"] if t > 1 else []
    flags += ["--num-virtual-stages-per-pipeline-rank", v] if v > 1 else []
    flags += ["--expert-model-parallel-size", ep] if ep > 1 else []
    return flags + ([] if etp is None else ["--expert-tensor-parallel-size", etp])


class EstimateTest(CommandTest):
    def object(self, *flags, code=0, repeat=True):
        """The report; repeat: one that another run says to the byte."""
        result = run("estimate", *flags, "--json")
        self.assertEqual((result.returncode, result.stderr), (code, ""), result)
        if repeat:
            self.assertEqual(run("estimate", *flags, "--json").stdout, result.stdout)
        return reports.load(result.stdout)

    def fit(self, *flags, code=None):
        result = run("estimate", *flags, "--fit", "--json")
        self.assertIn(result.returncode, (0, 1) if code is None else (code,), result)
        keys = reports.load(result.stdout)
        self.assertEqual(keys["fits"], result.returncode == 0)
        return keys
