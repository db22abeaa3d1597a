"""What `pagestash estimate` is asked: lines of a table, words, files of models and of vocabularies.

test_estimate_flags.py ESTIMATE_MAIN SOURCE
"""
import copy
import json
import os
import re
import shlex
import subprocess
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import cli
from cli import CommandTest, run

GPT = """--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024
    --max-position-embeddings 1024 --vocab-size 50257 --bf16""".split()
MOE = "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 512 --vocab-size " \
      "1000 --disable-bias-linear --num-experts 8 --bf16".split()
WORDS = {"$GPT": GPT, "$MOE": MOE, "$GPT_LAYERS": GPT[2:], "$MOE_LAYERS": MOE[2:],
         "$GPT_FP32": GPT[:-1]}
FILES = {"llama-2-7b": "llama2-7b", "mixtral-8x7b": "mixtral-8x7b",
         "qwen3-30b-a3b": "qwen3-30b-a3b", "deepseek-v3": "deepseek-v3"}


def data(*names):
    return os.path.join(cli.SOURCE, "tests", "data", *names)


class FlagsTest(CommandTest):
    def read(self, *flags):
        """Values by name; of notes, lists. Warnings are said on stderr too."""
        result = run(*flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        values = {"assumption": [], "warning": [], "unmodelled": [], "matters": []}
        for line in result.stdout.splitlines():
            name, _, value = line.partition(" ")
            if name in ("assumption", "warning", "unmodelled", "matters"):
                values[name].append(value)
            else:
                self.assertNotIn(name, values)
                values[name] = int(value) if value.isdigit() and name != "is_moe" else value
        self.assertEqual(result.stderr.count("\n"), len(values["warning"]), result.stderr)
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
        with open(data("hf", name + ".json"), encoding="utf-8") as file:
            return json.load(file)


class Lines(FlagsTest):
    def line(self, flags, expected):
        words = [word for part in shlex.split(flags) for word in WORDS.get(part, [part])]
        if re.match(r"\d: ", expected):
            self.bad(words, int(expected[0]), *expected[3:].split(" | "))
            return
        values = self.read(*words)
        for word in shlex.split(expected):
            name, _, value = word.partition("=")
            if name[0] == "~":
                self.assertEqual(sum(word[1:] in note for note in values["assumption"]), 1, flags)
                continue
            got = values[name]
            self.assertEqual("; ".join(got) if isinstance(got, list) else str(got), value,
                             (flags, name))

    def test_lines(self):
        with open(data("estimator", "lines.txt"), encoding="ascii") as file:
            lines = [line for line in file.read().splitlines() if line and line[0] != "#"]
        self.assertGreater(len(lines), 250)
        for line in lines:
            self.line(*line.split(" => "))

    def test_words(self):
        dashes = self.read(*GPT)
        spelled = ["--num_layers=24", "--hidden_size=1024", "--num-attention_heads", "16",
                   "--seq_length=1024", "--max_position_embeddings=1024", "--vocab_size=50257",
                   "--bf16"]
        self.assertEqual(self.read(*spelled), dashes)
        more = ["--lr", "-1", "--adam-eps=-1e-5", "--min-lr", "-.5", "--data-path", "a", "-1", "b",
                "--profile-ranks", "0", "1"]
        self.assertEqual(self.read(*GPT, *more), dashes)
        self.assertEqual(self.read(*more, *GPT), dashes)

    def test_words_that_are_long_or_strange(self):
        values = self.read("--a\nb\x7f", "--" + "c" * 99999, *GPT, "--optimizer", "x\ty")
        self.assertEqual(values["warning"], [f"unknown flags: --a?b?, --{'c' * 78}"])
        self.assertEqual(values["unmodelled"], ["--optimizer x?y (counted as adam)"])
        for text in ("(" * 5000, "(" * 50000 + "[1]*8" + ")" * 50000):
            self.bad([*MOE, "--moe-layer-freq", text], 2, "--moe-layer-freq")

    def test_numbers(self):
        for flag in ("--num-layers", "--tensor-model-parallel-size", "--micro-batch-size"):
            for value in ("0", "-1", "1.5", "1e3", "12x", "nan", "0x10", " 1", "",
                          str(2**63), str(2**64), "9" * 200):
                self.bad([*MOE[2:], flag, value], 2, flag, value[:80], "1..9223372036854775807")

    def test_known(self):
        """Every list is sorted, no flag is in two, and each has as many values as its list says."""
        folder = os.path.join(cli.SOURCE, "tools/estimate")
        with open(os.path.join(folder, "estimate_known.txt"), encoding="ascii") as file:
            text = re.sub("#.*", "", file.read())
        with open(os.path.join(folder, "estimate_table.h"), encoding="ascii") as file:
            found = [name.replace("_", "-") for name in
                     re.findall(r"^    (?:FLAG|OPTION|SETS|FEEDS)\((\w+)", file.read(), re.M)]
        self.assertGreater(len(found), 100)
        words, noted = [], []
        for name, body in re.findall(r"(\S+):\n([^:]*)$", text, re.MULTILINE):
            names = body.split()
            self.assertEqual(names, sorted(names))
            found += names
            values = {"switches": [], "values": ["-1"], "lists": ["a", "-1"]}
            kind = name.split("-")[1]
            for flag in names:
                words += ["--" + flag, *values[kind]]
                shown = {"switches": "", "values": " -1", "lists": " a ..."}[kind]
                if not name.startswith("harmless"):
                    noted.append(f"--{flag}{shown}")
        self.assertEqual(len(found), len(set(found)))
        self.assertGreater(len(found), 900)
        self.assertEqual(self.read(*GPT, *words)["unmodelled"], noted)


class Files(FlagsTest):
    def test_vocabulary(self):
        base = [word for word in GPT if word not in ("--vocab-size", "50257")]
        path = self.write(json.dumps({f"w{i}": i for i in range(300)}), "vocab.json")
        self.expect([*base, "--vocab-file", path], vocab_size=300)
        self.expect([*base, "--vocab-file", self.path("absent"), "--vocab-size", 7], vocab_size=7)
        self.bad([*base, "--vocab-file", self.path("absent")], 3, "absent", "No such file")
        self.bad([*base, "--vocab-file", self.write("[1]", "list")], 3, "list", "object")
        self.bad([*base, "--vocab-file", self.write("{}", "none")], 3, "none", "empty")

    def test_files(self):
        for name, preset in FILES.items():
            with self.subTest(name=name):
                path = data("hf", name + ".json")
                values, same = self.read("--hf-config", path), self.read("--preset", preset)
                skipped = ("preset", "hf_config", "assumption", "head_size")
                for key in same:
                    if key not in skipped:
                        self.assertEqual(values[key], same[key], key)
        self.assertTrue(any("--mtp-num-layers 0" in line and "1" in line
                            for line in values["assumption"]))

    def test_published(self):
        with open(data("hf", "published.json"), encoding="ascii") as file:
            models = json.load(file)
        for model in models:
            path = self.write(json.dumps(model["config"]), "c.json")
            self.expect(["--hf-config", path], total=model["total"])

    def of(self, name, **changes):
        config = self.hf(name)
        config.update(changes)
        return self.write(json.dumps({k: v for k, v in config.items() if v != "absent"}), "c.json")

    def test_kinds(self):
        def expect(path, **expected):
            self.expect(["--hf-config", path], **expected)
        qwen = self.hf("qwen3-30b-a3b")
        expect(self.of("llama-2-7b", model_type="qwen2", num_key_value_heads=4), has_qkv_bias=1,
               num_kv_heads=4, is_tied=0)
        expect(self.of("llama-2-7b", model_type="mistral", head_dim=64, tie_word_embeddings=True,
                       max_position_embeddings=2048), head_size=64, is_tied=1, sequence_size=2048)
        expect(self.of("llama-2-7b", model_type="qwen3"), head_size=128, qk_norm=1)
        expect(self.of("llama-2-7b", model_type="olmo2", num_key_value_heads="absent"), qk_norm=2,
               num_kv_heads=32)
        expect(self.of("qwen3-30b-a3b", model_type="olmoe"), qk_norm=2, expert_ffn_size=6144)
        expect(self.of("qwen3-30b-a3b", mlp_only_layers=[0, 5], decoder_sparse_step=2),
               is_moe="01010001" + "01" * 20, ffn_size=6144)
        expect(self.of("qwen3-30b-a3b", model_type="qwen2_moe",
                       shared_expert_intermediate_size=1024),
               has_qkv_bias=1, shared_ffn_size=1024, has_shared_gate=1, qk_norm=0)
        expect(self.of("deepseek-v3", model_type="deepseek_v2", q_lora_rank=None,
                       n_shared_experts=2, first_k_dense_replace=1),
               q_rank=0, has_router_bias=0, shared_ffn_size=4096, is_moe="0" + "1" * 60)
        expect(self.of("deepseek-v3", model_type="kimi_k2"), has_router_bias=1)
        expect(self.of("deepseek-v3", n_routed_experts=None), num_experts=0, is_moe="")
        glm = {**qwen, "model_type": "glm4_moe", "attention_bias": True, "use_qk_norm": True,
               "n_routed_experts": 128, "n_shared_experts": 1, "first_k_dense_replace": 1}
        expect(self.write(json.dumps(glm), "glm.json"), has_qkv_bias=1, qk_norm=1,
               has_router_bias=1, shared_ffn_size=768, is_moe="0" + "1" * 47)
        gpt2 = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12,
                "n_positions": 1024, "vocab_size": 50257}
        expect(self.write(json.dumps(gpt2), "gpt2.json"), total=124439808,
               has_hidden_dropout=1, sequence_size=1024)
        nested = {"model_type": "seen", "text_config": self.hf("llama-2-7b")}
        values = self.read("--hf-config", self.write(json.dumps(nested), "nested.json"))
        self.assertEqual(values["total"], 6738415616)
        self.assertIn("text_config", values["assumption"][0])
        nested["tie_word_embeddings"] = True
        del nested["text_config"]["tie_word_embeddings"]
        expect(self.write(json.dumps(nested), "nested.json"), is_tied=1)
        expect(self.of("deepseek-v3", hidden_size=7000), kv_rank=512)
        values = self.read("--hf-config", self.of("llama-2-7b", attention_bias=True, mlp_bias=True))
        self.assertEqual(values["has_qkv_bias"], 1)
        self.assertEqual(len(values["unmodelled"]), 2)

    def test_kinds_read_in_part(self):
        """What is counted rightly is read, and the rest named."""
        oss = {"model_type": "gpt_oss", "attention_bias": True, "head_dim": 64, "hidden_size": 2880,
               "intermediate_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8,
               "num_hidden_layers": 24, "num_local_experts": 32, "num_experts_per_tok": 4,
               "vocab_size": 201088, "tie_word_embeddings": False, "max_position_embeddings": 131072}
        path = self.write(json.dumps(oss), "oss.json")
        values = self.read("--hf-config", path)
        # published: 20,914,757,184, of which so many are biases of experts, routers, outputs, and sinks
        biases = 24 * (32 * (3 * 2880) + 32 + 2880 + 64)
        self.assertEqual(values["total"], 20914757184 - biases)
        self.assertIn(f"of {path}: biases of experts and routers, and attention's sinks", values["unmodelled"])
        scout = {"model_type": "llama4", "text_config": {
            "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192,
            "intermediate_size_mlp": 16384, "interleave_moe_layer_step": 1, "num_attention_heads": 40,
            "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 48, "num_local_experts": 16,
            "num_experts_per_tok": 1, "vocab_size": 202048, "tie_word_embeddings": False}}
        self.expect(["--hf-config", self.write(json.dumps(scout), "scout.json")], total=107769861120,
                    shared_ffn_size=8192, ffn_size=0, is_moe="")
        text = {**scout["text_config"], "interleave_moe_layer_step": 2}
        self.expect(["--hf-config", self.write(json.dumps(text), "maverick.json")], ffn_size=16384,
                    is_moe="01" * 24)
        for kind, why in (("gemma2", "two more norms"), ("qwen3_next", "linear attention")):
            path = self.of("llama-2-7b", model_type=kind)
            self.bad(["--hf-config", path], 3, f'{path}: model_type "{kind}": its', why, "not modelled")

    def bad_file(self, content, *words):
        path = content if os.path.sep in content else self.write(content, "bad.json")
        self.bad(["--hf-config", path], 3, path, *words)

    # Fault rows 57.
    def test_bad_files(self):
        llama = copy.deepcopy(self.hf("llama-2-7b"))

        def but(**changes):
            return json.dumps({**llama, **changes})
        self.bad_file("", "line 1")
        self.bad_file("{", "line 1")
        self.bad_file("[]", "object")
        self.bad_file("{} {}", "end of file expected")
        self.bad_file('{"a": 1, "a": 2}', "duplicate", "a")
        self.bad_file("[" * 100000, "depth")
        self.bad_file('{"a":' * 100000, "depth")
        self.bad_file('{"a": "\\u0000"}', "NUL")
        self.bad_file('{"a\n": 1}', "line")
        self.bad_file("{\1}", "near '?")
        self.bad_file(but().replace("4096", "NaN"), "NaN")
        self.expect(["--hf-config", self.write(but().ljust(1 << 20), "full.json")], num_layers=32)
        self.bad_file(but().ljust((1 << 20) + 1), "1 MiB")
        self.bad_file(but(hidden_size=2**63), "9223372036854775808")
        self.bad_file(but(hidden_size=2**64), "18446744073709551616")
        for value in (0, -1, 1e30, 1.5, "8", True, [8], {"a": 1}, None):
            self.bad_file(but(hidden_size=value), "hidden_size", "1..9223372036854775807")
            if value is not None:
                self.bad_file(but(num_key_value_heads=value), "num_key_value_heads", "1..")
        self.bad_file(but(tie_word_embeddings=1), "tie_word_embeddings 1", "true or false")
        self.bad_file(but(attention_dropout="x"), "attention_dropout", "below 1")
        self.bad_file(but(model_type="bert"), 'model_type "bert"', "llama", "deepseek_v3", "gpt2")
        self.bad_file(but(model_type=7), "model_type 7")
        self.bad_file(json.dumps({"a": 1}), "model_type: missing")
        moe = self.hf("qwen3-30b-a3b")
        for layers in ([48], [-1], [2**62], ["1"], 7):
            self.bad_file(json.dumps({**moe, "mlp_only_layers": layers}), "mlp_only_layers")
        for kind in (moe, llama):
            self.bad_file(json.dumps({**kind, "num_hidden_layers": 4097}), "layers 4097", "4096")
        deep = {**self.hf("deepseek-v3"), "n_shared_experts": 2**62}
        self.bad_file(json.dumps(deep), "n_shared_experts", "moe_intermediate_size", "64 bits")
        self.bad_file(json.dumps({**deep, "attention_bias": True}), "attention_bias true")
        with open(self.path("large.json"), "wb") as file:
            file.truncate(100 << 20)
        self.bad_file(self.path("large.json"), "1 MiB")
        self.bad_file("/dev/zero", "1 MiB")
        self.bad_file(self.path("absent"), "No such file")
        self.bad_file(self.folder, "directory")
        self.bad_file(self.write(b"\xff\xfe{}", "utf.json"), "line 1")
        self.bad_file(but().replace("4096,", "4096\0,", 1), "NUL")
        os.mkfifo(self.path("pipe"))
        self.bad_file(self.path("pipe"), "line 1")
        self.bad(["--hf-config", self.path("a\nb\x1b[31m")], 3, "a?b?[31m", "No such file")
        self.bad_file(but(hidden_size=4097), "hidden_size (", "4097", "num_attention_heads (", "32")
        self.bad_file(but(num_key_value_heads=5), "num_key_value_heads (", "num_attention_heads (")
        self.bad(["--hf-config", self.of("llama-2-7b"), "--hidden-size", 4097], 2,
                 "--hidden-size 4097", "num_attention_heads (")
        self.bad(["--hf-config", self.of("llama-2-7b"), "--preset", "llama2-7b"], 2, "--preset",
                 "--hf-config")
        self.bad(["--hf-config", self.of("llama-2-7b"), "--pipeline-model-parallel-size", 5], 2,
                 "num_hidden_layers (", "--pipeline-model-parallel-size 5")
        self.bad(["--hf-config", self.of("llama-2-7b"), "--pipeline-model-parallel-size", 4,
                  "--decoder-first-pipeline-num-layers", 7], 2, "num_hidden_layers (", ") 32: 25")
        self.bad(["--hf-config", self.of("mixtral-8x7b"), "--expert-model-parallel-size", "3"], 2,
                 f"num_local_experts ({self.path('c.json')}) 8",
                 "--expert-model-parallel-size 3")

    def test_pipe(self):
        """As `<(command)` of a shell: who writes to it already is waited for."""
        path = self.write(json.dumps(self.hf("llama-2-7b")), "slow.json")
        with subprocess.Popen(["sh", "-c", 'sleep 0.2; cat "$0"', path],
                              stdout=subprocess.PIPE) as writer:
            number = writer.stdout.fileno()
            result = run("--hf-config", f"/dev/fd/{number}", pass_fds=[number])
        self.assertEqual((result.returncode, result.stderr), (0, ""))


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE = sys.argv[1], sys.argv[2]
    unittest.main(argv=sys.argv[:1], verbosity=0)
