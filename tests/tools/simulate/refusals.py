"""What bad input of `pagestash simulate` gets: one line that says what, where, which value, what is allowed."""
import os
import random

import cli
from cli import run
from scene import SimulateTest, schedule

HEADER = "chunk,layer,micro_batch,pages\n"
TIMES = "rank,chunk,layer,pass,before_ns,core_ns,after_ns\n"
BASE = [*schedule("1f1b", 4, 8), "--layers", "2"]


class Refusals(SimulateTest):
    def test_usage(self):
        trace = self.trace()
        table = self.write(HEADER + "0,0,0,1\n", "table.csv")
        for flags, *words in (
                (["--schedule", "2f2b"], "--schedule 2f2b", "1f1b, gpipe", "megatron:FILE"),
                (["--schedule", "list:"], "--schedule list:", "list:FILE"),
                (["--schedule", ""], "--schedule", "1f1b"),
                (["--stages", 0], "--stages 0", "1..4096"),
                (["--micro-batches", 0], "--micro-batches 0", "1..1048576"),
                (["--group", 2], "--group", "interleaved only"),
                (["--overlaps-exchange"], "--overlaps-exchange", "interleaved only"),
                (["--limit", 2], "--limit 2", "zb-v only"),
                (["--chunk-order", "v"], "--chunk-order", "lists only"),
                (["--chunks", 2], "num_chunks 2"),
                (["--schedule", "interleaved", "--group", 3], "group 3"),
                (["--schedule", "dualpipe", "--micro-batches", 6], "num_micro_batches 6"),
                (["--layers", "2,2"], "--layers: 2 numbers", "1 chunks"),
                (["--layers", "x"], "--layers x", "0..1048576"),
                (["--layers", "2,"], "--layers 2,"),
                (["--layers", "0"], "--layers 0", "at least one"),
                (["--model-layers", 8], "--layers", "--model-layers"),
                (["--moe-layers", "0:9"], "--moe-layers 0:9", "0:8"),
                (["--moe-layers", "3"], "--moe-layers 3", "A:B"),
                (["--rank", 4], "--rank 4", "0..3", "all"),
                (["--rank", "first"], "--rank first"),
                (["--forward-ns", "1,2"], "--forward-ns 1,2", "BEFORE,INSIDE,AFTER"),
                (["--forward-ns", "1,2,3,4"], "--forward-ns 1,2,3,4"),
                (["--backward-ns", "1,,3"], "--backward-ns 1,,3"),
                (["--weight-ns", "-1"], "--weight-ns -1"),
                (["--forward-ns", "9007199254740993"], "9007199254740992"),
                (["--stash-ns", "x"], "--stash-ns x"),
                (["--sources", 9], "--sources 9", "1..8"),
                (["--destinations", 0], "--destinations 0", "1..8"),
                (["--one-ring", "--destinations", 2], "--destinations 2", "--one-ring"),
                (["--streams", 3], "--streams 3", "1|2|4"),
                (["--rule", "next", "--streams", 2], "--streams 2", "--rule next"),
                (["--move", "demote", "--offload", "0=1/2", "--host-pages", 9], "--move demote", "--streams 2"),
                (["--move", "demote", "--streams", 2], "--move", "--offload"),
                (["--layers", 1 << 20, "--micro-batches", 1 << 10], "rank 0: 2147483648 visits", "134217728"),
                (["--stages", 4096, "--micro-batches", 1 << 20], "--micro-batches 1048576", "134217728"),
                (["--move", "demote", "--offload", "0=1/2", "--host-pages", 9, "--streams", 2, "--compare"],
                 "--compare", "--move demote"),
                (["--recompute-ns", 5], "--solve: missing", "--recompute-ns"),
                (["--objective", "least-bytes"], "--solve: missing", "--objective"),
                (["--sets", "fixed"], "--solve: missing", "--sets"),
                (["--pages", 0], "--pages 0", "1..2147483647", "auto"),
                (["--host-pages", "some"], "--host-pages some", "auto"),
                (["--offload", "0=1/2"], "--offload 0=1/2", "--host-pages"),
                (["--host-pages", 9, "--offload", "0"], "--offload 0", "LAYER=NUM/DEN"),
                (["--host-pages", 9, "--offload", "0=3/2"], "--offload 0=3/2", "NUM <= DEN"),
                (["--host-pages", 9, "--offload", "0.1.2=1/2"], "--offload 0.1.2=1/2"),
                (["--host-pages", 9, "--offload", "7=1/2"], "--offload", "layer 7"),
                (["--host-pages", 9, "--offload", "0=1/2,0=1/4"], "--offload", "layer 0", "twice"),
                (["--num-steps", 1 << 20], "--num-steps 1048576", "visits", str(1 << 24)),
                (["--host-pages", 9, "--offload", "3.0=1/2"], "--offload", "chunk 3", "layer 0"),
                (["--link-gb/s", "5"], "--link-gb/s 5", "OUT,IN"),
                (["--link-gb/s", "5,0"], "--link-gb/s 5,0", "above 0"),
                (["--copy-gb/s", "fast"], "--copy-gb/s fast", "above 0"),
                (["--rates", table, "--stash-ns", 3], "--rates", "--stash-ns"),
                (["--times", table, "--forward-ns", 3], "--times", "--forward-ns"),
                (["--visit-pages", table, "--routing", trace], "--visit-pages", "--routing"),
                (["--balanced"], "--balanced", "--routing"),
                (["--check", "gpu"], "--check gpu", "host|cuda"),
                (["--routing", trace], "--micro-batches 8", "4 steps"),
                (["--page-size", "100000"], "--page-size 100000", "power of two"),
                (["--interference", "1001"], "--interference 1001", "0..1000"),
                (["--html", "-", "--perfetto", "-"], "--html", "standard output"),
                (["--num-micro-batches", 8], "--num-micro-batches"),
                (["stray"], "stray")):
            with self.subTest(flags=flags):
                self.refused(run("simulate", *BASE, *flags), 2, *words)
        self.refused(run("simulate"), 2, "--schedule: missing")
        self.refused(run("simulate", "--schedule", "1f1b", "--layers", 1), 2, "--micro-batches")
        self.refused(run("simulate", *schedule("1f1b", 4, 8)), 2, "--layers: missing")

    def test_lists(self):
        path = self.write("rank,kind,chunk,micro_batch\n0,F,0,0\n0,B,0,0\n", "list.csv")
        base = ["--schedule", f"list:{path}", "--layers", 1]
        self.assertEqual(run("simulate", *base).returncode, 0)
        for flags, *words in ((["--stages", 2], "--stages 2", "is 1"),
                              (["--micro-batches", 1], "--micro-batches 1", "without lists"),
                              (["--chunks", 1], "--chunks 1"), (["--group", 1], "--group 1"),
                              (["--overlaps-exchange"], "--overlaps-exchange")):
            self.refused(run("simulate", *base, *flags), 2, *words)
        for text, *words in (("", "list.csv"), ("rank,kind\n", "list.csv:1"),
                             ("rank,kind,chunk,micro_batch\n0,X,0,0\n", "list.csv:2", "X"),
                             ("rank,kind,chunk,micro_batch\n0,B,0,0\n", "list.csv:2", "rank 0")):
            self.write(text, "list.csv")
            self.refused(run("simulate", *base), 3, *words)
        self.refused(run("simulate", "--schedule", "list:/no/such", "--layers", 1), 3, "/no/such")
        for name in ("/no/such/folder/x", self.folder):
            self.refused(run("simulate", "--schedule", "1f1b", "--micro-batches", 1, "--layers", 1, "--list",
                             name), 3, f"--list {name}: ")
        integers = self.write("1 -1\n1 -2\n", "integers")
        self.refused(run("simulate", "--schedule", f"megatron:{integers}", "--layers", 1), 3,
                     "integers")

    def test_visit_pages(self):
        whole = HEADER + "".join(f"0,{n},{i},1\n" for n in range(2) for i in range(8))
        for text, *words in (
                ("", "table.csv:1", "chunk"),
                ("chunk,layer,pages\n", "table.csv:1"),
                (HEADER, "no rows"),
                (HEADER + "0,0,0\n", "table.csv:2", "pages"),
                (HEADER + "0,0,0,1,2\n", "table.csv:2"),
                (HEADER + "0,0,-1,1\n", "table.csv:2", "micro_batch", "-1"),
                (HEADER + "0,0,0,2147483648\n", "table.csv:2", "pages", "2147483647"),
                (HEADER + "0,x,0,1\n", "table.csv:2", "layer", "x"),
                (HEADER + "\n", "table.csv:2"),
                (whole + "0,0,3,2\n", "table.csv:18", "as in line 5"),
                (whole.replace("0,1,5,1\n", ""), "no row for chunk 0, layer 1, micro-batch 5")):
            path = self.write(text, "table.csv")
            with self.subTest(text=text[-30:]):
                self.refused(run("simulate", *BASE, "--visit-pages", path), 3, *words)
        path = self.write(whole + "5,0,0,1\n0,9,9,9\n", "table.csv")  # rows without a visit
        self.assertEqual(run("simulate", *BASE, "--visit-pages", path).returncode, 0)
        path = self.write(b"\xef\xbb\xbf" + whole.replace("\n", "\r\n").encode(), "table.csv")
        self.assertEqual(run("simulate", *BASE, "--visit-pages", path).returncode, 0)
        self.refused(run("simulate", *BASE, "--visit-pages", "/no/such"), 3, "/no/such")

    def test_times(self):
        for text, *words in (("", "times.csv:1", "rank"), (TIMES, "no rows"),
                             (TIMES + "0,0,0,X,1,1,1\n", "times.csv:2", "pass", "F, B or W"),
                             (TIMES + "0,*,0,F,1,1,1\n", "times.csv:2", "chunk"),
                             (TIMES + "*,0,0,F,1,1,1\n", "no row", "pass B"),
                             (TIMES + "0,0,0,F,1,1,1\n0,0,0,B,1,1,1\n", "layer 1, pass F")):
            path = self.write(text, "times.csv")
            self.refused(run("simulate", *BASE, "--times", path), 3, *words)
        path = self.write(TIMES + "".join(f"*,0,{n},{p},0,{1 << 53},0\n" for n in range(2)
                                          for p in "FB"), "times.csv")
        self.refused(run("simulate", *schedule("1f1b", 1, 1 << 10), "--layers", 2, "--times", path),
                     2, "2^63")

    def test_rates(self):
        for text, *words in (("", "rates.json"), ("[]", "op stash", "pagestash-bench"),
                             ("{\"rows\": 3}", "op stash"), ("{", "rates.json:1")):
            path = self.write(text, "rates.json")
            self.refused(run("simulate", *BASE, "--rates", path), 3, *words)
        self.refused(run("simulate", *BASE, "--rates", "/no/such"), 3, "/no/such")

    def test_devices(self):
        self.refused(run("simulate", *BASE, "--check", "cuda", env={"CUDA_VISIBLE_DEVICES": ""}), 4, "--check cuda")

    def test_kinds_that_next_cannot_run(self):
        result = run("simulate", *schedule("zb-h1", 4, 8), "--layers", 1, "--rule", "next")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result)


class Fuzz(SimulateTest):
    def test_readers(self):
        """Whatever a file holds, it is read or refused in one line."""
        draw = random.Random(14)
        trials = 400 if os.environ.get("PSTI_TEST_LONG") else 40
        texts = {"--visit-pages": HEADER + "0,0,0,1\n0,1,0,2\n0,0,1,1\n0,1,1,2\n",
                 "--times": TIMES + "*,0,0,F,1,4,1\n*,0,0,B,1,4,1\n*,0,1,F,1,4,1\n0,0,1,B,1,4,1\n",
                 "--schedule": "rank,kind,chunk,micro_batch\n0,F,0,0\n0,F,0,1\n0,B,0,0\n0,B,0,1\n",
                 "--rates": "{\"rows\": [{\"op\": \"stash\", \"sweep\": \"bytes\", \"bytes\": 3}]}"}
        cases = []
        for trial in range(trials):
            name, text = draw.choice(list(texts.items()))
            data = bytearray(text.encode())
            for _ in range(draw.randrange(1, 5)):
                at = draw.randrange(len(data))
                data[at:at + draw.randrange(2)] = bytes(
                    [draw.choice(b"0123456789,\n*FBWx-\"\x00\xff")] * draw.randrange(3))
            path = self.write(bytes(data), f"fuzz{trial}")
            base = ["--layers", 2] if name == "--schedule" else [*schedule("1f1b", 1, 2), "--layers", 2]
            cases.append((*base, name, f"list:{path}" if name == "--schedule" else path))

        def check(*flags):
            result = run("simulate", *flags)
            self.assertIn(result.returncode, (0, 1, 2, 3), (flags, result))
            self.assertEqual(result.stderr.count("\n"), int(result.returncode != 0), (flags, result))
        self.parallel(check, cases)


__all__ = ["Fuzz", "Refusals", "cli"]
