"""The command `pagestash plan`, its plans judged a second time from the trace alone.

test_plan.py BINARY SOURCE
"""
import bisect
import csv
import json
import os
import random
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import cli
from cli import MIB, CommandTest, run

MEMO = """m13 128 m14 128 f14 m15 256 f13 m16 512 m17 128 m18 128 m19 256 f17 f19 f18 m20 512 f20
m21 1024 m22 256 f15 m23 128 m24 512 f21 f22 f23 f24 f16"""
HEADER = "op,id,size,stream,phase,layer,micro_batch,rank,tag\n"


def memo_lines():
    words = MEMO.split()
    lines = []
    while words:
        word = words.pop(0)
        lines.append(f"malloc {word[1:]} {words.pop(0)}" if word[0] == "m" else f"free {word[1:]}")
    return "\n".join(lines) + "\n"


def tensors_of(path):
    """{id: (size, begin, end)} of our CSV or of MiniMalloc's."""
    with open(path, newline="", encoding="ascii") as file:
        rows = list(csv.DictReader(file))
    if "lower" in rows[0]:
        return {int(row["id"]): (int(row["size"]), int(row["lower"]), int(row["upper"]))
                for row in rows}
    tensors = {}
    instant = 0
    for row in rows:
        if row["op"] == "malloc":
            tensors[int(row["id"])] = [int(row["size"]), instant, None]
        elif row["op"] == "free":
            tensors[int(row["id"])][2] = instant
        instant += row["op"] != "mark"
    return {key: (size, begin, instant if end is None else end)
            for key, (size, begin, end) in tensors.items()}


def judge(tensors, report):
    """The peak; fails where two live at one address."""
    align = report["align"]
    offsets = {entry["id"]: entry["offset"] for entry in report["placements"]}
    assert offsets.keys() == tensors.keys()
    events = []
    for key, (size, begin, end) in tensors.items():
        assert offsets[key] % align == 0
        top = offsets[key] + -(-size // align) * align
        events += [(begin, 1, offsets[key], top), (end, 0, offsets[key], top)]
    live = []
    for _, begins, low, high in sorted(events):
        at = bisect.bisect_left(live, (low, high))
        if begins:
            assert at == 0 or live[at - 1][1] <= low, (low, high)
            assert at == len(live) or high <= live[at][0], (low, high)
            live.insert(at, (low, high))
        else:
            assert live[at] == (low, high)
            del live[at]
    return max((event[3] for event in events), default=0)


class PlanTest(CommandTest):
    def plan(self, *flags, code=0):
        result = run("plan", *flags, "--json")
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stderr == "", code == 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(list(report)[0], "schema_version")
        return report

    def plan_csv(self, path, *flags, kind="--trace"):
        report = self.plan(kind, path, *flags)
        self.assertEqual(judge(tensors_of(path), report), report["peak"])
        self.assertIs(report["checked"], True)
        self.assertGreaterEqual(report["peak"], report["lower_bound"])
        return report

    def layers(self, num=3, kept=100, passing=300, back=200):
        """A forward and a backward of `num` layers, in units of 1024 bytes."""
        rows = []
        for layer in range(num):
            tail = f"0,forward,{layer},0,0,static"
            rows += [f"malloc,{layer * 10 + 1},{kept * 1024},{tail}",
                     f"malloc,{layer * 10 + 2},{passing * 1024},{tail}",
                     f"free,{layer * 10 + 2},,{tail}"]
        for layer in reversed(range(num)):
            tail = f"0,backward,{layer},0,0,static"
            rows += [f"malloc,{layer * 10 + 3},{back * 1024},{tail}",
                     f"free,{layer * 10 + 3},,{tail}", f"free,{layer * 10 + 1},,{tail}"]
        return self.write(HEADER + "\n".join(rows) + "\n", "layers.csv")


class Answers(PlanTest):
    def test_minimalloc(self):
        folder = os.path.join(cli.SOURCE, "tests/data/minimalloc")
        names = sorted(name for name in os.listdir(folder) if name.endswith(".csv"))
        self.assertEqual(len(names), 6)
        for name in names:
            report = self.plan_csv(os.path.join(folder, name), kind="--minimalloc")
            best = 1039360 if name.startswith("C") else 1048576
            self.assertEqual((report["status"], report["peak"], report["align"]),
                             ("optimal", best, 1), name)
            self.assertEqual(report["stage"], "search")

    def test_memo(self):
        path = self.write(memo_lines(), "memo.txt")
        report = self.plan("--memo", path)
        self.assertEqual((report["peak"], report["status"], report["tensors"]),
                         (2432, "optimal", 12))
        self.assertEqual(report["bound_proof"]["live_bytes"], 2432)
        self.assertEqual(report["bound_proof"]["live"], [16, 21, 22, 23, 24])
        result = run("plan", "--memo", path)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for line in ("status: optimal", "peak: 2432", "lower bound: 2432", "checked: yes"):
            self.assertIn(line + "\n", result.stdout)

    def test_same_plan_again(self):
        path = os.path.join(cli.SOURCE, "tests/data/minimalloc/K.1048576.csv")
        reports = [self.plan("--minimalloc", path, "--seed", 3) for _ in range(2)]
        for report in reports:
            del report["seconds"]
        self.assertEqual(*reports)
        self.assertEqual(self.plan("--minimalloc", path, "--threads", 2)["status"], "optimal")

    def test_alignment(self):
        path = self.layers()
        for align in (1, 512, 4096):
            report = self.plan_csv(path, "--align", align)
            self.assertEqual((report["align"], report["peak"]), (align, 600 * 1024))

    def test_pins_and_reserved_ranges(self):
        path = self.layers(num=2)
        report = self.plan_csv(path, "--pin", "1@1MiB,11@0")
        offsets = {entry["id"]: entry["offset"] for entry in report["placements"]}
        self.assertEqual((offsets[1], offsets[11]), (MIB, 0))
        report = self.plan_csv(path, "--reserve", "0:100KiB,1MiB:2MiB")
        for size, offset in ((tensors_of(path)[entry["id"]][0], entry["offset"])
                             for entry in report["placements"]):
            self.assertGreaterEqual(offset, 100 * 1024)
            self.assertTrue(offset + size <= MIB or offset >= 2 * MIB)
        self.assertEqual(report["status"], "optimal")

    def test_bilevel(self):
        """A gradient that comes in and one that goes out stack upon the rectangle of the pass."""
        rows = []
        gradient = 1
        rows.append("malloc,1,4194304,0,other,,,0,static")
        for layer in (2, 1, 0):
            tail = f"0,backward,{layer},0,0,static"
            new = gradient + 2
            rows += [f"free,{gradient},,{tail}", f"malloc,{gradient + 1},10485760,{tail}",
                     f"free,{gradient + 1},,{tail}", f"malloc,{new},4194304,{tail}"]
            gradient = new
        rows.append(f"free,{gradient},,0,other,,,0,static")
        path = self.write(HEADER + "\n".join(rows) + "\n")
        flat = self.plan_csv(path)
        self.assertEqual(flat["peak"], 10 * MIB)
        report = self.plan_csv(path, "--mode", "bilevel")
        self.assertEqual(report["peak"], 14 * MIB)
        self.assertEqual((report["flat_peak"], report["lower_bound"]), (10 * MIB, 10 * MIB))
        self.assertAlmostEqual(report["cost_over_flat"], 0.4, places=6)
        offsets = {entry["id"]: entry["offset"] for entry in report["placements"]}
        self.assertEqual(len({offsets[key] for key in (2, 4, 6)}), 1)
        self.assertIn("cost of two levels: 40.00 %", run("plan", "--trace", path, "--mode",
                                                         "bilevel").stdout)

    def test_streams(self):
        """What another stream freed may be reused once this stream has waited for it."""
        def peak(marks):
            rows = ["malloc,1,1024,0,,,,0,static", "free,1,,0,,,,0,static", *marks,
                    "malloc,2,1024,1,,,,0,static", "free,2,,1,,,,0,static"]
            path = self.write(HEADER + "\n".join(rows) + "\n")
            return self.plan("--trace", path)["peak"]
        record, wait = "mark,9,,0,,,,0,record", "mark,9,,1,,,,0,wait"
        self.assertEqual(peak([record, wait]), 1024)
        self.assertEqual(peak([record]), 2048)
        self.assertEqual(peak([]), 2048)
        self.assertEqual(peak(["mark,0,,,,,,0,sync"]), 1024)

    def test_dynamic_tensors_are_not_planned(self):
        rows = ["malloc,1,1024,0,,,,0,static", "malloc,2,4096,0,,,,0,dynamic",
                "free,2,,0,,,,0,dynamic", "free,1,,0,,,,0,static"]
        path = self.write(HEADER + "\n".join(rows) + "\n")
        report = self.plan("--trace", path)
        self.assertEqual([entry["id"] for entry in report["placements"]], [1])
        self.assertEqual(report["peak"], 1024)

    def compare_with_mip(self):
        """Random instances of 8 to 12 tensors: the program's optimum is the search's."""
        draw = random.Random(8)
        for case in range(15):
            rows = []
            for key in range(draw.randint(8, 12)):
                lower = draw.randrange(12)
                rows.append(f"{key},{lower},{lower + draw.randint(1, 6)},{draw.randint(1, 20)}")
            path = self.write("id,lower,upper,size\n" + "\n".join(rows) + "\n", "random.csv")
            search = self.plan_csv(path, kind="--minimalloc")
            mip = self.plan_csv(path, "--method", "mip", kind="--minimalloc")
            self.assertEqual((search["status"], search["peak"]), ("optimal", mip["peak"]), case)
            self.assertEqual(mip["status"], "optimal", case)

    def test_mip(self):
        path = self.write(memo_lines(), "memo.txt")
        result = run("plan", "--memo", path, "--method", "mip", "--json")
        if "CBC is not installed" in result.stderr:
            self.refused(result, 2, "--method mip")
        else:
            report = json.loads(result.stdout)
            self.assertEqual((report["peak"], report["status"], report["method"]),
                             (2432, "optimal", "mip"))
            self.compare_with_mip()
        model = self.path("model.lp")
        result = run("plan", "--memo", path, "--mip-model", model)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        with open(model, encoding="ascii") as file:
            self.assertIn("Minimize", file.read(400))


class Budget(PlanTest):
    FLAGS = ["--expert-model-parallel-size", 2, "--hidden-size", 64, "--moe-ffn-hidden-size", 32, "--num-micro-batches", 2, "--page-size", "16KiB"]

    def memory(self, *flags, code=0):
        path = self.layers()
        return self.plan("--trace", path, "--routing", self.trace(), *self.FLAGS, *flags,
                         code=code)["memory"]

    def test_fits(self):
        keys = cli.expect(self.trace(), ep=2, hidden=64, ffn=32, num_micro_batches=2, page=16 << 10)
        memory = self.memory("--gpu-memory", "64MiB", "--reserve-memory", "1MiB")
        self.assertIs(memory["fits"], True)
        self.assertEqual(memory["num_pages"], keys["high_water_pages"])
        self.assertEqual(memory["num_host_pages"], 0)
        self.assertEqual(memory["traffic_bytes"], 0)
        end = 0
        for region in memory["regions"]:
            self.assertGreaterEqual(region["offset"], end)
            end = region["offset"] + region["bytes"]
        self.assertEqual(end + memory["spare_bytes"], 64 * MIB)
        self.assertEqual([region["name"] for region in memory["regions"]],
                         ["static", "pool", "reserve"])

    def test_spills(self):
        most = self.memory("--gpu-memory", "64MiB")
        pool = next(region for region in most["regions"] if region["name"] == "pool")
        short = pool["offset"] + pool["bytes"] - 2 * (16 << 10)
        memory = self.memory("--gpu-memory", short, "--host-memory", "1MiB")
        self.assertIs(memory["fits"], True)
        self.assertGreaterEqual(memory["num_host_pages"], 2)
        self.assertEqual(memory["num_pages"] + memory["num_host_pages"], most["num_pages"])
        self.assertGreater(memory["traffic_bytes"], 0)
        memory = self.memory("--gpu-memory", short, code=1)
        self.assertIs(memory["fits"], False)
        self.assertGreaterEqual(memory["missing_gpu_bytes"], 2 * (16 << 10))
        more = short + memory["missing_gpu_bytes"]
        self.assertIs(self.memory("--gpu-memory", more)["fits"], True)
        self.assertIs(self.memory("--gpu-memory", more - 1, code=1)["fits"], False)

    def test_quantile_and_headroom(self):
        all_pages = self.memory("--gpu-memory", "64MiB")
        half = self.memory("--gpu-memory", "64MiB", "--quantile", 0.5)
        self.assertEqual(half["demand_pages_max"], all_pages["demand_pages_max"])
        self.assertLess(half["demand_pages_quantile"], all_pages["demand_pages_quantile"])
        twice = self.memory("--gpu-memory", "64MiB", "--headroom", 2)
        self.assertEqual(twice["num_pages"], 2 * all_pages["num_pages"])

    def test_swap(self):
        flags = ["--trace", self.layers(num=8), "--host-memory", "8MiB", "--swap-layers", 8,
                 "--swap-input", "10KiB", "--swap-attention", "10KiB", "--swap-other", "80KiB",
                 "--swap-tokens", 64, "--swap-block", 8, "--link-rate", "1GiB"]
        static = self.plan(*flags[:2])["peak"]
        roomy = self.plan(*flags, "--layer-seconds", "0.01", "--gpu-memory", static)["memory"]
        self.assertEqual((roomy["tokens_swapped"], roomy["traffic_bytes"]), (0, 0))
        tight = self.plan(*flags, "--layer-seconds", "0.01", "--gpu-memory",
                          static - (300 << 10))["memory"]
        self.assertEqual(tight["tokens_swapped"] % 8, 0)
        self.assertGreater(tight["tokens_swapped"], 0)
        # six layers go: their input and attention whole, of the rest the fraction, both ways
        self.assertEqual(tight["traffic_bytes"],
                         2 * 6 * (20 + 80 * tight["tokens_swapped"] // 64) * 1024)
        slow = self.plan(*flags, "--layer-seconds", "0.00001", "--gpu-memory", static)["memory"]
        self.assertEqual(slow["swap"]["limit"], "impossible")
        self.assertGreater(slow["swap"]["missing_link_bytes"], 0)

    def test_idle(self):
        path = self.layers()
        report = self.plan("--trace", path, "--idle", "f2:b2,f0.0:b0.0,f0:f0")
        self.assertEqual([(idle["from"], idle["to"]) for idle in report["idle"]],
                         [("f2.0", "b2.0"), ("f0.0", "b0.0"), ("f0.0", "f0.0")])
        tensors = tensors_of(path)
        for idle, (begin, end) in zip(report["idle"], ((6, 12), (0, 18), (0, 3))):
            busy = sorted((entry["offset"], entry["offset"] + tensors[entry["id"]][0])
                          for entry in report["placements"]
                          if tensors[entry["id"]][1] < end and begin < tensors[entry["id"]][2])
            free, at = [], 0
            for low, high in busy:
                if low > at:
                    free.append([at, low])
                at = max(at, high)
            if at < report["peak"]:
                free.append([at, report["peak"]])
            self.assertEqual(idle["ranges"], free)
            self.assertEqual(idle["bytes"], sum(high - low for low, high in free))
        self.assertEqual(len(self.plan("--trace", path, "--idle", "layers")["idle"]), 3)


class Outputs(PlanTest):
    def test_files(self):
        path = self.layers()
        names = [self.path(name) for name in ("plan.csv", "plan.html", "plan.json")]
        result = run("plan", "--trace", path, "--out", names[0], "--html", names[1], "--perfetto",
                     names[2])
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        with open(names[0], encoding="ascii") as file:
            lines = file.read().splitlines()
        self.assertEqual(lines[0], "op,id,size,stream,offset")
        self.assertEqual(len(lines), 19)
        with open(names[1], encoding="utf-8") as file:
            text = file.read()
        self.assertIn("<!doctype html>", text[:100].lower())
        with open(names[2], encoding="utf-8") as file:
            self.assertGreater(len(json.load(file)["traceEvents"]), 9)
        self.assertEqual(sorted(os.listdir(self.folder)),
                         sorted(["layers.csv", "plan.csv", "plan.html", "plan.json"]))

    def test_none_where_it_does_not_fit(self):
        result = run("plan", "--trace", self.layers(), "--capacity", "100KiB", "--out",
                     self.path("plan.csv"))
        self.assertEqual(result.returncode, 1)
        self.assertNotIn("plan.csv", os.listdir(self.folder))


class BadInput(PlanTest):
    def impossible(self, *flags):
        result = run("plan", *flags)
        self.assertEqual(result.returncode, 1, result)
        self.assertIn("status: impossible\n", result.stdout)
        self.assertEqual(result.stderr.count("\n"), 1, result)
        report = self.plan(*flags, code=1)
        self.assertEqual((report["status"], report["peak"], report["placements"]),
                         ("impossible", None, []))
        return result.stderr, report

    def test_capacity(self):
        path = self.layers()
        stderr, report = self.impossible("--trace", path, "--capacity", 600 * 1024 - 1)
        self.assertIn("impossible: 614400 bytes are live at instant 7", stderr)
        self.assertIn("22 (line 9, 307200 bytes)", stderr)
        self.assertEqual(report["bound_proof"], {"instant": 7, "live_bytes": 614400,
                                                 "live": [1, 11, 21, 22]})
        self.assertEqual(self.plan("--trace", path, "--capacity", 600 * 1024)["status"], "optimal")
        stderr, _ = self.impossible("--trace", path, "--capacity", 1) # below the largest tensor
        self.assertIn("22 (line 9, 307200 bytes)", stderr)

    def test_capacity_that_only_search_refutes(self):
        """Load 9, optimum 10."""
        sizes = "7 7 1 3 1 8 6 1 1 8 1 1 1 3 1 7"
        lives = "34 56 01 01 25 23 45 36 12 69 01 01 12 01 49 12"
        rows = [f"{key},{life[0]},{life[1]},{size}"
                for key, (size, life) in enumerate(zip(sizes.split(), lives.split()))]
        path = self.write("id,lower,upper,size\n" + "\n".join(rows) + "\n")
        report = self.plan_csv(path, kind="--minimalloc")
        self.assertEqual((report["status"], report["peak"], report["bound_proof"]["live_bytes"]),
                         ("optimal", 10, 9))
        stderr, again = self.impossible("--minimalloc", path, "--capacity", 9)
        self.assertEqual(again["stage"], "search")
        self.assertIn("at least 10 bytes are needed", stderr)

    def test_limits(self):
        path = os.path.join(cli.SOURCE, "tests/data/minimalloc/A.1048576.csv")
        report = self.plan_csv(path, "--max-steps", 100, kind="--minimalloc")
        self.assertEqual((report["status"], report["ended_by"]), ("feasible", "steps"))
        report = self.plan("--minimalloc", path, "--max-steps", 100, "--capacity", 1048576, code=1)
        self.assertEqual(report["status"], "feasible")
        report = self.plan_csv(path, "--deadline", "0.000001", kind="--minimalloc")
        self.assertEqual((report["status"], report["ended_by"]), ("feasible", "deadline"))

    def test_usage(self):
        path = self.layers()
        given = ["--trace", path]
        for flags, words in (
                ([], ["exactly one", "--minimalloc"]),
                ([*given, "--memo", path], ["2 traces"]),
                ([*given, "--mode", "x"], ["--mode x", "flat|bilevel"]),
                ([*given, "--method", "x"], ["search|mip"]),
                ([*given, "--align", 3], ["--align 3", "power of two"]),
                ([*given, "--align", 0], ["--align 0"]),
                ([*given, "--capacity", 0], ["--capacity 0"]),
                ([*given, "--capacity", "2305843009213693953"], ["--capacity 2305843009213693953"]),
                ([*given, "--pin", "1"], ["--pin 1", "ID@OFFSET"]),
                ([*given, "--pin", "99@0"], ["--pin 99@0", "ids of static tensors"]),
                ([*given, "--pin", "1@100"], ["pinned at 100", "multiples of the alignment"]),
                ([*given, "--pin", "1@0,11@0"], ["pinned at 0", "overlaps"]),
                ([*given, "--reserve", "5"], ["--reserve 5", "A:B"]),
                ([*given, "--reserve", "5:5"], ["--reserve 5:5"]),
                ([*given, "--threads", 0], ["--threads 0", "1..64"]),
                ([*given, "--threads", 65], ["--threads 65"]),
                ([*given, "--deadline", 0], ["--deadline 0"]),
                ([*given, "--seed", -1], ["--seed -1"]),
                ([*given, "--host-memory", 5], ["--gpu-memory", "missing"]),
                ([*given, "--gpu-memory", 5, "--swap-layers", 3], ["--swap-layers 3", "--link-rate"]),
                ([*given, "--gpu-memory", 5, "--expert-model-parallel-size", 2, "--expert-model-parallel-rank", 2], ["--expert-model-parallel-rank 2", "0..1"]),
                ([*given, "--quantile", 0], ["--quantile 0"]),
                ([*given, "--quantile", "1.5"], ["--quantile 1.5", "at most 1"]),
                ([*given, "--idle", "x"], ["--idle x", "FROM:TO"]),
                ([*given, "--idle", "f9:b9"], ["--idle f9:b9"]),
                ([*given, "--idle", "b0:f0"], ["--idle b0:f0"]),
                ([*given, "--json", "--out", "-"], ["standard output"]),
                ([*given, "--out", self.folder], ["--out", "folder"]),
                ([*given, "--html", "/no/such/folder/x"], ["--html /no/such/folder/x"]),
                ([*given, "--bogus"], ["--bogus"]),
                ([*given, "stray"], ["stray"])):
            with self.subTest(flags=flags):
                self.refused(run("plan", *flags), 2, *words)

    def test_bad_traces(self):
        for kind, content, words in (
                ("--trace", "", [":1:"]),
                ("--trace", HEADER + "free,1,,0,,,,0,static\n", [":2:"]),
                ("--trace", HEADER + "malloc,1,5,0,,,,0,static\n", [":2:", "never freed"]),
                ("--memo", "malloc 1 0\n", [":1:"]),
                ("--minimalloc", "id,lower,upper,size\n1,5,5,1\n", [":2:", "upper"]),
                ("--pytorch", b"\x80\x04cos\nsystem\n.", ["byte"])):
            with self.subTest(content=content):
                path = self.write(content)
                self.refused(run("plan", kind, path, "--json"), 3, path, *words)
        self.refused(run("plan", "--trace", self.path("absent")), 3, "No such file")
        path = self.write(HEADER + "malloc,1,5,0,,,,0,static\nfree,1,,,,,,0,static\n")
        self.refused(run("plan", "--trace", path, "--mode", "bilevel"), 3, "bilevel", "phase")

    def test_budget_trace(self):
        self.refused(run("plan", "--trace", self.layers(), "--gpu-memory", "1GiB", "--routing",
                         self.path("absent")), 3, "absent")

    def test_help(self):
        for arguments in (["plan", "--help"], ["help", "plan"]):
            result = run(*arguments)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            for word in ("--minimalloc", "--capacity", "--gpu-memory", "--idle", "--html"):
                self.assertIn(word, result.stdout)


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE, cli.DEVICE = sys.argv[1], sys.argv[2], "host"
    unittest.main(argv=sys.argv[:1], verbosity=0)
