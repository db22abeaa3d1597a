"""What the tests of what `pagestash estimate` is asked share: the program that prints what was
understood, and small runs."""
import json
import os

import cli
from cli import CommandTest, run

GPT = """--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024
    --max-position-embeddings 1024 --vocab-size 50257 --bf16""".split()
MOE = "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 512 --vocab-size " \
      "1000 --disable-bias-linear --num-experts 8 --bf16".split()

TOTALS = {
    "gpt2-124m": 124439808, "gpt-345m": 354823168, "gpt3-175b": 174615846912,
    "pr482-gpt": 6641991680, "llama2-7b": 6738415616, "llama2-13b": 13015864320,
    "llama2-70b": 68976648192, "mixtral-8x7b": 46702792704, "qwen3-30b-a3b": 30532122624,
    "qwen3-235b-a22b": 235093634560, "deepseek-v3": 671026404352,
}


class FlagsTest(CommandTest):
    def read(self, *flags, warns=False):
        """Values by name; of notes, lists."""
        result = run(*flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr != "", warns, result.stderr)
        values = {"assumption": [], "warning": [], "unmodelled": []}
        for line in result.stdout.splitlines():
            name, _, value = line.partition(" ")
            if name in ("assumption", "warning", "unmodelled"):
                values[name].append(value)
            else:
                self.assertNotIn(name, values)
                values[name] = int(value) if value.isdigit() and name != "is_moe" else value
        return values

    def expect(self, flags, **expected):
        values = self.read(*flags)
        self.assertEqual({name: values[name] for name in expected}, expected, flags)

    def bad(self, flags, code, *words):
        with self.subTest(flags=flags):
            result = run(*flags)
            self.refused(result, code, *words)
            self.assertNotIn(".c:", result.stderr)
            self.assertTrue(result.stderr[:-1].isprintable(), result.stderr)

    def hf(self, name):
        path = os.path.join(cli.SOURCE, "tests", "data", "hf", name + ".json")
        with open(path, encoding="utf-8") as file:
            return json.load(file)
