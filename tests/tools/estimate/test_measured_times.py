"""`pagestash estimate --gpu`: its times against steps that others have measured (tests/data/measured/times), and what it
is asked.

test_measured_times.py BINARY SOURCE [--show]: the latter prints the table.
"""
import functools
import os
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import cli
import reports
from cli import CommandTest, run

FOLDER = os.path.join(os.path.dirname(__file__), *[os.pardir] * 2, "data", "measured", "times")


def rows():
    """Name, milliseconds measured, percent allowed, flags."""
    kinds = {}
    with open(os.path.join(FOLDER, "steps.txt"), encoding="ascii") as file:
        for line in file:
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if words[0] == "kind":
                kinds[words[1]] = kinds.get(words[2], [words[2]]) + words[3:]
                continue
            name, measured, allowed, kind, *flags = words
            flags = [os.path.join(FOLDER, word) if word.endswith(".json") else word
                     for word in kinds[kind] + flags]
            yield name, float(measured), float(allowed), flags


def predict(flags):
    """Milliseconds, and what they are made of."""
    result = run("estimate", "--json", *flags)
    if result.returncode:
        raise AssertionError(f"{flags}: {result.stderr}")
    step = reports.load(result.stdout)["step"]
    return step["step_ns"] / 1e6, step


@functools.cache
def predictions():
    """Of each row: name, milliseconds measured, percent allowed, milliseconds predicted, percent off, and parts."""
    found = []
    for name, measured, allowed, flags in rows():
        predicted, step = predict(flags)
        found.append((name, measured, allowed, predicted, (predicted / measured - 1) * 100, step))
    return found


def summary():
    """Number of rows; median, mean and largest error in percent."""
    sizes = sorted(abs(error) for _, _, _, _, error, _ in predictions())
    return len(sizes), sizes[len(sizes) // 2], sum(sizes) / len(sizes), sizes[-1]


def text_of(name):
    with open(os.path.join(cli.SOURCE, name), encoding="utf-8") as file:
        return " ".join(file.read().split())


class MeasuredTimes(CommandTest):
    def test_errors(self):
        """No error is above what the table allows, nor so far below it that the table is out of date."""
        for name, _, allowed, predicted, error, _ in predictions():
            self.assertLessEqual(abs(error), allowed, (name, predicted))
            self.assertGreater(abs(error), allowed - 0.11, (name, predicted))

    def test_documents(self):
        """Say these errors and no others."""
        num, median, mean, largest = summary()
        self.assertIn(f"(median error {median:.0f} %)", text_of("README.md"))
        page = text_of("docs/estimator.md")
        self.assertIn(f" {num} public steps (", page)
        self.assertIn(f"the median error of all rows is {median:.1f} %, the mean {mean:.1f} %, the largest {largest:.1f} %.",
                      page)


LLAMA = ("--preset", "llama2-7b", "--tensor-model-parallel-size", 8, "--world-size", 16, "--sequence-parallel",
         "--global-batch-size", 16)


class Gpu(CommandTest):
    def step(self, *flags):
        result = run("estimate", "--json", *LLAMA, *flags)
        self.assertEqual(result.returncode, 0, result)
        return reports.load(result.stdout)["step"]

    def rates(self, text):
        return self.write(text, "rates.json")

    def test_report(self):
        self.assertIsNone(self.step())
        step = self.step("--gpu", "h100")
        parts = sum(step[key] for key in ("products_ns", "memory_ns", "exposed_ns", "bubble_ns"))
        self.assertEqual(parts, step["span_ns"])
        self.assertEqual(step["step_ns"], step["span_ns"] + step["gradients_ns"] + step["params_ns"]
                         + step["optimizer_ns"])
        self.assertEqual(step["tokens"], 16 * 4096)
        self.assertEqual(step["tokens_per_second"], int(step["tokens"] / (step["step_ns"] * 1e-9 * 16)))
        text = run("estimate", *LLAMA, "--gpu", "h100").stdout
        self.assertIn(f"a step on h100, predicted: {step['step_ns'] / 1e6:.1f} ms", text)

    def test_overlaps(self):
        """Each flag takes something away, and from the transfers that it is about."""
        plain = self.step("--gpu", "h100", "--use-distributed-optimizer")
        for flag, key in (("--tp-comm-overlap", "exposed_ns"), ("--overlap-grad-reduce", "gradients_ns"),
                          ("--overlap-param-gather", "params_ns")):
            with self.subTest(flag=flag):
                self.assertLess(self.step("--gpu", "h100", "--use-distributed-optimizer", flag)[key],
                                plain[key])

    def test_nodes(self):
        self.assertGreater(self.step("--gpu", "h100", "--gpus-per-node", 4)["exposed_ns"],
                           self.step("--gpu", "h100")["exposed_ns"])
        self.assertEqual(self.step("--gpu", "h100", "--gpus-per-node", 8)["step_ns"],
                         self.step("--gpu", "h100")["step_ns"])

    def test_rates(self):
        path = self.rates('{"gpu": "h100", "source": "nobody"}')
        plain = self.step("--gpu", "h100")
        same = self.step("--gpu", path)
        self.assertEqual({**plain, "gpu": path}, same)
        for key, changed in (("product_per_mille", "products_ns"), ("memory_rate", "memory_ns"),
                             ("link_ns", "exposed_ns")):
            with self.subTest(key=key):
                path = self.rates(f'{{"gpu": "h100", "{key}": {500 if key[0] == "p" else 10**6}}}')
                self.assertGreater(self.step("--gpu", path)[changed], plain[changed])

    def test_names(self):
        for text, code, *words in (("v100", 2, "--gpu v100: allowed are a100, h100,", "or a file of rates"),
                                   ("none.json", 3, "none.json: No such file")):
            with self.subTest(text=text):
                result = run("estimate", *LLAMA, "--gpu", text)
                self.refused(result, code, *words)

    def test_bad_files(self):
        for text, code, *words in (
                ("{", 3, "rates.json: line 1"),
                ('["h100"]', 3, "rates.json: not a JSON object"),
                ("{}", 3, 'an object with a GPU\'s name as "gpu"'),
                ('{"gpu": "v100"}', 3, "name v100"),
                ('{"gpu": "h100", "flop": 1}', 3, "flop: no such key"),
                ('{"gpu": "h100", "flops": 1.5}', 3, "flops: allowed is an integer 0.."),
                ('{"gpu": "h100", "node_gpus": 4294967296}', 3, "node_gpus: allowed"),
                ('{"gpu": "h100", "flops": -1}', 3, "flops: allowed"),
                ('{"gpu": "h100", "link_ns": 1, "link_ns": 2}', 3, "duplicate"),
                ('{"gpu": "h100", "flops": 0}', 2, "gpu.flops 0")):
            with self.subTest(text=text):
                result = run("estimate", *LLAMA, "--gpu", self.rates(text))
                self.refused(result, code, *words)


def show():
    for name, measured, allowed, predicted, error, step in predictions():
        print(f"{name:22} measured {measured:8.1f} ms predicted {predicted:8.1f} {error:+6.1f} %"
              f" (allowed {allowed}): products {step['products_ns'] / 1e6:.0f}, others"
              f" {step['memory_ns'] / 1e6:.0f}, exposed {step['exposed_ns'] / 1e6:.0f}, bubble"
              f" {step['bubble_ns'] / 1e6:.0f}")
    num, median, mean, largest = summary()
    print(f"{num} steps: median error {median:.1f} %, mean {mean:.1f} %, largest {largest:.1f} %")


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE = sys.argv[1:3]
    if sys.argv[3:] == ["--show"]:
        show()
    else:
        unittest.main(argv=sys.argv[:1] + sys.argv[3:])
