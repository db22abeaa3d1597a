"""What `pagestash estimate` is asked: launch lines, presets, config.json files.

test_estimate_flags.py ESTIMATE_MAIN SOURCE
"""
import copy
import json
import os
import re
import subprocess
import sys
import unittest

import cli
from cli import CommandTest, run

GPT = """--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024
    --max-position-embeddings 1024 --vocab-size 50257 --bf16""".split()
MOE = "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 512 --vocab-size " \
      "1000 --disable-bias-linear --num-experts 8 --bf16".split()

# Shortened from Megatron-LM's examples/gpt3 and examples/mixtral.
GPT3_LINE = """CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nproc_per_node 8 --nnodes 16
    --master_addr localhost --master_port 29500 pretrain_gpt.py --num-layers 96 --hidden-size 12288
    --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048
    --attention-backend auto --micro-batch-size 1 --global-batch-size 1536 --train-iters 500000
    --weight-decay 0.1 --adam-beta1 0.9 --init-method-std 0.006 --clip-grad 1.0 --fp16 --lr 6.0e-5
    --lr-decay-style cosine --lr-warmup-fraction .001 --tensor-model-parallel-size 8
    --pipeline-model-parallel-size 16 --data-path 0.5 a_document 0.5 b_document
    --merge-file merges.txt --split 949,50,1 --log-interval 100 --eval-iters 10
    --tensorboard-dir logs""".split()
MIXTRAL_LINE = """python -u -m torch.distributed.launch --nproc_per_node=8 --nnodes=4 --node_rank 0
    --use-env ./pretrain_gpt.py --use-mcore-models --disable-bias-linear --seq-length 4096
    --max-position-embeddings 32768 --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32 --init-method-std 0.01 --attention-dropout 0.0 --hidden-dropout 0.0
    --normalization RMSNorm --position-embedding-type rope --swiglu
    --untie-embeddings-and-output-weights --group-query-attention --num-query-groups 8
    --no-masked-softmax-fusion --no-position-embedding --rotary-base 1000000 --num-experts 8
    --moe-router-topk 2 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2
    --moe-grouped-gemm --moe-token-dispatcher-type alltoall --overlap-param-gather
    --overlap-grad-reduce --tokenizer-type Llama2Tokenizer --tokenizer-model t.model
    --data-path d --split 99990,8,2 --micro-batch-size 1 --global-batch-size 256 --lr 1e-4
    --min-lr 1.0e-5 --bf16 --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4
    --expert-model-parallel-size 8 --use-distributed-optimizer --sequence-parallel
    --no-load-optim --no-load-rng""".split()

TOTALS = {
    "gpt2-124m": 124439808, "gpt-345m": 354823168, "gpt3-175b": 174615846912,
    "pr482-gpt": 6641991680, "llama2-7b": 6738415616, "llama2-13b": 13015864320,
    "llama2-70b": 68976648192, "mixtral-8x7b": 46702792704, "qwen3-30b-a3b": 30532122624,
    "qwen3-235b-a22b": 235093634560, "deepseek-v3": 671026404352,
}
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


class Lines(FlagsTest):
    def test_gpt3(self):
        values = self.read(*GPT3_LINE)
        for name, value in {
                "num_layers": 96, "hidden_size": 12288, "ffn_size": 49152, "world_size": 128,
                "tensor_parallel": 8, "pipeline_parallel": 16, "micro_batch": 1, "type": 1,
                "global_batch": 1536, "has_linear_bias": 1, "is_tied": 1, "norm": 0,
                "max_positions": 2048, "has_hidden_dropout": 1, "has_attention_dropout": 1,
                "has_flash_attention": 1, "vocab_size": 50257, "gpus_per_node": 8,
                "gradient_width": 2, "optimizer_width": 16, "distributed_optimizer": 0}.items():
            self.assertEqual(values[name], value, name)
        self.assertEqual(values["warning"] + values["unmodelled"], [])
        for word in ("50257", "flash", "--gpu-memory-gib 80", "--overhead-gib 0"):
            self.assertIn(word, " ".join(values["assumption"]))
        self.assertEqual(len(values["assumption"]), 5)

    def test_mixtral(self):
        values = self.read(*MIXTRAL_LINE)
        self.assertEqual(values["total"], TOTALS["mixtral-8x7b"])
        for name, value in {
                "world_size": 32, "expert_parallel": 8, "num_kv_heads": 8, "norm": 1,
                "max_positions": 0, "is_gated": 1, "has_linear_bias": 0, "is_tied": 0,
                "expert_ffn_size": 14336, "sequence_parallel": 1, "distributed_optimizer": 1,
                "has_hidden_dropout": 0, "vocab_size": 32000, "recompute": 1, "type": 0}.items():
            self.assertEqual(values[name], value, name)
        self.assertEqual(values["warning"], [])
        self.assertEqual(values["unmodelled"], ["--no-masked-softmax-fusion"])

    def test_launchers(self):
        for words in ("torchrun --standalone --nproc-per-node 4 --rdzv-id 5 train.py",
                      "srun -n 4 --mpi=pmix --container-image=x --ntasks-per-node=4 --nodes 1 "
                      "python3.10 /opt/megatron/pretrain_gpt.py",
                      "A=1 B= /usr/bin/env python -m torch.distributed.run --nproc_per_node=4 "
                      "--max_restarts 0 -- ./x.py",
                      "torchrun --nproc_per_node 4 -m megatron.train",
                      "nsys profile -s none -t nvtx,cuda -o out --capture-range=cudaProfilerApi "
                      "torchrun --nproc_per_node 4 pretrain_gpt.py",
                      "--nproc_per_node=4"):
            self.expect(words.split() + GPT, world_size=4, num_layers=24, gpus_per_node=4)
        self.expect("srun -N 2 -J name python x.py --nproc-per-node 3".split() + GPT, world_size=6)
        self.expect("deepspeed --num_gpus 2 --num_nodes 4 x.py".split() + GPT, world_size=8)
        self.expect(["--json", "--", "torchrun", "x.py"] + GPT, json=1, world_size=1)
        self.bad(["torchrun", *GPT], 2, "torchrun", ".py")
        self.bad(["x.py", *GPT, "y.py"], 2, "y.py", "--bf16")
        self.bad([*GPT[:2], "3", *GPT[2:]], 2, '"3"', '"24"')

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
        self.bad([*GPT, "--lr"], 2, "--lr", "value")
        self.bad([*GPT, "--lr", "--min-lr", "1"], 2, "--lr", "value")
        self.bad([*GPT, "--micro-batch-size"], 2, "--micro-batch-size", "value")
        self.bad([*GPT, "--fp16=1"], 2, "--fp16", "no value")
        self.bad([*GPT, "--async-save=1"], 2, "--async-save", "no value")
        self.bad([*GPT, "--lr", "1", "2"], 2, '"2"')

    def test_unknown(self):
        unknown = ["--foo", "1", "2", "--num-layer=9", "-x"]
        values = self.read(*unknown, *GPT, warns=True)
        self.assertEqual(values["warning"], ["unknown flags: --foo, --num-layer, -x"])
        self.assertEqual(run(*unknown, *GPT).stderr.count("\n"), 1)
        values = self.read("--a\nb\x7f", "--" + "c" * 99999, *GPT, "--optimizer", "x\ty",
                           warns=True)
        self.assertEqual(values["warning"], [f"unknown flags: --a?b?, --{'c' * 78}"])
        self.assertEqual(values["unmodelled"], ["--optimizer x?y (counted as adam)"])
        self.bad(["--strict", *unknown, *GPT], 2, "--foo, --num-layer, -x", "--strict")

    def test_twice(self):
        twice = [*GPT, "--micro-batch-size", "2", "--micro-batch-size=3", "--lr", "1", "--lr", "2"]
        values = self.read(*twice, warns=True)
        self.assertEqual(values["micro_batch"], 3)
        self.assertEqual(values["warning"],
                         ["flags given twice, of which the last counts: --micro-batch-size, --lr"])
        self.bad([*twice, "--strict"], 2, "--micro-batch-size, --lr", "--strict")
        self.assertEqual(self.read(*GPT, "--encoder-num-layers", "2", warns=True)["num_layers"], 2)

    def test_unmodelled(self):
        flags = ["--fp8-format", "hybrid", "--use-megatron-fsdp", "--offload-modules", "a", "b",
                 "--cpu-offloading-num-layers=3", "--optimizer", "muon",
                 "--moe-paged-stash-buffer-size-factor-cuda", "-1.1"]
        self.assertEqual(self.read(*GPT, *flags[:2], "--fp8-format", "e4m3",
                                   warns=True)["unmodelled"], ["--fp8-format e4m3"])
        for strict in ([], ["--strict"]):
            self.assertEqual(self.read(*GPT, *flags, *strict)["unmodelled"], [
                "--fp8-format hybrid", "--use-megatron-fsdp", "--offload-modules a ...",
                "--cpu-offloading-num-layers 3", "--optimizer muon (counted as adam)",
                "--moe-paged-stash-buffer-size-factor-cuda -1.1 (counted as 1.1)"])


    def test_assumptions(self):
        notes = self.read(*MOE, "--moe-expert-capacity-factor", 2)["assumption"]
        for word in ("alltoall", "balanced", "--world-size 1,", "--global-batch-size 1:",
                     "--max-position-embeddings 512", "--micro-batch-size 1", "is only a limit"):
            self.assertEqual(sum(word in note for note in notes), 1, word)
        said = ["--moe-token-dispatcher-type", "alltoall", "--routing", "x", "--world-size", 1,
                "--global-batch-size", 1, "--max-position-embeddings", 512, "--micro-batch-size",
                1, "--gpu-memory-gib", 80, "--overhead-gib", 0, "--use-flash-attn",
                "--no-create-attention-mask-in-dataloader"]
        self.assertEqual(self.read(*MOE, *said)["assumption"], [])
        notes = self.read(*GPT, "--group-query-attention")["assumption"]
        self.assertEqual(sum("--num-query-groups 16" in note for note in notes), 1)
        values = self.read(*MOE, "--moe-token-dispatcher-type", "flex")
        self.assertEqual(values["unmodelled"],
                         ["--moe-token-dispatcher-type flex (counted as alltoall)"])
        notes = self.read("--preset", "llama2-7b", "--tensor-model-parallel-size", 2,
                          "--sequence-parallel")["assumption"]
        for word in ("dropout 0, as llama2-7b", "--tp-recompute-allgather 1", "--seq-length 4096",
                     "in-dataloader: else 16 MiB more"):
            self.assertEqual(sum(word in note for note in notes), 1, word)

    def test_values_that_say_none(self):
        """As Megatron-LM takes them."""
        values = self.read(*MOE, "--moe-expert-capacity-factor", "-1.0")
        self.assertEqual((values["has_capacity"], values["caps_each_expert"], values["moe_rows"]),
                         (0, 0, 0))
        self.expect([*GPT, "--num-experts", 0], num_experts=0)
        self.bad([*MOE, "--moe-expert-rank-capacity-factor", "-1"], 2, "--moe-expert-rank")

    def test_more_than_memory(self):
        """Flags that change a batch, the ranks, or what is trained at all."""
        flags = ["--step-batch-size-schedule", "0:16 2B:320", "--skip-train",
                 "--use-tp-pp-dp-mapping", "--apply-query-key-layer-scaling",
                 "--moe-input-jitter-eps", "0.01", "--use-checkpoint-args", "--yaml-cfg", "x"]
        names = [flag for flag in flags if flag.startswith("--")]
        values = self.read(*GPT, *flags)
        self.assertEqual([line.split()[0] for line in values["unmodelled"]], names)

    def test_known(self):
        """Every list is sorted, no flag is in two, and each has as many values as its list says."""
        with open(os.path.join(cli.SOURCE, "tools", "estimate_known.c"), encoding="ascii") as file:
            text = file.read()
        with open(os.path.join(cli.SOURCE, "tools", "estimate_flags.h"), encoding="ascii") as file:
            found = re.findall(r'F\(\w+, \w+,[\s\\]*"([^"]+)"', file.read())
        self.assertGreater(len(found), 100)
        words, noted = [], []
        for name, body in re.findall(r"\*const (\w+)\[\] = \{(.*?)\};", text, re.DOTALL):
            names = " ".join(re.findall(r'"([^"]+)"', body)).split()
            self.assertEqual(names, sorted(names))
            found += names
            values = {"switches": [], "values": ["-1"], "lists": ["a", "-1"]}
            kind = name.split("_")[1]
            for flag in names:
                words += ["--" + flag, *values[kind]]
                shown = {"switches": "", "values": " -1", "lists": " a ..."}[kind]
                if name.startswith("memory"):
                    noted.append(f"--{flag}{shown}")
        self.assertEqual(len(found), len(set(found)))
        self.assertGreater(len(found), 900)
        self.assertEqual(self.read(*GPT, *words)["unmodelled"], noted)


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
                    slack_num=11, slack_den=10, page_bytes=262144, memory_bytes=80 << 30,
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


class Runs(FlagsTest):
    def test_training(self):
        aware = ["--use-precision-aware-optimizer"]
        for flags, gradient, optimizer in (
                (["--bf16"], 4, 12), (["--bf16", "--grad-reduce-in-bf16"], 2, 12),
                (["--fp16"], 2, 16), (["--fp16", "--accumulate-allreduce-grads-in-fp32"], 4, 12),
                (["--fp32"], 4, 8), (["--bf16", "--optimizer", "sgd"], 4, 8),
                (["--bf16", *aware], 4, 10), (["--fp16", *aware, "--main-params-dtype=fp16",
                                              "--accumulate-allreduce-grads-in-fp32"], 4, 10),
                (["--bf16", *aware, "--main-grads-dtype", "bf16", "--exp-avg-dtype", "bf16",
                  "--exp-avg-sq-dtype", "fp8"], 2, 5)):
            self.expect([*GPT[:-1], *flags], gradient_width=gradient, optimizer_width=optimizer)
        self.expect([*GPT, "--optimizer-cpu-offload"], offload_num=1, offload_den=1)
        self.expect([*GPT, "--optimizer-cpu-offload", "--optimizer-offload-fraction", "0.75"],
                    offload_num=3, offload_den=4)
        self.bad([*GPT, "--exp-avg-dtype", "bf16"], 2, "--exp-avg-dtype bf16", "--use-precision")
        self.bad([*GPT, "--fp16"], 2, "--bf16", "--fp16")
        self.bad([*GPT, "--optimizer-cpu-offload", "--optimizer-offload-fraction", "1.01"], 2,
                 "--optimizer-offload-fraction 1.01", "0..1")

    def test_saved(self):
        self.expect([*GPT, "--attention-backend", "unfused"], has_flash_attention=0)
        self.expect([*GPT, "--transformer-impl", "local"], has_flash_attention=0)
        self.expect([*GPT, "--transformer-impl", "local", "--use-flash-attn"],
                    has_flash_attention=1)
        self.expect([*GPT, "--recompute-activations"], recompute=9, recompute_layers=0)
        modules = ["--recompute-granularity", "selective", "--recompute-modules", "layernorm",
                   "moe_act"]
        self.expect([*GPT, *modules], recompute=19)
        self.expect([*GPT, "--recompute-activation-function"], recompute=5)
        values = self.read(*GPT, "--recompute-granularity=selective", "--recompute-modules", "mlp",
                           "core_attn", "--tp-recompute-allgather", "0")
        self.assertEqual((values["recompute"], values["unmodelled"]),
                         (8, ["--recompute-modules mlp"]))
        self.expect([*GPT, "--recompute-granularity", "full"], recompute_layers=1)
        self.expect([*GPT, "--recompute-granularity", "full", "--recompute-method", "uniform",
                     "--recompute-num-layers", "4"], recompute_layers=4)
        values = self.read(*GPT, "--recompute-granularity", "full", "--recompute-method", "block",
                           "--recompute-num-layers", "4")
        self.assertEqual(values["recompute_layers"], 1)
        self.assertIn("block", values["unmodelled"][0])
        self.expect([*GPT, "--no-bias-swiglu-fusion", "--activation-func-fp8-input-store",
                     "--cross-entropy-loss-fusion", "--attention-dropout", "0.0",
                     "--moe-probs", "unpermute"], fuses_activation=0, saves_inputs_fp8=1, loss=1,
                    has_attention_dropout=0, has_hidden_dropout=1, applies_probs_late=1)
        self.bad([*GPT, "--hidden-dropout", "1.0"], 2, "--hidden-dropout 1.0")

    def test_buffers(self):
        self.expect([*MOE, "--moe-expert-capacity-factor", "1.25"], capacity_num=5, capacity_den=4,
                    moe_rows=0, caps_each_expert=1)
        self.expect([*MOE, "--moe-expert-capacity-factor", "1.25",
                     "--moe-pad-expert-input-to-capacity"], moe_rows=1)
        self.expect([*MOE, "--moe-expert-capacity-factor", "0.5"], moe_rows=1)
        self.expect([*MOE, "--moe-expert-rank-capacity-factor", "1.5"], moe_rows=1,
                    caps_each_expert=0, capacity_num=3, capacity_den=2)
        self.expect([*MOE, "--moe-paged-stash", "--moe-paged-stash-page-size", "128",
                     "--moe-paged-stash-buffer-size-factor-cuda", "1.2"], moe_rows=3,
                    page_rows=128, slack_num=6, slack_den=5)
        self.expect([*MOE, "--moe-buffer", "worst", "--page-rows", "32", "--pool-headroom", "2",
                     "--page-bytes", "64KiB", "--moe-load-cv", "0.30"],
                    moe_rows=2, page_rows=32, slack_num=2, slack_den=1, page_bytes=65536,
                    has_load_cv=1, load_cv_num=3, load_cv_den=10, has_capacity=0, has_slack=1)
        self.expect([*MOE, "--routing", "r.csv", "--moe-buffer", "capacity"], routing="r.csv",
                    moe_rows=1, has_slack=0)
        self.expect([*MOE, "--moe-buffer", "capacity", "--moe-expert-rank-capacity-factor", "2"],
                    has_capacity=1, capacity_num=2, capacity_den=1)
        self.expect([*MOE, "--moe-paged-stash-buffer-size-factor-cuda", "-1.1"], has_slack=0)
        self.bad([*MOE, "--moe-buffer", "capacity"], 2, "--moe-buffer capacity", "--moe-load-cv")
        self.bad([*MOE, "--moe-load-cv", "1", "--routing", "r.csv"], 2, "--moe-load-cv 1",
                 "--routing r.csv")
        for flag in (["--moe-buffer", "worst"], ["--moe-load-cv", "1"], ["--routing", "x"]):
            self.bad([*GPT, *flag], 2, " ".join(flag), "--num-experts")
        self.bad([*MOE, "--moe-expert-capacity-factor", "0"], 2, "--moe-expert-capacity-factor 0")
        self.bad([*MOE, "--moe-expert-capacity-factor", "1", "--moe-expert-rank-capacity-factor",
                  "1"], 2, "one of them")
        self.bad([*MOE, "--pool-headroom", "0.9"], 2, "--pool-headroom 0.9", "at least 1")
        for size in ("0", "1000", "8KiB", "8MiB", "x"):
            self.bad([*MOE, "--page-bytes", size], 2, "--page-bytes " + size)
        self.bad([*MOE, "--moe-load-cv", "-1"], 2, "--moe-load-cv -1")

    def test_output(self):
        self.expect([*GPT, "--fit", "--json", "--members", "--strict", "--html", "f",
                     "--num-sms=80", "--gpu-memory-gib", "23.7", "--overhead-gib", "1.1",
                     "--gpus-per-node", "4"], mode=1, json=1, lists_members=1, is_strict=1,
                    html="f", num_sms=80, memory_bytes=237 * 2**30 // 10, gpus_per_node=4,
                    overhead_bytes=11 * 2**30 // 10)
        self.expect([*GPT, "--gpu-memory-gib", "0.99999999999999999", "--overhead-gib",
                     "7999999999"], memory_bytes=2**30 - 1, overhead_bytes=7999999999 << 30)
        self.expect([*GPT, "--search"], mode=2)
        self.expect([*GPT, "--timeline", "0"], mode=3, timeline_stage=0)
        self.expect([*GPT, "--compat", "pr482", "--compat-logit-bytes", "9"], mode=4,
                    pr482_logit_bytes=9)
        self.bad([*GPT, "--timeline", "1"], 2, "--timeline 1", "--pipeline-model-parallel-size")
        self.bad([*GPT, "--fit", "--search"], 2, "--fit", "--search")
        self.bad([*GPT, "--html", "-"], 2, "--html -")
        self.bad([*MOE, "--search", "--routing", "t.csv"], 2, "--search", "--routing t.csv")
        self.bad([*GPT, "--compat", "pr482", "--json"], 2, "--compat", "--json")
        self.bad([*GPT, "--compat-logit-bytes", "9"], 2, "--compat pr482")
        self.bad([*GPT, "--compat", "x"], 2, "--compat x", "pr482")
        self.bad([*GPT, "--gpu-memory-gib", "8589934591"], 2, "--gpu-memory-gib 8589934591")
        self.bad([*GPT, "--gpu-memory-gib", "0"], 2, "--gpu-memory-gib 0")

    def test_bad_values(self):
        for flag in ("--num-layers", "--tensor-model-parallel-size", "--micro-batch-size"):
            for value in ("0", "-1", "1.5", "1e3", "12x", "nan", "0x10", " 1", "",
                          str(2**63), str(2**64), "9" * 200):
                result = run(*MOE[2:], flag, value)
                self.refused(result, 2, flag, value[:80], "1..9223372036854775807")
        for flag in ("--pool-headroom", "--moe-expert-capacity-factor",
                     "--moe-expert-rank-capacity-factor", "--optimizer-offload-fraction",
                     "--moe-paged-stash-buffer-size-factor-cuda"):
            for value in ("4294967296", "1.00000000001"):
                self.bad([*MOE, flag, value], 2, f"{flag} {value}", "9 digits")
        self.bad([*GPT[2:], "--num-layers", 2, "--hidden-size", 2**63 - 1, "--kv-channels", 1], 2,
                 "--hidden-size 9223372036854775807", "at most")
        for value in ("1..2", "nan", "inf", "1e-5", ".", "", "0x1", "1" * 19):
            self.bad([*GPT, "--overhead-gib", value], 2, "--overhead-gib " + value)
        self.bad([*GPT, "--normalization", "BatchNorm"], 2, "--normalization BatchNorm", "RMSNorm")
        for missing in ("--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length"):
            at = GPT.index(missing)
            self.bad(GPT[:at] + GPT[at + 2:], 2, missing, "missing")

    def test_indivisible(self):
        def bad(flags, *words):
            self.bad([*GPT, *flags], 2, *words)

        def bad_moe(flags, *words):
            self.bad([*MOE, *flags], 2, *words)
        tensor, pipeline = "--tensor-model-parallel-size", "--pipeline-model-parallel-size"
        bad([tensor, 3], "--num-attention-heads 16", tensor + " 3")
        bad(["--group-query-attention", "--num-query-groups", 5], "--num-attention-heads 16",
            "--num-query-groups 5")
        bad(["--hidden-size", 1536, "--num-attention-heads", 24, "--group-query-attention",
             "--num-query-groups", 8, tensor, 6], "--num-query-groups 8", tensor + " 6")
        bad([tensor, 2, "--ffn-hidden-size", 7], "--ffn-hidden-size 7", tensor + " 2")
        bad([pipeline, 5], "--num-layers 24", pipeline + " 5")
        bad([tensor, 2, "--world-size", 7], "--world-size 7", tensor + " 2", pipeline + " 1",
            "--context-parallel-size 1")
        bad([tensor, 2, "--nproc-per-node", 3, "--nnodes", 3], "--nproc-per-node * --nnodes 9",
            tensor + " 2")
        bad([tensor, 2, "--nproc-per-node", 3], "--nproc-per-node * --nnodes 3")
        bad(["--world-size", 4, "--global-batch-size", 6], "--global-batch-size 6",
            "--micro-batch-size 1", "data parallel 4")
        bad(["--context-parallel-size", 3], "--seq-length 1024", "--context-parallel-size 3")
        bad(["--context-parallel-size", 2, "--attention-backend", "unfused"],
            "--context-parallel-size 2", "--use-flash-attn")
        bad(["--num-layers-per-virtual-pipeline-stage", 2, pipeline, 4,
             "--microbatch-group-size-per-virtual-pipeline-stage", 2],
            "--microbatch-group-size-per-virtual-pipeline-stage 2", pipeline + " is 4")
        bad(["--num-experts", 8, tensor, 2, "--sequence-parallel"], "no --disable-bias-linear",
            "--num-experts 8", "--expert-tensor-parallel-size 2")
        bad(["--num-experts", 8, "--moe-shared-expert-intermediate-size", 64],
            "no --disable-bias-linear", "--moe-shared-expert-intermediate-size 64")
        bad(["--expert-model-parallel-size", 2], "--expert-model-parallel-size 2", "--num-experts")
        bad([pipeline, 2**40], pipeline + " 1099511627776", "1048576")
        bad(["--hidden-size", 1000, "--num-attention-heads", 7], "--hidden-size 1000",
            "--num-attention-heads 7", "--kv-channels")
        bad(["--num-layers", 5000], "--num-layers 5000", "4096")
        bad_moe(["--expert-model-parallel-size", 3], "--num-experts 8",
                "--expert-model-parallel-size 3")
        bad_moe(["--moe-router-topk", 9], "--moe-router-topk 9", "--num-experts is 8")
        bad_moe([tensor, 2], "--num-experts 8", tensor + " 2", "--sequence-parallel")
        bad_moe(["--moe-ffn-hidden-size", 3, "--expert-tensor-parallel-size", 2],
                "--moe-ffn-hidden-size 3", "--expert-tensor-parallel-size 2")
        bad_moe(["--moe-buffer", "paged", "--recompute-granularity", "full"], "--moe-buffer paged",
                "--recompute-num-layers 1")
        bad_moe(["--world-size", 6, "--expert-model-parallel-size", 4], "--world-size 6",
                "--expert-model-parallel-size 4")


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE = sys.argv[1], sys.argv[2]
    unittest.main(argv=sys.argv[:1], verbosity=0)
