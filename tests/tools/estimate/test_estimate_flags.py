"""What `pagestash estimate` is asked by flags: launch lines, how a run is split and kept.

test_estimate_flags.py ESTIMATE_MAIN SOURCE
"""
import os
import re
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import cli
from cli import run
from estimate_flags import GPT, MOE, TOTALS, FlagsTest

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
        for word in ("50257", "flash", "--gpu-memory 80GiB", "--overhead 0"):
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
        self.expect(["--json", "--", "torchrun", "x.py"] + GPT, json="-", world_size=1)
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
                1, "--gpu-memory", "80GiB", "--overhead", "0GiB", "--use-flash-attn",
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
        with open(os.path.join(cli.SOURCE, "tools/estimate/estimate_known.c"), encoding="ascii") as file:
            text = file.read()
        with open(os.path.join(cli.SOURCE, "tools/estimate/estimate_fields.h"), encoding="ascii") as file:
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
                    page_rows=128, headroom_num=6, headroom_den=5)
        self.expect([*MOE, "--moe-buffer", "worst", "--page-rows", "32", "--headroom", "2",
                     "--page-size", "64KiB", "--moe-load-cv", "0.30"],
                    moe_rows=2, page_rows=32, headroom_num=2, headroom_den=1, page_bytes=65536,
                    has_load_cv=1, load_cv_num=3, load_cv_den=10, has_capacity=0, has_headroom=1)
        self.expect([*MOE, "--routing", "r.csv", "--moe-buffer", "capacity"], routing="r.csv",
                    moe_rows=1, has_headroom=0)
        self.expect([*MOE, "--moe-buffer", "capacity", "--moe-expert-rank-capacity-factor", "2"],
                    has_capacity=1, capacity_num=2, capacity_den=1)
        self.expect([*MOE, "--moe-paged-stash-buffer-size-factor-cuda", "-1.1"], has_headroom=0)
        self.bad([*MOE, "--moe-buffer", "capacity"], 2, "--moe-buffer capacity", "--moe-load-cv")
        self.bad([*MOE, "--moe-load-cv", "1", "--routing", "r.csv"], 2, "--moe-load-cv 1",
                 "--routing r.csv")
        for flag in (["--moe-buffer", "worst"], ["--moe-load-cv", "1"], ["--routing", "x"]):
            self.bad([*GPT, *flag], 2, " ".join(flag), "--num-experts")
        self.bad([*MOE, "--moe-expert-capacity-factor", "0"], 2, "--moe-expert-capacity-factor 0")
        self.bad([*MOE, "--moe-expert-capacity-factor", "1", "--moe-expert-rank-capacity-factor",
                  "1"], 2, "one of them")
        self.bad([*MOE, "--headroom", "0.9"], 2, "--headroom 0.9", "at least 1")
        for size in ("0", "1000", "8KiB", "8MiB", "x"):
            self.bad([*MOE, "--page-size", size], 2, "--page-size " + size)
        self.bad([*MOE, "--moe-load-cv", "-1"], 2, "--moe-load-cv -1")

    def test_output(self):
        self.expect([*GPT, "--fit", "--json", "--members", "--strict", "--html", "f",
                     "--num-sms=80", "--gpu-memory", "23.7GiB", "--overhead", "1.1GiB",
                     "--gpus-per-node", "4"], mode=1, json="-", lists_members=1, is_strict=1,
                    html="f", num_sms=80, memory_bytes=237 * 2**30 // 10, gpus_per_node=4,
                    overhead_bytes=11 * 2**30 // 10)
        self.expect([*GPT, "--gpu-memory", "0.99999999999999999GiB", "--overhead",
                     "7999999999GiB"], memory_bytes=2**30 - 1, overhead_bytes=7999999999 << 30)
        self.expect([*GPT, "--search"], mode=2)
        self.expect([*GPT, "--timeline", "0"], mode=3, timeline_stage=0)
        self.expect([*GPT, "--compat", "pr482", "--compat-logit-bytes", "9"], mode=4,
                    pr482_logit_bytes=9)
        self.bad([*GPT, "--timeline", "1"], 2, "--timeline 1", "--pipeline-model-parallel-size")
        self.bad([*GPT, "--fit", "--search"], 2, "--fit", "--search")
        self.bad([*GPT, "--html", "-"], 2, "--html -")
        self.bad([*MOE, "--search", "--routing", "t.csv"], 2, "--search", "--routing t.csv")
        self.bad([*GPT, "--compat", "pr482", "--json"], 2, "--compat", "--json")
        self.bad([*GPT, "--compat", "pr482", "--html", "x.html"], 2, "--compat", "--html")
        self.bad([*GPT, "--compat-logit-bytes", "9"], 2, "--compat pr482")
        self.bad([*GPT, "--compat", "x"], 2, "--compat x", "pr482")
        self.bad([*GPT, "--gpu-memory", "8589934592GiB"], 2, "--gpu-memory 8589934592GiB")
        self.bad([*GPT, "--gpu-memory", "0GiB"], 2, "--gpu-memory 0GiB")

    def test_bad_values(self):
        for flag in ("--num-layers", "--tensor-model-parallel-size", "--micro-batch-size"):
            for value in ("0", "-1", "1.5", "1e3", "12x", "nan", "0x10", " 1", "",
                          str(2**63), str(2**64), "9" * 200):
                result = run(*MOE[2:], flag, value)
                self.refused(result, 2, flag, value[:80], "1..9223372036854775807")
        for flag in ("--headroom", "--moe-expert-capacity-factor",
                     "--moe-expert-rank-capacity-factor", "--optimizer-offload-fraction",
                     "--moe-paged-stash-buffer-size-factor-cuda"):
            for value in ("4294967296", "1.00000000001"):
                self.bad([*MOE, flag, value], 2, f"{flag} {value}", "9 digits")
        self.bad([*GPT[2:], "--num-layers", 2, "--hidden-size", 2**63 - 1, "--kv-channels", 1], 2,
                 "--hidden-size 9223372036854775807", "at most")
        for value in ("1..2", "nan", "inf", "1e-5", ".", "", "0x1", "1" * 19):
            self.bad([*GPT, "--overhead", value + "GiB"], 2, f"--overhead {value}GiB")
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
