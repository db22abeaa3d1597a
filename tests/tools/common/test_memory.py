#!/usr/bin/env python3
"""Every allocation of a command fails once: test_memory.py BINARY SOURCE_FOLDER FAIL_MALLOC_LIBRARY

Either the command says so in one line and exits 1, or its report is the same as with memory. Two ways to
fail: all from one on, and one alone. Each allocation is tried in one of them, with PSTI_TEST_LONG in both.
"""
import concurrent.futures
import os
import re
import resource
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean

import cli
from cli import CommandTest, run

LIBRARY = None
MINIMALLOC = "id,lower,upper,size\n0,0,4,16\n1,2,6,8\n2,5,9,16\n"


def numbers_apart(text):
    """Times differ from run to run."""
    return re.sub(r"[0-9.]+", "N", text)


class Memory(CommandTest):
    def count(self, *arguments):
        reader, writer = os.pipe()
        environment = dict(os.environ, LD_PRELOAD=LIBRARY, PSTI_COUNT_MALLOC=str(writer))
        subprocess.run([cli.BINARY, *map(str, arguments)], env=environment, check=True,
                       pass_fds=(writer,), stdout=subprocess.DEVNULL, timeout=240)
        os.close(writer)
        with os.fdopen(reader) as file:
            return int(file.read())

    def check(self, *arguments, least, warnings=""):
        """`least`: allocations that there are at least, or nothing was tried; `warnings`: said before anything."""
        count = self.count(*arguments)
        self.assertGreaterEqual(count, least)
        whole = run(*arguments)
        self.assertEqual((whole.returncode, whole.stderr), (0, warnings))

        def fail(successes):
            return run(*arguments, env={"LD_PRELOAD": LIBRARY, "PSTI_FAIL_MALLOC": successes})
        modes = ("", " once")
        cases = [f"{i}{mode}" for i in range(count) for mode in modes
                 if os.environ.get("PSTI_TEST_LONG") or mode == modes[i % 2]]
        refusals = 0
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for case, result in zip(cases, pool.map(fail, cases)):
                with self.subTest(arguments=arguments, case=case):
                    if result.returncode == 0:
                        self.assertEqual(result.stderr, warnings)
                        self.assertEqual(numbers_apart(result.stdout), numbers_apart(whole.stdout))
                        continue
                    refusals += 1
                    result.stderr = result.stderr.removeprefix(warnings)
                    self.refused(result, 1, "pagestash: ", "memory")
                    self.assertNotIn("exceeds", result.stderr)  # memory that is modelled
        self.assertGreaterEqual(refusals, len(cases) // 2)

    # Fault rows 42.
    def test_a_limit_of_addresses(self):
        """`ulimit -v`: free is what it leaves, not what the machine has."""
        limit = 1 << 28
        result = run("replay", "--routing", self.trace(), "--device", "host", "--hidden-size", 65536,
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        self.refused(result, 1, "device host: the ")
        needed, free = map(int, re.search(r"needs (\d+) bytes, (\d+) are free\n", result.stderr).groups())
        self.assertLess(free, needed)
        self.assertLess(needed, limit)

    def test_estimate_of_a_hugging_face_config(self):
        config = os.path.join(cli.SOURCE, "tests/data/hf/deepseek-v3.json")
        self.check("estimate", "--hf-config", config, "--micro-batch-size", 1, "--seq-length", 4096,
                   least=150)

    def test_estimate_with_a_routing_trace(self):
        self.check("estimate", "--preset", "mixtral-8x7b", "--routing", self.trace(1, 1), least=20)

    def test_estimate_of_a_search(self):
        self.check("estimate", "--preset", "gpt2-124m", "--search", "--num-layers", 2, least=100)

    def test_estimate_of_what_fits(self):
        self.check("estimate", "--preset", "llama2-7b", "--num-layers", 4, "--world-size", 8, "--global-batch-size", 16,
                   "--fit", "--attention-backend", "unfused", least=50)

    def test_estimate_with_a_picture(self):
        """Which is only there where all is well; the report is also where the picture had no memory."""
        path = self.path("page")
        arguments = ["estimate", "--preset", "gpt2-124m", "--num-layers", 1, "--html", path]
        whole, refusals = run(*arguments).stdout, 0
        for i in range(0, self.count(*arguments), 3):
            if os.path.exists(path):
                os.unlink(path)
            result = run(*arguments, env={"LD_PRELOAD": LIBRARY, "PSTI_FAIL_MALLOC": f"{i} once"})
            with self.subTest(i=i):
                self.assertEqual((result.returncode == 0, os.path.exists(path)), 2 * (result.returncode == 0,))
                if result.returncode != 0:
                    refusals += 1
                    self.assertIn(result.stdout, ("", whole))
                    self.assertEqual(result.returncode, 1)
                    self.assertRegex(result.stderr, "^pagestash: .*memory.*\n$")
        self.assertGreater(refusals, 10)

    def test_estimate_of_unknown_flags(self):
        self.check("estimate", "--preset", "pr482-gpt", "--use-distributed-optimizer", "--use-flash-attn",
                   "--compat", "pr482", "--foo", "--lr", 1, "--lr", 2, least=30,
                   warnings="pagestash: unknown flags: --foo\n"
                            "pagestash: flags given twice, of which the last counts: --lr\n")

    def test_options(self):
        self.check("plan", "--help", least=3)
        self.check("env", least=3)

    # Fault rows 42.
    def test_replay(self):
        self.check("replay", "--routing", self.trace(2, 2), "--device", "host", "--hidden-size", 8,
                   "--moe-ffn-hidden-size", 8, least=80)

    def test_simulate(self):
        base = ["simulate", "--micro-batches", 2, "--stages", 2, "--layers", 2]
        pages = self.write("chunk,layer,micro_batch,pages\n" + "".join(
            f"{c},{n},{i},2\n" for c in range(2) for n in range(2) for i in range(2)), "pages")
        self.check(*base, "--schedule", "zb-v", "--visit-pages", pages, "--forward-ns", 3,
                   "--streams", 2, "--html", self.path("html"), "--perfetto", self.path("perfetto"),
                   "--list", self.path("list"), least=80)
        self.check("simulate", "--schedule", f"list:{self.path('list')}", "--layers", 1,
                   "--chunk-order", "v", least=40)
        self.check("simulate", "--schedule", "1f1b", "--micro-batches", 1, "--layers", 1, "--solve",
                   "--gpu-memory", "1GiB", "--set-memory", 1, "--rule", "asap", "--sources", 2,
                   "--ahead", 1, "--streams", 1, "--offload", "0=0/1", least=40)
        config = self.write("--preset mixtral-8x7b --seq-length 64 --global-batch-size 2", "config")
        self.check("simulate", "--config", config, "--balanced", "--layers", 1, least=60)
        self.check(*base, "--schedule", "1f1b", "--routing", self.trace(2, 2), "--hidden-size", 8,
                   "--moe-ffn-hidden-size", 8, "--check", "host", "--compare", "--json", least=120)

    def test_trace_and_plan(self):
        path = self.write(MINIMALLOC)
        self.check("trace", "--minimalloc", path, "--json", "--out", self.path("out"), least=70)
        self.check("plan", "--minimalloc", path, least=40)


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE, LIBRARY = (os.path.abspath(path) for path in sys.argv[1:4])
    unittest.main(argv=sys.argv[:1])
