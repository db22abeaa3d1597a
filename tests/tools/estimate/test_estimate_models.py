"""Which models `pagestash estimate` is asked for: presets, config.json files, layers and vectors.

test_estimate_models.py ESTIMATE_MAIN SOURCE
"""
import copy
import json
import os
import subprocess
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import cli
from cli import run
from estimate_flags import GPT, MOE, TOTALS, FlagsTest

ACTIVE = {"mixtral-8x7b": 12879925248, "qwen3-30b-a3b": 3353032704,
          "qwen3-235b-a22b": 22190763520, "deepseek-v3": 37552282624}
# Published totals: layers, hidden size, heads, groups, width, vocabulary and what else there is.
LATENTS = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
           "first_k_dense_replace": 1, "num_experts_per_tok": 6, "n_shared_experts": 2}
PUBLISHED = {
    ("mistral", 7241732096): (32, 4096, 32, 8, 14336, 32000, {}),
    ("qwen2", 7615616512): (28, 3584, 28, 4, 18944, 152064, {}),
    ("qwen3", 8190735360): (36, 4096, 32, 8, 12288, 151936, {}),
    ("olmo2", 7298617344): (32, 4096, 32, 32, 11008, 100352, {}),
    ("olmoe", 6919161856): (16, 2048, 16, 16, 1024, 50304, {"num_experts": 64,
                                                            "num_experts_per_tok": 8}),
    ("qwen2_moe", 14315784192): (24, 2048, 16, 16, 5632, 151936, {
        "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632}),
    ("deepseek_v2", 15706484224): (27, 2048, 16, 16, 10944, 102400, {
        **LATENTS, "n_routed_experts": 64, "moe_intermediate_size": 1408, "q_lora_rank": None}),
    ("deepseek_v2", 235741434880): (60, 5120, 128, 128, 12288, 102400, {
        **LATENTS, "n_routed_experts": 160, "moe_intermediate_size": 1536, "q_lora_rank": 1536}),
}
FILES = {"llama-2-7b": "llama2-7b", "mixtral-8x7b": "mixtral-8x7b",
         "qwen3-30b-a3b": "qwen3-30b-a3b", "deepseek-v3": "deepseek-v3"}


class Models(FlagsTest):
    def test_presets(self):
        for name, total in TOTALS.items():
            with self.subTest(name=name):
                values = self.read("--preset", name)
                self.assertEqual((values["total"], values["preset"]), (total, name))
                self.assertEqual(values["active"], ACTIVE.get(name, total))
                is_gpt = "gpt" in name
                self.assertEqual((values["has_hidden_dropout"], values["is_tied"], values["type"]),
                                 (is_gpt, is_gpt, 0))
                self.assertIn("--bf16", values["assumption"])
        self.assertEqual(self.read("--preset", "gpt-345m")["padded"], 354871296)
        self.assertEqual(self.read("--preset", "deepseek-v3")["router_bias"], 14848)
        self.expect(["--preset", "llama2-7b"], sequence_size=4096, micro_batch=1, world_size=1)
        self.bad(["--preset", "llama3"], 2, "llama3", *TOTALS)

    def test_overrides(self):
        self.expect(["--preset", "llama2-7b", "--num-layers", "2", "--hidden-dropout", "0.1",
                     "--seq-length", "8192", "--ffn-hidden-size=512", "--normalization",
                     "LayerNorm", "--num-query-groups", "8", "--fp32", "--vocab-size", "1"],
                    num_layers=2, has_hidden_dropout=1, has_attention_dropout=0, norm=0, type=2,
                    sequence_size=8192, ffn_size=512, num_kv_heads=8, vocab_size=1)
        self.expect(["--preset", "deepseek-v3", "--num-layers", "4", "--moe-layer-freq",
                     "[0]+[1]*3"], is_moe="0111")
        self.bad(["--preset", "deepseek-v3", "--num-layers", "4"], 2, "--num-layers 4", "61",
                 "--moe-layer-freq")
        self.bad(["--preset", "gpt2-124m", "--seq-length", "2048"], 2, "--seq-length 2048",
                 "--max-position-embeddings (--preset gpt2-124m)".split()[0], "1024")

    def test_defaults(self):
        self.expect(GPT, ffn_size=4096, head_size=64, num_kv_heads=16, vocab_multiple=128,
                    is_gated=0, has_linear_bias=1, is_tied=1, norm=0, max_positions=1024,
                    has_hidden_dropout=1, has_attention_dropout=1, fuses_activation=1, loss=0,
                    world_size=1, global_batch=1, recompute=1, moe_rows=0, page_rows=64,
                    headroom_num=11, headroom_den=10, page_bytes=262144, memory_bytes=80 << 30,
                    overhead_bytes=0, num_sms=132, mode=0, gpus_per_node=8, chunk_layers="")
        self.expect([*GPT[:-1]], type=2, gradient_width=4, optimizer_width=8)
        self.expect([*GPT, "--swiglu"], ffn_size=2688, is_gated=1)
        self.expect(MOE, expert_ffn_size=2048, experts_per_token=2, is_moe="",
                    expert_tensor_parallel=1)
        self.expect([*MOE, "--tensor-model-parallel-size", "2", "--sequence-parallel"],
                    expert_tensor_parallel=2, world_size=2)
        self.expect([*MOE, "--tensor-model-parallel-size", "2", "--sequence-parallel",
                     "--expert-tensor-parallel-size", "1", "--expert-model-parallel-size", "4"],
                    expert_tensor_parallel=1, world_size=4, global_batch=2)
        self.expect([*GPT, "--num-query-groups", "4"], num_kv_heads=16)
        self.expect([*GPT, "--num-query-groups", "4", "--group-query-attention"], num_kv_heads=4)
        self.expect([*GPT, "--position-embedding-type", "rope"], max_positions=0)
        self.expect([*GPT, "--multi-latent-attention", "--disable-bias-linear"], kv_rank=32,
                    q_rank=0, qk_size=128, qk_position_size=64, v_size=128)
        self.expect([*GPT, "--qk-layernorm"], qk_norm=1)
        self.expect([*GPT, "--qk-norm", "projection"], qk_norm=2)

    def test_vocabulary(self):
        base = [word for word in GPT if word not in ("--vocab-size", "50257")]
        path = self.write(json.dumps({f"w{i}": i for i in range(300)}), "vocab.json")
        self.expect([*base, "--vocab-file", path], vocab_size=300)
        self.expect([*base, "--vocab-file", self.path("absent"), "--vocab-size", 7], vocab_size=7)
        self.expect([*base, "--padded-vocab-size", 512], vocab_size=512, padded_vocab_size=512)
        self.assertIn("50257", self.read(*base)["assumption"][0])
        self.bad([*base, "--vocab-file", self.path("absent")], 3, "absent", "No such file")
        self.bad([*base, "--vocab-file", self.write("[1]", "list")], 3, "list", "object")
        self.bad([*base, "--vocab-file", self.write("{}", "none")], 3, "none", "empty")

    def test_files(self):
        for name, preset in FILES.items():
            with self.subTest(name=name):
                path = os.path.join(cli.SOURCE, "tests", "data", "hf", name + ".json")
                values, same = self.read("--hf-config", path), self.read("--preset", preset)
                self.assertEqual(values["total"], TOTALS[preset])
                skipped = ("preset", "hf_config", "assumption", "head_size")
                for key in same:
                    if key not in skipped:
                        self.assertEqual(values[key], same[key], key)
        self.assertTrue(any("--mtp-num-layers 0" in line and "1" in line
                            for line in values["assumption"]))

    def test_published(self):
        for (kind, total), (layers, hidden, heads, groups, width, words, more) in PUBLISHED.items():
            config = {"model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden,
                      "num_attention_heads": heads, "num_key_value_heads": groups,
                      "intermediate_size": width, "vocab_size": words, **more}
            self.expect(["--hf-config", self.write(json.dumps(config), "c.json")], total=total)

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
        expect(self.write(json.dumps(gpt2), "gpt2.json"), total=TOTALS["gpt2-124m"],
               has_hidden_dropout=1, sequence_size=1024)
        nested = {"model_type": "seen", "text_config": self.hf("llama-2-7b")}
        values = self.read("--hf-config", self.write(json.dumps(nested), "nested.json"))
        self.assertEqual(values["total"], TOTALS["llama2-7b"])
        self.assertIn("text_config", values["assumption"][0])
        nested["tie_word_embeddings"] = True
        del nested["text_config"]["tie_word_embeddings"]
        expect(self.write(json.dumps(nested), "nested.json"), is_tied=1)
        expect(self.of("deepseek-v3", hidden_size=7000), kv_rank=512)
        values = self.read("--hf-config", self.of("llama-2-7b", attention_bias=True, mlp_bias=True))
        self.assertEqual(values["has_qkv_bias"], 1)
        self.assertEqual(len(values["unmodelled"]), 2)

    def bad_file(self, content, *words):
        path = content if os.path.sep in content else self.write(content, "bad.json")
        self.bad(["--hf-config", path], 3, path, *words)

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


class Vectors(FlagsTest):
    """Rows of estimator.md C.5, from flags: parameters, states, saved, head, total."""

    def rows(self, flags, *rows):
        common = ["--use-distributed-optimizer", "--sequence-parallel", "--expert-tensor-"
                  "parallel-size", 1, "--use-flash-attn"]
        values = self.read("--preset", *flags.split(), *common)
        for stage, *row in rows:
            self.assertEqual(values[f"stage{stage}"], " ".join(map(str, row)), flags)

    def test_dense(self):
        self.rows("llama2-7b --world-size 8 --tensor-model-parallel-size 2 "
                  "--pipeline-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 64",
                  (0, 1684668416, 20216020992, 17264934912, 0, 37480955904),
                  (1, 1684672512, 20216070144, 8632401920, 853655552, 29702127616))
        self.rows("llama2-13b --world-size 16 --tensor-model-parallel-size 4 "
                  "--context-parallel-size 2 --seq-length 8192 --global-batch-size 32",
                  (0, 3254932480, 29294392320, 6759743488, 219205632, 36273341440))
        split = "llama2-70b --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 "
        self.rows(split + "--nproc-per-node 8 --nnodes 8 --global-batch-size 32 "
                  "--num-layers-per-virtual-pipeline-stage 4",
                  (0, 2172977152, 26075725824, 12939542528, 0, 39015268352),
                  (3, 2172985344, 26075824128, 9563815936, 117491712, 35757131776))
        self.rows(split + "--global-batch-size 4 --seq-length 8192 --no-bias-swiglu-fusion "
                  "--tp-recompute-allgather 0",
                  (0, 2172977152, 39113588736, 45991460864, 0, 85105049600))

    def test_experts(self):
        self.rows("mixtral-8x7b --expert-model-parallel-size 8 --global-batch-size 64",
                  (0, 7242780672, 113510873088, 31705825280, 853606400, 146070304768))
        self.rows("qwen3-235b-a22b --world-size 256 --tensor-model-parallel-size 2 "
                  "--pipeline-model-parallel-size 8 --expert-model-parallel-size 32 "
                  "--global-batch-size 1024 --decoder-first-pipeline-num-layers 11 "
                  "--decoder-last-pipeline-num-layers 11",
                  (0, 1539926784, 19737317952, 40738095104, 0, 60475413056),
                  (7, 1539930880, 19737345600, 5092229120, 1902174208, 26731748928))
        deepseek = ("deepseek-v3 --world-size 1024 --pipeline-model-parallel-size 16 "
                    "--expert-model-parallel-size 64 --global-batch-size 8192 ")
        self.rows(deepseek + "--decoder-last-pipeline-num-layers 1",
                  (0, 3086286848, 21177298944, 96966541312, 0, 118143840256),
                  (1, 1636630528, 18450247680, 112487301120, 0, 130937548800),
                  (15, 1335843840, 10346432832, 1874788352, 3294691328, 15515912512))
        layout = "--pipeline-model-parallel-layout Et*4|(tttt|)*14tL "
        self.rows(deepseek + layout + "--moe-buffer worst",
                  (1, 1636630528, 18450247680, 1735667220480, 0, 1754117468160))
        self.rows(deepseek + layout + "--recompute-granularity selective --recompute-modules "
                  "layernorm --recompute-activation-function",
                  (1, 1636630528, 18450247680, 96381173760, 0, 114831421440))


class Layers(FlagsTest):
    def freq(self, text, num_layers, expected):
        flags = [*MOE, "--num-layers", num_layers, "--moe-layer-freq", text]
        values = self.read(*flags, warns=True)
        self.assertEqual(values["is_moe"], expected, text)

    def test_freq(self):
        for text, num, expected in (
                ("1", 4, ""), ("2", 5, "10101"), ("9", 3, "100"), ("[1,0]", 2, "10"),
                ("([0]*3+[1]*5)", 8, "00011111"), ("([1]*3+[0]*1)*2", 8, "11101110"),
                ("[0,1]*2 + [1]", 5, "01011"), ("(([0]+[1])*2)*2", 8, "01010101"),
                ("[1]*4", 4, ""), ("[]+[0]+[1]*0", 1, "0"), ("[0]*2*2", 4, "0000")):
            self.freq(text, num, expected)

    def test_bad_freq(self):
        for text in ("0", "-1", "[2]", "[0", "[0]*", "[0]*x", "([0]", "[0])", "[0]+", "[0][1]",
                     "[0]*99999999999999999999", "[0]*4096*4096", "[0]*5000", "(" * 5000,
                     "(" * 20 + "[1]*8" + ")" * 20, "(" * 50000 + "[1]*8" + ")" * 50000,
                     "[0,]", "1.5", "import os"):
            self.bad([*MOE, "--moe-layer-freq", text], 2, "--moe-layer-freq")
        self.bad([*MOE, "--moe-layer-freq", "[1]*7"], 2, "--moe-layer-freq [1]*7", "7 layers",
                 "--num-layers is 8")

    def chunks(self, expected, *flags, layers=24, stages=4, virtual=1):
        values = self.read(*GPT[2:], "--num-layers", layers, "--pipeline-model-parallel-size",
                           stages, "--global-batch-size", 64, *flags)
        self.assertEqual((values["chunk_layers"], values["virtual_stages"]), (expected, virtual))

    def test_chunks(self):
        self.chunks("")
        self.chunks("", "--num-layers-per-virtual-pipeline-stage", 2, virtual=3)
        self.chunks("", "--num-virtual-stages-per-pipeline-rank", 2, virtual=2)
        self.chunks("4,7,7,6", "--decoder-first-pipeline-num-layers", 4,
                    "--decoder-last-pipeline-num-layers", 6)
        self.chunks("8,6,6,6", "--decoder-first-pipeline-num-layers", 8, layers=26)
        self.chunks("2,3,3,3,2,3,3,3", "--decoder-first-pipeline-num-layers", 4,
                    "--num-virtual-stages-per-pipeline-rank", 2, layers=22, virtual=2)
        self.chunks("5,6,6,6", "--account-for-embedding-in-pipeline-split", layers=23)
        self.chunks("5,6,6,5", "--account-for-embedding-in-pipeline-split",
                    "--account-for-loss-in-pipeline-split", layers=22)
        self.chunks("2,3,3,3,3,3,3,2", "--account-for-embedding-in-pipeline-split",
                    "--account-for-loss-in-pipeline-split",
                    "--num-layers-per-virtual-pipeline-stage", 3, layers=22, virtual=2)
        self.chunks("6,8,8,2", "--pipeline-model-parallel-layout", "Et*6|t*8|t*8|ttL")
        self.chunks("3,2,2,2,2,2,2,0", "--pipeline-model-parallel-layout", "Et*3|(tt|)*6,L",
                    layers=15, virtual=2)

    def test_batch(self):
        flags = [*GPT, "--pipeline-model-parallel-size", 4, "--world-size", 8]
        self.expect(flags, global_batch=2)
        self.expect([*flags, "--num-virtual-stages-per-pipeline-rank", 2, "--micro-batch-size", 3],
                    global_batch=24)

    def test_mtp(self):
        layout = ["--pipeline-model-parallel-size", 4, "--pipeline-model-parallel-layout"]
        base = [*GPT[2:], "--num-layers", 5, "--mtp-num-layers", 1]
        values = self.read(*base, *layout, "Et|tt|tt|mL")
        self.assertEqual((values["chunk_layers"], values["unmodelled"]), ("1,2,2,0", []))
        values = self.read(*base, *layout, "Et|tt|ttm|L")
        self.assertIn("m before the last", values["unmodelled"][0])

    def test_bad_chunks(self):
        base = [*GPT, "--pipeline-model-parallel-size", 4]
        layout = "--pipeline-model-parallel-layout"
        for text in ("", "Et|", "t*24L", "Et*24", "Et*24|x|t|L", "Et*12|E|t*12|L", "E(t*24|||L",
                     "Et*24)|||L", "Et*99999|||L", "E(t*9999|)*9999L", "Etm|t*23||L",
                     "E((t)*2)*12|||L", "Et*24*|||L", "Et*x|||L", "Et*99999999999|||L"):
            self.bad([*base, layout, text], 2, layout)
        self.bad([*base, layout, "Et*24|L"], 2, "stages 2", "--pipeline-model-parallel-size 4")
        self.bad([*base, layout, "Et*23|||L"], 2, "23 layers", "--num-layers is 24")
        self.bad([*base, layout, "Et*24|||mL"], 2, "1 layers m", "--mtp-num-layers is 0")
        self.bad([*base, layout, "Et*24|||L", "--num-virtual-stages-per-pipeline-rank", 2], 2,
                 "--num-virtual-stages-per-pipeline-rank 2", layout)
        self.bad([*base, layout, "Et*24|||L", "--account-for-loss-in-pipeline-split"], 2, layout,
                 "--account-for-loss")
        first, last = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
        self.bad([*base, first, 5], 2, first + " 5", "--num-layers 24", "19", "3 stages")
        self.bad([*base, first, 20, last, 5], 2, first + " 20", last + " 5", "24")
        self.bad([*GPT, first, 20], 2, first + " 20", "--pipeline-model-parallel-size is 1")
        self.bad([*base, first, 6, "--num-virtual-stages-per-pipeline-rank", 2**62], 2,
                 "4611686018427387904", "24")
        self.bad([*base, first, 5, last, 5, "--num-virtual-stages-per-pipeline-rank", 2], 2,
                 first + " 5", "virtual stages 2")
        self.bad([*base, "--account-for-loss-in-pipeline-split"], 2, "25", "4")
        self.bad([*GPT, "--num-layers-per-virtual-pipeline-stage", 4], 2,
                 "--num-layers-per-virtual-pipeline-stage: virtual stages 6")
        self.bad([*base, "--num-layers-per-virtual-pipeline-stage", 4], 2, "--num-layers 24",
                 "--num-layers-per-virtual-pipeline-stage 4")
        self.bad([*base, "--num-layers-per-virtual-pipeline-stage", 2,
                  "--num-virtual-stages-per-pipeline-rank", 2], 2, "one of them")


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE = sys.argv[1], sys.argv[2]
    unittest.main(argv=sys.argv[:1], verbosity=0)
