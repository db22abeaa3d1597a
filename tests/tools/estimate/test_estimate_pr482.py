"""--compat pr482 of `pagestash estimate`: the report of Megatron-LM's pull request 482, its numbers
computed a second time in fractions.

test_estimate_pr482.py BINARY SOURCE
"""
import json
import os
import random
import sys
import unittest
from fractions import Fraction

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import cli
from cli import CommandTest, run

# The launch line of the request's example, but for its 24 layers: what it shows is for 32.
EXAMPLE = """--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --hidden-size 4096
--num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 4
--global-batch-size 512 --lr 0.00015 --train-iters 500000 --lr-decay-iters 320000
--lr-decay-style cosine --min-lr 1.0e-5 --weight-decay 1e-2 --lr-warmup-fraction .01
--clip-grad 1.0 --use-flash-attn --use-distributed-optimizer --swiglu --bf16
--nproc_per_node 8 --nnodes 2 --vocab-size 50257""".split()

def bare(line):
    """Without the tree and the padding; a | where the cell of weights is empty."""
    text = line.replace("\u2502", "").replace("\u251c\u2500", "").replace("\u2514\u2500", "")
    cells = [cell.strip() for cell in text.lstrip(" |").split("\t")]
    if len(cells) > 2 and cells[1] == "":
        cells[1] = "|" + cells.pop(2)
    elif len(cells) > 1 and cells[1].endswith("/layer"):
        cells[1] = "|" + cells[1]
    return " ".join(" ".join(cell for cell in cells if cell).split())


def sections(text):
    """{title: bare lines}"""
    found = {}
    for line in text.splitlines():
        if line.startswith("***"):
            lines = found.setdefault(line.strip("*"), [])
        elif line:
            lines.append(bare(line))
    return found


def rounded(value, digits=1):
    """As the tool printed it: half to even, at least one digit behind the point."""
    whole = round(value * 10 ** digits)
    text = f"{whole // 10 ** digits}.{whole % 10 ** digits:0{digits}}"
    return text[:-1] if digits == 2 and text[-1] == "0" else text


def groups_of(world, t, p):
    """Lists of ranks: tensor, pipeline and data parallel."""
    ranks = range(world)
    stage = world // p
    by = [{}, {}, {}]
    for rank in ranks:
        by[0].setdefault(rank // t, []).append(rank)
        by[1].setdefault(rank % stage, []).append(rank)
        by[2].setdefault((rank // stage, rank % t), []).append(rank)
    return [list(groups.values()) for groups in by]


def names_of(ranks, per_node):
    return "[" + " ".join(f"n{rank // per_node}_g{rank % per_node}" for rank in ranks) + "]"


def expect(kind, world, t, p, h, s, b, n, vocab, batch, logit=10, per_node=8):
    """The figures: {section: lines that must stand in it, in this order}"""
    unit = 4 if kind == "fp32" else 2
    d = world // t // p
    m = batch // b // d
    layers = n // p
    v = -(-vocab // (128 * t)) * 128 * t
    f = 8 * h // 3 // 64 * 64
    gradient, optimizer, start, shared = {"bf16": (2, 6, 5, 2), "fp16": (1, 8, 4, 2),
                                          "fp32": (1, 2, 3, 1)}[kind]
    logits = Fraction(logit, 2) if kind == "bf16" else 2
    sbh, sbf, sbv = s * b * h, s * b * f, s * b * v
    count = v * h + s * h + n * (4 * h * h + 3 * f * h + 7 * h + 2 * f)
    saved = n * (10 * sbh + 4 * sbf) + Fraction(3, 2) * sbh + Fraction(9, 2) * sbv
    mine = Fraction(v * h, t) + s * h + layers * (Fraction(4 * h * h + 3 * f * h, t) + 7 * h
                                                  + 2 * f)
    mine_saved = p * (layers * (Fraction(5 * sbh + 4 * sbf, t) + 5 * sbh) + Fraction(3, 2) * sbh)
    peak = max(mine * (start + Fraction(shared, d)),
               mine * (1 + gradient + Fraction(optimizer, d)) + mine_saved
               + (logits * sbv / t if p == 1 else 0))

    def giga(units, digits=1):
        return rounded(Fraction(unit * units) / 2 ** 30, digits)

    def mega(units):
        return rounded(Fraction(unit * units) / 2 ** 20)
    def rows(layers, t, message):
        """Of a layer, t of the table's section; message: of a matrix that sends."""
        return [f"ParallelTransformer: X {layers}(layer_num) |{mega(10 * sbh + 4 * sbf)}/layer",
                f"input_layernorm w=[{h}],b=[{h}] {mega(h + b)} {mega(sbh)}",
                f"self_attention |{mega(6 * sbh)}",
                f"query_key_value w=[{3 * h // t},{h}],b=[{h}] "
                f"{mega(Fraction(3 * h * h, t) + h)}{message}",
                f"rearrange |{mega(Fraction(3 * sbh, t))}",
                f"core_attention_flash |{mega(Fraction(sbh, t))}",
                f"rearrange |{mega(Fraction(sbh, t))}",
                f"dense w=[{h // t},{h}],b=[{h}] {mega(Fraction(h * h, t) + h)} {mega(sbh)}"
                + message,
                f"post_attention_layernorm w=[{h}],b=[{h}] {mega(2 * h)} {mega(sbh)}",
                f"mlp |{mega(sbh + 4 * sbf)}",
                f"dense_h_to_4h w=[{2 * f // t},{h}],b=[{2 * f // t}] "
                f"{mega(Fraction(2 * f * h + 2 * f, t))}{message}",
                f"bias_glue |{mega(4 * sbf)}",
                f"dense_4h_to_h w=[{h},{f // t}],b=[{h}] {mega(f * h + h)} {mega(sbh)}{message}",
                f"drop_add_fusion |{mega(Fraction(3, 2) * sbh)}"]
    sends = world * m * 4 if p > 1 else 0
    reduces = world * 4 * layers * m if t > 1 else 0
    data = mine * (4 if kind == "bf16" else 2)
    found = {
        "Full Model without Parallel": [
            f"Embedding |{mega(Fraction(3, 2) * sbh)}",
            f"word_embeddings w=[{v},{h}] {mega(v * h)}",
            f"position_embeddings w=[{s},{h}] {mega(s * h)}", *rows(n, 1, ""),
            f"Amount of Parameters: {count:,}", f"Parameters: {giga(count)}GB",
            f"Gradients: {giga(gradient * count)}GB",
            f"Optimizers(Adam) States: {giga(optimizer * count)}GB",
            f"Activations: {giga(saved)}GB",
            f"Total memory demand: {giga((1 + gradient + optimizer) * count + saved)}GB"],
        "Cluster Communication Summary": [
            f"frequency/iteration: {sends}", f"volume/iteration: {giga(sends * sbh)} GB",
            f"frequency/iteration: {2 if d > 1 else 0}", f"volume/iteration: {giga(data)} GB",
            f"frequency/iteration: {reduces}", f"volume/iteration: {giga(reduces * sbh)} GB",
            f"frequency/iteration: {sends + reduces + (2 if d > 1 else 0)}",
            f"volume/iteration: {giga((sends + reduces) * sbh + data)} GB"],
        "Memory demand on each GPU in the cluster": [
            f"Amount of Parameters: {int(mine):,}", f"Parameters: {giga(mine)}GB",
            f"Gradients: {giga(gradient * mine)}GB",
            f"Optimizers(Adam) States: {giga(optimizer * mine / d)}GB",
            f"Activations: {giga(mine_saved)}GB", f"Memory Requirement: {giga(peak)}GB"],
    }
    tensor, pipeline, replicas = [[names_of(ranks, per_node) for ranks in groups]
                                  for groups in groups_of(world, t, p)]
    if p > 1:
        stages = [f"Stage{i}: ParallelTransformerLayer_Index{i * layers}-{i * layers + layers - 1}"
                  for i in range(p)]
        devices = [names_of(range(i * world // p, (i + 1) * world // p), per_node)
                   for i in range(p)]
        found["Pipeline Parallel Communications"] = [
            stages[0], devices[0], f"shape: [{b},{s},{h}]", f"volume: {mega(sbh)}MB",
            f"frequency: {4 * m} (num_gradient_accumulation_steps * 4)",
            f"volume: {mega(4 * m * sbh)}MB",
            *[line for pair in zip(stages[1:], devices[1:]) for line in pair],
            f"{world // p} Pipeline Parallel Communication Groups:", *pipeline,
            f"frequency/iteration: {sends}", f"volume/iteration: {giga(sends * sbh)}GB"]
    if d > 1:
        found["Data Parallel Communications"] = [
            f"{p * t} Data Parallel Groups", *replicas, f"volume: {giga(data / 2)}GB",
            f"location: after forward_and_backward_compute * {m} times/iteration",
            f"{p * t} Data Parallel Groups", *replicas, f"volume: {giga(data / 2)}GB",
            "frequency/iteration: 2", f"volume/iteration: {giga(data)}GB"]
    if t > 1:
        message = f" [{b},{s},{h}] {mega(sbh)} allreduce"
        found["Tensor Parallel Communications"] = [
            f"Embedding |{mega(Fraction(3, 2) * sbh)}",
            f"word_embeddings w=[{v // t}],b=[{h}] {mega(v * h)}{message}",
            f"position_embeddings w=[{s}],b=[{h}] {mega(s * h)}", *rows(layers, t, message),
            f"{world // t} Tensor Parallel Communication Groups:", *tensor,
            f"frequency: {4 * layers}", f"volume: {giga(4 * layers * sbh)}GB",
            f"volume: {giga(4 * sbh, 2)}GB", f"frequency: {4 * layers * m}",
            f"volume: {giga(4 * layers * m * sbh)}GB", f"frequency: {world * 4 * layers}",
            f"volume: {giga(world * 4 * layers * sbh)}GB", f"frequency: {reduces}",
            f"volume: {giga(reduces * sbh)}GB"]
    return found


class Pr482Test(CommandTest):
    def report(self, *flags, code=0):
        result = run("estimate", *flags, "--compat", "pr482")
        self.assertEqual((result.returncode, result.stderr), (code, ""), result)
        return result.stdout

    def launch(self, kind="bf16", world=16, t=2, p=2, h=4096, s=2048, b=4, n=32, vocab=50257,
               batch=512, logit=None, heads=32, per_node=8):
        flags = ["--num-layers", n, "--hidden-size", h, "--num-attention-heads", heads,
                 "--seq-length", s, "--max-position-embeddings", s, "--micro-batch-size", b,
                 "--global-batch-size", batch, "--vocab-size", vocab, "--nproc-per-node", per_node,
                 "--nnodes", world // per_node, "--tensor-model-parallel-size", t,
                 "--pipeline-model-parallel-size", p, "--use-flash-attn",
                 "--use-distributed-optimizer", "--swiglu"]
        flags += [] if kind == "fp32" else [f"--{kind}"]
        return flags + ([] if logit is None else ["--compat-logit-bytes", logit])

    def holds(self, lines, wanted, what):
        """Wanted ones stand among lines in this order."""
        at = iter(lines)
        for line in wanted:
            self.assertTrue(any(line == other for other in at), (what, line, lines))

    def compare(self, kind="bf16", logit=None, **sizes):
        lines = sections(self.report(*self.launch(kind, logit=logit, **sizes)))
        sizes = {"world": 16, "t": 2, "p": 2, "h": 4096, "s": 2048, "b": 4, "n": 32,
                 "vocab": 50257, "batch": 512, **sizes}
        sizes = {key: sizes[key] for key in sizes if key != "heads"}
        wanted = expect(kind, logit=logit or 10, **sizes)
        self.assertEqual(list(lines), list(wanted))
        for title, of in wanted.items():
            self.holds(lines[title], of, title)

    def test_example_as_a_whole(self):
        with open(os.path.join(cli.SOURCE, "tests/data/pr482/example.txt"), encoding="utf-8") as f:
            wanted = f.read()
        self.assertEqual(self.report(*EXAMPLE, "--num-layers", 32), wanted)

    def test_list_of_its_mistakes(self):
        """The figures of the list in docs/estimator.md are its report's and the estimator's."""
        with open(os.path.join(cli.SOURCE, "docs/estimator.md"), encoding="utf-8") as file:
            rows = {cells[1]: cells[2:4] for cells in
                    ([cell.strip() for cell in line.split("|")] for line in file) if len(cells) == 6}
        flags = [*EXAMPLE, "--num-layers", 32]
        lines = self.report(*flags)
        result = run("estimate", *flags, "--transformer-impl", "local", "--overhead", 0, "--fragmentation", 0,
                     "--json")
        right = json.loads(result.stdout)
        theirs, ours = rows["parameters of the example"]
        self.assertIn(f"Amount of Parameters: {theirs}  \n", lines)
        self.assertEqual(f"{right['params']['total_padded']:,}", ours)
        theirs, ours = rows["a pipeline of two stages"]
        self.assertIn(f"Memory Requirement: {theirs.split()[0]}GB\n", lines)
        peaks = [f"{stage['bytes']['peak'] / (1 << 30):.2f}" for stage in right["stages"]]
        self.assertEqual(ours, f"{peaks[0]} and {peaks[1]} GiB (`--transformer-impl local`)")

    def test_the_launch_line_with_its_24_layers(self):
        lines = sections(self.report(*EXAMPLE, "--num-layers", 24))
        self.holds(lines["Full Model without Parallel"],
                   ["Amount of Parameters: 5,035,423,744", "Activations: 34.5GB"], "full")
        self.holds(lines["Memory demand on each GPU in the cluster"],
                   ["Amount of Parameters: 1,317,092,352", "Activations: 19.4GB",
                    "Memory Requirement: 30.4GB"], "gpu")
        self.holds(lines["Cluster Communication Summary"],
                   ["volume/iteration: 9.8 GB", "frequency/iteration: 24576",
                    "volume/iteration: 1536.0 GB", "frequency/iteration: 26626",
                    "volume/iteration: 1673.8 GB"], "summary")

    def test_four_rows(self):
        for b, batch, t, p, logit, wanted in ((2, 2048, 1, 1, None, "69.0"),
                                              (2, 2048, 1, 1, 10, "69.0"),
                                              (2, 2048, 1, 1, 9, "68.8"),
                                              (4, 512, 2, 1, None, "55.5"),
                                              (2, 2048, 1, 2, None, "49.5"),
                                              (4, 128, 8, 1, None, "28.6")):
            text = self.report(*self.launch(world=8, t=t, p=p, b=b, batch=batch, logit=logit))
            self.assertIn(f"Memory Requirement: {wanted}GB\n", text, (b, t, p, logit))

    def test_other_kinds(self):
        for kind in ("fp16", "fp32"):
            self.compare(kind)
            self.compare(kind, world=8, t=1, p=1, b=1, batch=64)
            self.compare(kind, world=8, t=8, p=1, n=2, h=8192, s=128, heads=64)

    def test_sections_of_one_are_left_out(self):
        for t, p, kept in ((1, 1, "Data"), (8, 1, "Tensor"), (1, 8, "Pipeline")):
            lines = sections(self.report(*self.launch(world=8, t=t, p=p)))
            self.assertEqual(list(lines)[3:], [f"{kept} Parallel Communications"])
        # where d is 1 the summary counts none, and adds the volume all the same
        self.compare(world=8, t=8, p=1)
        self.compare(world=8, t=1, p=8)

    def test_ties_go_to_the_even_digit(self):
        self.assertIn("    \u2514\u2500volume: 0.12GB\n", self.report(*self.launch(b=2)))
        self.assertIn("    \u2514\u2500volume: 0.5GB\n", self.report(*self.launch(b=8)))
        # position table: 0.25 MiB and 0.75 MiB
        for s, wanted in ((128, "0.2 "), (384, "0.8 ")):
            text = self.report(*self.launch(h=1024, s=s, heads=16))
            line = [x for x in text.splitlines() if "position_emb" in x][0]
            self.assertIn("\t" + wanted, line)

    def test_random_ones(self):
        draw = random.Random(482)
        for _ in range(40):
            t, p, d = draw.choice([1, 2, 4]), draw.choice([1, 2, 3, 4]), draw.choice([1, 2, 3])
            b = draw.randrange(1, 9)
            kind = draw.choice(["bf16", "fp16", "fp32"])
            self.compare(kind, logit=draw.choice([None, 9]) if kind == "bf16" else None,
                         world=t * p * d, per_node=1, t=t, p=p, h=64 * t * draw.randrange(1, 99),
                         heads=4 * t, s=draw.randrange(1, 5000), b=b, n=p * draw.randrange(1, 30),
                         vocab=draw.randrange(1, 99999), batch=b * d * draw.randrange(1, 40))

    def test_what_it_cannot_express(self):
        for words, flags in (("--num-experts 8", ["--disable-bias-linear"]),
                             ("--sequence-parallel", []), ("--context-parallel-size 2", []),
                             ("--num-query-groups 8", ["--group-query-attention"]),
                             ("--normalization RMSNorm", []), ("--disable-bias-linear", []),
                             ("--untie-embeddings-and-output-weights", []),
                             ("--position-embedding-type", ["rope"]), ("--qk-layernorm", []),
                             ("--ffn-hidden-size 11008", []), ("--kv-channels 64", []),
                             ("--mtp-num-layers 1", []),
                             ("--num-virtual-stages-per-pipeline-rank 2", []),
                             ("--recompute-num-layers 1", ["--recompute-granularity", "full",
                                                           "--recompute-method", "uniform"])):
            allowed = {"--num-query-groups": 32, "--ffn-hidden-size": 10880, "--kv-channels": 128}
            base = self.launch() if words == "--sequence-parallel" else self.launch(t=1, p=4)
            result = run("estimate", *base, *words.split(), *flags, "--compat", "pr482")
            self.refused(result, 2, "--compat pr482", words, allowed.get(words.split()[0], ""))
        self.refused(run("estimate", *self.launch(), "--recompute-activations", "--compat",
                         "pr482"), 2, "recomputation")
        for left_out, more in (("--swiglu", ["--ffn-hidden-size", 10880]),
                               ("--use-flash-attn", ["--attention-backend", "unfused"]),
                               ("--use-distributed-optimizer", [])):
            flags = [flag for flag in self.launch() if flag != left_out]
            self.refused(run("estimate", *flags, *more, "--compat", "pr482"), 2, left_out)
        for kind in ("fp16", "fp32"):
            self.refused(run("estimate", *self.launch(kind, logit=9), "--compat", "pr482"), 2,
                         "--compat-logit-bytes 9", "--bf16")
        self.refused(run("estimate", *self.launch(logit=8), "--compat", "pr482"), 2,
                     "--compat-logit-bytes", 8)

    def test_too_much(self):
        result = run("estimate", *self.launch(s=2 ** 40), "--compat", "pr482")
        self.refused(result, 2, f"{2 ** 40}: --compat pr482: a number exceeds 64 bits")


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1], verbosity=0)
