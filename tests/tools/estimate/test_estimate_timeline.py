"""`pagestash estimate --timeline` and `--html`: the events of a stage, as rows and as a picture.

test_estimate_timeline.py BINARY SOURCE
"""
import csv
import io
import itertools
import json
import os
import re
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import cli
from cli import run
from launches import GIB, LLAMA, MIXTRAL, EstimateTest, world


class TimelineTest(EstimateTest):
    # ---- --timeline

    def timeline(self, *flags):
        result = run("estimate", *flags)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return list(csv.DictReader(io.StringIO(result.stdout)))

    def test_timeline(self):
        flags = [*LLAMA, *world(8, t=1, p=4, v=4, batch=32)]
        for stage in (0, 3):
            rows = self.timeline(*flags, "--timeline", stage)
            self.assertEqual(list(rows[0]), "event,kind,chunk,micro_batch,live_layers,saved_bytes,"
                             "head_bytes,bytes".split(","))
            self.assertEqual([int(row["event"]) for row in rows], list(range(len(rows))))
            done = {"forward": [], "backward": []}
            live = 0
            for row in rows:
                done[row["kind"]].append((int(row["chunk"]), int(row["micro_batch"])))
                live += 2 if row["kind"] == "forward" else -2
                self.assertEqual(int(row["live_layers"]), live)
            wanted = sorted(itertools.product(range(4), range(16)))
            self.assertEqual([sorted(passes) for passes in done.values()], [wanted, wanted])
            self.assertEqual(rows[-1]["saved_bytes"], "0")
            states = int(rows[-1]["bytes"])
            self.assertTrue(all(int(row["bytes"]) == states + int(row["saved_bytes"])
                                + int(row["head_bytes"]) for row in rows))
            self.assertEqual(max(int(row["head_bytes"]) for row in rows) > 0, stage == 3)

    def test_timeline_of_no_stage(self):
        flags = [*LLAMA, *world(8, p=4)]
        self.refused(run("estimate", *flags, "--timeline", 4), 2, "--timeline 4",
                     "--pipeline-model-parallel-size is 4")

    def test_timeline_onto_a_full_disk(self):
        flags = [*LLAMA, *world(8, p=4, batch=4096), "--timeline", 0]
        with open("/dev/full", "wb") as full:
            result = cli.subprocess.run([cli.BINARY, "estimate", *map(str, flags)], stdout=full,
                                        stderr=cli.subprocess.PIPE, text=True, check=False)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (3, 1), result)

    # ---- --html

    def picture(self, *flags):
        path = self.path("picture.html")
        result = run("estimate", *flags, "--html", path)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        with open(path, encoding="ascii") as file:
            text = file.read()
        os.unlink(path)
        self.assertEqual(os.listdir(self.folder), [])
        return text, json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])

    def test_picture_holds_the_timeline(self):
        flags = [*LLAMA, *world(8, t=1, p=4, v=4, batch=32), "--overhead", "1GiB", "--fragmentation", "0.1"]
        for stage in (0, 3):
            text, data = self.picture(*flags, "--timeline", stage)
            rows = self.timeline(*flags, "--timeline", stage)
            wanted = [[2 * int(row["chunk"]) + (row["kind"] == "backward"),
                       int(row["micro_batch"]), int(row["live_layers"]), int(row["saved_bytes"]),
                       int(row["head_bytes"]), int(row["bytes"])] for row in rows]
            self.assertEqual(data["events"], [number for row in wanted for number in row])
            self.assertEqual((data["stage"], len(data["stages"])), (stage, 4))
            self.assertEqual(data["memory"], 80 * GIB)
            needed = self.fit(*flags)["stages"][stage]["needed_bytes"]
            shown = data["stages"][stage]
            self.assertEqual(shown["peak"] + shown["overhead"], needed)
            self.assertEqual(shown["peak"], max(row[5] for row in wanted) + shown["transients"])
            for of, stage_of in zip(data["stages"], self.object(*flags)["stages"]):
                for key in ("weights", "gradients", "optimizer", "activations", "head", "recompute", "paging",
                            "empty_gradients", "fp8_weights", "gathered", "workspaces", "reloaded",
                            "transients", "overhead"):
                    self.assertEqual(of[key], stage_of["bytes"][key])
                self.assertEqual(of["overhead"], GIB - -of["peak"] // 10)
                self.assertEqual(of["peak"] + of["overhead"], stage_of["bytes"]["peak"])
            self.assertNotRegex(text, r"https?://|//[a-z]+\.|@import|url\(")
            self.assertIn("default-src 'none'", text)
            self.assertNotRegex(text, "@DATA@|@SCRIPT@")

    def test_picture_of_the_heaviest_stage(self):
        flags = [*MIXTRAL, *world(8, p=4, batch=32)]
        _, data = self.picture(*flags, "--fit", "--gpu-memory", "640GiB")
        self.assertEqual(data["stage"], self.fit(*flags)["heaviest_stage"])
        self.assertEqual(data["title"], f"mixtral-8x7b, stage {data['stage']} of 4")

    def test_picture_of_a_large_schedule(self):
        text, data = self.picture(*LLAMA, "--num-layers", 128, "--nproc-per-node", 8, "--nnodes",
                                  8192, "--pipeline-model-parallel-size", 8,
                                  "--num-virtual-stages-per-pipeline-rank", 16,
                                  "--global-batch-size", 512 * 8192)
        self.assertEqual(len(data["events"]), 6 * 16384)
        self.assertLess(len(text), 1 << 20)

    def test_pictures_that_cannot_be(self):
        flags = [*LLAMA, *world(1)]
        for path in (self.path("none/a.html"), self.folder):
            self.refused(run("estimate", *flags, "--html", path), 3, f"--html {path}: ")
        full = run("estimate", *flags, "--html", "/dev/full")
        self.assertEqual((full.returncode, full.stdout), (3, run("estimate", *flags).stdout))
        self.assertEqual(full.stderr, "pagestash: --html /dev/full: No space left on device\n")
        for mode in ([], ["--fit"], ["--search"], ["--timeline", 0], [f"--json={self.path('a.json')}"]):
            self.refused(run("estimate", *LLAMA, *world(1, batch=1 << 20), *mode, "--html",
                             self.path("a.html")), 2, "--html", 1 << 20)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_refused_report_leaves_no_picture(self):
        flags = [*LLAMA, *world(1)]
        for mode, says in (([], "overhead: more than"), (["--fit"], "bytes of a GPU: more than"),
                           ([f"--json={self.path('a.json')}"], "overhead: more than")):
            self.refused(run("estimate", *flags, *mode, "--overhead", "8589934591GiB", "--html", self.path("a.html")),
                         2, "--overhead 9223372035781033984: ", says)
            self.assertEqual(os.listdir(self.folder), [])
        # the second stage, which the timeline is not of
        self.refused(run("estimate", "--num-layers", 2, "--hidden-size", 64, "--num-attention-heads", 1, "--seq-length",
                         1024, "--vocab-size", 10**9, "--pipeline-model-parallel-size", 2,
                         "--untie-embeddings-and-output-weights", "--micro-batch-size", 16 * 10**6, "--timeline", 0,
                         "--html", self.path("a.html")), 2, "--vocab-size 1000000000: memory exceeds 64 bits")
        self.refused(run("estimate", *LLAMA, *world(8), "--global-batch-size", 12, "--search", "--html",
                         self.path("a.html")), 2, "--global-batch-size 12: must be a multiple of")
        self.assertEqual(os.listdir(self.folder), [])
        result = run("estimate", *flags, "--fit", "--gpu-memory", "1GiB", "--html", self.path("a.html"))
        self.assertEqual((result.returncode, os.listdir(self.folder)), (1, ["a.html"]))  # an answer


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1], verbosity=0)
