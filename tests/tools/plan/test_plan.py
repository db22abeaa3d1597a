"""The command `pagestash plan`: each flag and message once; the planner has tests of its own.

test_plan.py BINARY SOURCE
"""
import json
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import cli
import reports
from cli import MIB, CommandTest, run, run_measured

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


class PlanTest(CommandTest):
    def plan(self, *flags, code=0):
        result = run("plan", *flags, "--json")
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stderr == "", code == 0, result.stderr)
        report = reports.load(result.stdout)
        self.assertEqual(list(report)[0], "schema_version")
        self.assertIs(report["checked"], report["peak"] is not None)
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
        path = os.path.join(cli.SOURCE, "tests/data/minimalloc/K.1048576.csv")
        report = self.plan("--minimalloc", path)
        self.assertEqual((report["status"], report["peak"], report["align"], report["stage"]),
                         ("optimal", 1048576, 1, "search"))

    def test_memo(self):
        path = self.write(memo_lines(), "memo.txt")
        report = self.plan("--memo", path)
        self.assertEqual((report["peak"], report["status"], report["tensors"]),
                         (2432, "optimal", 12))
        self.assertEqual(report["bound_proof"]["live_bytes"], 2432)
        self.assertEqual(report["bound_proof"]["live"], [16, 21, 22, 23, 24])
        result = run("plan", "--memo", path)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for line in ("status: optimal", "peak: 2432 (2.38 KiB)", "checked: yes", "ended by: proof"):
            self.assertIn(line + "\n", result.stdout)

    def test_same_plan_again(self):
        path = os.path.join(cli.SOURCE, "tests/data/minimalloc/K.1048576.csv")
        reports = [self.plan("--minimalloc", path, "--seed", 3) for _ in range(2)]
        for report in reports:
            del report["seconds"]
        self.assertEqual(*reports)
        self.assertEqual(self.plan("--minimalloc", path, "--threads", 2)["status"], "optimal")

    def test_pins_and_reserved_ranges(self):
        path = self.layers(num=2)
        report = self.plan("--trace", path, "--pin", "1@1MiB,11@0", "--align", 4096)
        offsets = {entry["id"]: entry["offset"] for entry in report["placements"]}
        self.assertEqual((offsets[1], offsets[11], report["align"]), (MIB, 0, 4096))
        report = self.plan("--trace", path, "--reserve", "0:100KiB,1MiB:2MiB")
        self.assertEqual(report["status"], "optimal")
        for offset in (entry["offset"] for entry in report["placements"]):
            self.assertTrue(100 * 1024 <= offset < MIB or offset >= 2 * MIB)

    def test_bilevel(self):
        """The same addresses in every layer; a gradient that comes and one that goes cost that."""
        rows = ["malloc,1,4194304,0,other,,,0,static"]
        for layer in (2, 1, 0):
            old, tail = 2 * (2 - layer) + 1, f"0,backward,{layer},0,0,static"
            rows += [f"free,{old},,{tail}", f"malloc,{old + 1},10485760,{tail}",
                     f"free,{old + 1},,{tail}", f"malloc,{old + 2},4194304,{tail}"]
        path = self.write(HEADER + "\n".join(rows) + "\nfree,7,,0,other,,,0,static\n")
        report = self.plan("--trace", path, "--mode", "bilevel")
        self.assertEqual((report["peak"], report["flat_peak"], report["lower_bound"]),
                         (14 * MIB, 10 * MIB, 10 * MIB))
        self.assertAlmostEqual(report["cost_over_flat"], 0.4, places=6)
        offsets = {entry["id"]: entry["offset"] for entry in report["placements"]}
        self.assertEqual(len({offsets[key] for key in (2, 4, 6)}), 1)

    def test_streams(self):
        """What another stream freed may be reused once this stream has waited for it."""
        for marks, peak in ((["mark,9,,0,,,,0,record", "mark,9,,1,,,,0,wait"], 1024), ([], 2048)):
            rows = ["malloc,1,1024,0,,,,0,static", "free,1,,0,,,,0,static", *marks,
                    "malloc,2,1024,1,,,,0,static", "free,2,,1,,,,0,static"]
            path = self.write(HEADER + "\n".join(rows) + "\n")
            self.assertEqual(self.plan("--trace", path)["peak"], peak)

    def test_dynamic_tensors_are_not_planned(self):
        rows = ["malloc,1,1024,0,,,,0,static", "malloc,2,4096,0,,,,0,dynamic",
                "free,2,,0,,,,0,dynamic", "free,1,,0,,,,0,static"]
        path = self.write(HEADER + "\n".join(rows) + "\n")
        report = self.plan("--trace", path)
        self.assertEqual([entry["id"] for entry in report["placements"]], [1])
        self.assertEqual(report["peak"], 1024)

    def test_mip(self):
        path = self.write(memo_lines(), "memo.txt")
        result = run("plan", "--memo", path, "--method", "mip", "--json")
        if "CBC is not installed" in result.stderr:
            self.refused(result, 2, "--method mip")
        else:
            report = reports.load(result.stdout)
            self.assertEqual((report["peak"], report["status"], report["method"]),
                             (2432, "optimal", "mip"))
        model = self.path("model.lp")
        result = run("plan", "--memo", path, "--mip-model", model)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        with open(model, encoding="ascii") as file:
            self.assertIn("Minimize", file.read(400))


def unproved():
    """An instance for which no proof is found within minutes."""
    return os.path.join(cli.SOURCE, "tests/data/minimalloc/J.1048576.csv")


class EndsEarly(PlanTest):
    def has_solver(self):
        result = run("plan", "--memo", self.write(memo_lines(), "memo.txt"), "--method", "mip")
        return "CBC is not installed" not in result.stderr

    @staticmethod
    def catches(process):
        """Whether it would notice Ctrl-C."""
        with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
            mask = next(line.split()[1] for line in file if line.startswith("SigCgt:"))
        return int(mask, 16) >> (signal.SIGINT - 1) & 1

    def stopped(self, *flags):
        """Ctrl-C while it plans: exit code, report, stderr, and the seconds until it ended."""
        command = [cli.BINARY, "plan", "--minimalloc", unproved(), *flags, "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            while not self.catches(process):
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            time.sleep(0.2)
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=240)
        return process.returncode, reports.load(out), err, time.monotonic() - begin

    def test_interrupt(self):
        out = self.path("plan.csv")
        code, report, stderr, seconds = self.stopped("--out", out)
        self.assertEqual((code, report["status"], report["ended_by"], report["checked"]),
                         (130, "feasible", "interrupt", True))
        self.assertEqual(stderr, f"pagestash: interrupted: the plan is the best so far, {report['peak']} "
                                 f"bytes; {report['lower_bound']} are proved to be needed\n")
        self.assertLess(seconds, 30)
        with open(out, encoding="ascii") as file:
            rows = [line.split(",") for line in file]
        self.assertEqual([(int(row[1]), int(row[4])) for row in rows if row[0] == "malloc"],
                         [(entry["id"], entry["offset"]) for entry in report["placements"]])

    def test_interrupt_within_no_capacity(self):
        out = self.path("plan.csv")
        code, report, stderr, _ = self.stopped("--out", out, "--capacity", "990000")
        self.assertEqual((code, report["ended_by"]), (130, "interrupt"))
        self.assertIn("--capacity 990000: no plan found", stderr)
        self.assertFalse(os.path.exists(out))

    def test_interrupt_of_the_solver(self):
        if not self.has_solver():
            return
        code, report, stderr, seconds = self.stopped("--method", "mip")
        self.assertEqual((code, report["ended_by"], report["method"]), (130, "interrupt", "mip"))
        self.assertIn("interrupted: the plan is the best so far", stderr)
        self.assertLess(seconds, 30)

    def test_deadline_of_the_solver(self):
        """CBC alone took six times as long."""
        if not self.has_solver():
            return
        path = os.path.join(cli.SOURCE, "tests/data/minimalloc/A.1048576.csv")
        first = self.plan("--minimalloc", path, "--max-steps", 1)
        for _ in range(5):  # a stall of the machine makes one late
            report = self.plan("--minimalloc", path, "--method", "mip", "--deadline", 0.5)
            self.assertEqual((report["status"], report["ended_by"]), ("feasible", "deadline"))
            if report["seconds"] < 2:
                break
        self.assertLess(report["seconds"], 2)
        if report["stage"] == "mip":
            self.assertLessEqual(report["peak"], first["peak"])
        else:
            self.assertEqual((report["stage"], report["peak"]), (first["stage"], first["peak"]))

    def test_progress(self):
        """On a terminal only, after two seconds, and away at the end."""
        main, terminal = os.openpty()
        command = [cli.BINARY, "plan", "--minimalloc", unproved(), "--deadline", "4.5"]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, timeout=240, check=False)
        self.assertEqual(result.returncode, 0)
        os.close(terminal)
        shown = cli.read_to_end(main)
        os.close(main)
        self.assertRegex(shown, r"\A(?:planning: second [345] of 5\r\033\[K)+\Z")


class Budget(PlanTest):
    FLAGS = ["--expert-model-parallel-size", 2, "--hidden-size", 64, "--moe-ffn-hidden-size", 32,
             "--num-micro-batches", 2, "--page-size", "16KiB"]

    def memory(self, *flags, code=0):
        path = self.layers()
        return self.plan("--trace", path, "--routing", self.trace(), *self.FLAGS, *flags,
                         code=code)["memory"]

    def test_fits(self):
        rows = cli.read(self.trace())
        local = (len(rows[0]) - 2) // 2
        tensors = cli.tensors_of("bf16", 64, 32)
        pages = [cli.usage(tensors, [sum(row[2:2 + local])], 16 << 10)[1] for row in rows]
        slots = 2 * (max(row[1] for row in rows) + 1)
        most = max(sum(pages[i:i + slots]) for i in range(0, len(pages), slots))
        memory = self.memory("--gpu-memory", "64MiB", "--reserve-memory", "1MiB")
        self.assertIs(memory["fits"], True)
        self.assertEqual(memory["num_pages"], most)
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

    SWAP = ["--host-memory", "8MiB", "--swap-layers", 3, "--swap-input", "10KiB",
            "--swap-attention", "10KiB", "--swap-other", "80KiB", "--swap-tokens", 64,
            "--swap-block", 8, "--link-rate", "1GiB", "--layer-seconds", "0.001"]

    def policy(self, *flags, code=0):
        return self.memory("--schedule", "gpipe-reversed", *flags, code=code)

    def test_policy_without_shortage(self):
        memory = self.policy("--gpu-memory", "64MiB", "--layer-seconds", "0.001")
        self.assertEqual((memory["fits"], memory["scarce"]), (True, False))
        self.assertEqual({layer["keep"] for layer in memory["layers"]}, {"paged"})
        self.assertEqual(memory["needed_gpu_bytes"],
                         memory["planned_bytes"] + memory["sets_bytes"] + memory["pool_bytes"])
        self.assertEqual(memory["total_bytes"], memory["needed_gpu_bytes"])
        exact = self.policy("--gpu-memory", memory["needed_gpu_bytes"], "--layer-seconds", "0.001")
        self.assertEqual((exact["fits"], exact["scarce"]), (True, False))
        reserve = self.policy("--gpu-memory", "64MiB", "--reserve-memory", "1MiB",
                              "--layer-seconds", "0.001")
        self.assertEqual(reserve["needed_gpu_bytes"], memory["needed_gpu_bytes"] + MIB)

    def test_policy_is_that_of_simulate(self):
        """The same layers, times and memory: the same forms, pages and exposed time."""
        model = [*self.FLAGS[:-4], "--routing", self.trace()]
        memory = self.policy("--gpu-memory", "64MiB", "--layer-seconds", "0.001")
        result = run("simulate", "--schedule", "gpipe-reversed", "--micro-batches", 2, "--layers",
                     len(memory["layers"]), "--forward-ns", "0,1000000,0", "--backward-ns",
                     "0,2000000,0", "--solve", "--gpu-memory", "64MiB", *model, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        policy = reports.load(result.stdout)["policy"]
        self.assertEqual([memory[key] for key in ("num_pages", "page_bytes", "sets_bytes", "rule",
                                                  "one_ring", "sources", "exposed_ns")],
                         [policy[key] for key in ("pages", "page_size", "sets_bytes", "rule",
                                                  "one_ring", "sources", "exposed_ns")])

    def test_policy_moves_what_it_must(self):
        flags = ["--trace", self.layers(), *self.SWAP, "--schedule", "1f1b"]
        room = self.plan(*flags, "--gpu-memory", "64MiB")["memory"]
        self.assertEqual([layer["keep"] for layer in room["layers"]], ["planned"] * 3)
        self.assertEqual(room["planned_bytes"], room["static_bytes"])
        flags += ["--gpu-memory", room["needed_gpu_bytes"] - (20 << 10)]
        swapped = self.plan(*flags)["memory"]
        self.assertEqual((swapped["fits"], swapped["scarce"]), (True, True))
        self.assertGreaterEqual(swapped["layers_swapped"], 1)
        self.assertEqual(swapped["swap_buffer_bytes"], 2 * (100 << 10))
        self.assertEqual(swapped["planned_bytes"],
                         room["static_bytes"] - swapped["layers_swapped"] * (100 << 10))
        cheap = self.plan(*flags, "--recompute-seconds", "0.000001", "--host-memory", "1")["memory"]
        self.assertEqual((cheap["layers_recomputed"], cheap["recompute_ns"]), (1, 1000))
        self.assertEqual(cheap["exposed_ns"], 1000)

    def test_progress_of_a_policy(self):
        """From the third second on; a policy that takes long, which need not end."""
        shown = cli.shown_on_terminal(cli.BINARY, "plan", "--trace", self.layers(16), "--routing",
                                      self.trace(4096, 16), *self.FLAGS[:-4], "--num-micro-batches", 4096,
                                      "--schedule", "gpipe-reversed", "--gpu-memory", "64MiB", "--layer-seconds",
                                      "0.001", until="solving: second")
        self.assertIn("solving: second", shown)

    def test_policy_that_cannot_fit(self):
        memory = self.policy("--gpu-memory", "64MiB", "--layer-seconds", "0.001")
        short = memory["needed_gpu_bytes"] - (1 << 20)
        lacks = self.policy("--gpu-memory", short, "--layer-seconds", "0.001", code=1)
        self.assertIs(lacks["fits"], False)
        self.assertGreater(lacks["missing_gpu_bytes"] + lacks["missing_host_bytes"], 0)

    def test_idle(self):
        path = self.layers()
        report = self.plan("--trace", path, "--idle", "f2:b2,f0.0:b0.0,f0:f0")
        self.assertEqual([(idle["from"], idle["to"]) for idle in report["idle"]],
                         [("f2.0", "b2.0"), ("f0.0", "b0.0"), ("f0.0", "f0.0")])
        for idle in report["idle"]:
            self.assertEqual(idle["bytes"], sum(high - low for low, high in idle["ranges"]))
        self.assertEqual([idle["bytes"] for idle in report["idle"]], [0, 0, 200 << 10])
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

    def test_report_takes_no_memory(self):
        """It is as long as the trace, and written as it comes: 430 bytes a tensor would be a tree of it."""
        trace, report = self.path("trace.csv"), self.path("plan.json")
        self.assertEqual(run("trace", "--derive", "--full", "--num-layers", 80, "--num-micro-batches", 20,
                             "--out", trace).returncode, 0)
        code, alone, _ = run_measured("plan", "--trace", trace)
        code_too, taken, _ = run_measured("plan", "--trace", trace, f"--json={report}")
        self.assertEqual((code, code_too), (0, 0))
        with open(report, encoding="utf-8") as file:
            text = file.read()
        placements = json.loads(text)["placements"]
        self.assertEqual(len(placements), 104480)
        self.assertTrue(text.endswith(json.dumps({"placements": placements}, indent=2)[1:] + "\n"))
        self.assertLess((taken - alone) / len(placements), 100)

    def test_files_that_cannot_be_written(self):
        path = self.layers()
        for flag in ("out", "html", "perfetto", "mip-model", "json"):
            for name, words in (("/dev/full", "No space left"), (self.path("none/x"), "No such file"),
                                (self.folder, "is a folder")):
                result = run("plan", "--trace", path, f"--{flag}={name}")
                self.assertEqual((result.returncode, result.stderr.count("\n")), (3, 1), result)
                self.assertIn(f"--{flag} {name}: {words}", result.stderr)
        self.assertEqual(os.listdir(self.folder), ["layers.csv"])

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
        """9 are live at most, the optimum is 10."""
        sizes = "7 7 1 3 1 8 6 1 1 8 1 1 1 3 1 7"
        lives = "34 56 01 01 25 23 45 36 12 69 01 01 12 01 49 12"
        rows = [f"{key},{life[0]},{life[1]},{size}"
                for key, (size, life) in enumerate(zip(sizes.split(), lives.split()))]
        path = self.write("id,lower,upper,size\n" + "\n".join(rows) + "\n")
        stderr, again = self.impossible("--minimalloc", path, "--capacity", 9)
        self.assertEqual(again["stage"], "search")
        self.assertIn("at least 10 bytes are needed", stderr)

    def test_capacity_ends_the_search(self):
        report = self.plan("--minimalloc", unproved(), "--capacity", 1048576)
        self.assertEqual((report["status"], report["ended_by"]), ("feasible", "capacity"))
        self.assertLessEqual(report["peak"], 1048576)

    def test_period(self):
        rows = ["id,lower,upper,size"]
        for step in range(7):
            rows += [f"{3 * step},{10 * step},{10 * step + 8},5",
                     f"{3 * step + 1},{10 * step + 2},{10 * step + 5},3",
                     f"{3 * step + 2},{10 * step + 4},{10 * step + 9},4"]
        path = self.write("\n".join(rows) + "\n")
        report = self.plan("--minimalloc", path)
        self.assertEqual([report[key] for key in ("parts", "different_parts", "periods",
                                                  "period_tensors", "period_begin", "ended_by")],
                         [7, 1, 7, 3, 4, "proof"])
        self.assertEqual({tuple(entry["offset"] for entry in report["placements"][step:step + 3])
                          for step in range(0, 21, 3)}.__len__(), 1)

    def test_period_on_weights(self):
        """Weights and a state of the first step, each made after a temporary has gone, lie beneath all steps."""
        rows = ["id,lower,upper,size", "900,0,200,16", "901,1,3,20", "902,4,200,16", "903,5,7,8", "904,107,200,8"]
        for step in range(9):
            begin = 100 + 10 * step
            rows += [f"{3 * step},{begin},{begin + 8},5", f"{3 * step + 1},{begin + 2},{begin + 5},3",
                     f"{3 * step + 2},{begin + 6},{begin + 9},4"]
        report = self.plan("--minimalloc", self.write("\n".join(rows) + "\n"))
        self.assertEqual([report[key] for key in ("status", "peak", "parts", "different_parts", "periods",
                                                  "period_tensors", "ended_by")],
                         ["optimal", 49, 11, 3, 9, 3, "proof"])
        offsets = {int(entry["id"]): entry["offset"] for entry in report["placements"]}
        self.assertEqual([offsets[key] for key in (900, 902, 904)], [0, 16, 32])
        for key in range(3):
            self.assertEqual(len({offsets[3 * step + key] for step in range(9)}), 1)
            self.assertGreaterEqual(offsets[key], 40)

    def test_limits(self):
        path = os.path.join(cli.SOURCE, "tests/data/minimalloc/A.1048576.csv")
        report = self.plan("--minimalloc", path, "--max-steps", 100)
        self.assertEqual((report["status"], report["ended_by"]), ("feasible", "steps"))
        report = self.plan("--minimalloc", path, "--max-steps", 100, "--capacity", 1048576, code=1)
        self.assertEqual((report["status"], report["ended_by"]), ("feasible", "steps"))
        self.assertNotIn("late_seconds", report)
        report = self.plan("--minimalloc", path, "--deadline", "0.000001")
        self.assertEqual((report["status"], report["ended_by"]), ("feasible", "deadline"))
        self.assertAlmostEqual(report["late_seconds"], report["seconds"] - 0.000001, delta=1e-9)

    def test_usage(self):
        path = self.layers()
        given = ["--trace", path]
        for flags, words in (
                ([], ["exactly one", "--minimalloc"]),
                ([*given, "--memo", path], ["2 traces"]),
                ([*given, "--pin", "1"], ["--pin 1", "ID@OFFSET"]),
                ([*given, "--pin", "99@0"], ["--pin 99@0", "ids of static tensors"]),
                ([*given, "--pin", "1@100"], ["pinned at 100", "an end of at most 2^62\n"]),
                ([*given, "--pin", "1@0,11@0"], ["pinned at 0", "overlaps"]),
                ([*given, "--reserve", "5"], ["--reserve 5", "A:B"]),
                ([*given, "--host-memory", 5], ["--gpu-memory", "missing"]),
                ([*given, "--schedule", "1f1b"], ["--gpu-memory", "missing", "--schedule"]),
                ([*given, "--gpu-memory", 5, "--schedule", "1f1b"], ["--layer-seconds"]),
                ([*given, "--gpu-memory", 5, "--schedule", "1f1b", "--layer-seconds", 1],
                 ["--routing, --swap-layers"]),
                ([*given, "--gpu-memory", 5, "--schedule", "1f1b", "--layer-seconds", 1, "--stage",
                  1], ["--stage 1", "0..0"]),
                ([*given, "--gpu-memory", 5, "--schedule", "1f1b", "--layer-seconds", 1,
                  "--headroom", 2], ["--headroom 2", "without --schedule"]),
                ([*given, "--gpu-memory", 5, "--swap-layers", 3], ["--swap-layers 3", "--link-rate"]),
                ([*given, "--gpu-memory", 5, "--expert-model-parallel-rank", 2],
                 ["--expert-model-parallel-rank 2", "0..0"]),
                ([*given, "--quantile", "1.5"], ["--quantile 1.5", "at most 1"]),
                ([*given, "--idle", "x"], ["--idle x", "FROM:TO"]),
                ([*given, "--idle", "f9:b9"], ["--idle f9:b9"]),
                ([*given, "--idle", "b0:f0"], ["--idle b0:f0"]),
                ([*given, "--json", "--out", "-"], ["standard output"])):
            with self.subTest(flags=flags):
                self.refused(run("plan", *flags), 2, *words)

    def test_bad_traces(self):
        path = self.write("malloc 1 0\n")
        self.refused(run("plan", "--memo", path, "--json"), 3, path, ":1:")
        self.refused(run("plan", "--trace", self.path("absent")), 3, "No such file")
        for size, line in ((2**63 - 1, 1), (2**62 + 1, 1), (2**62, 2)):
            path = self.write(f"malloc 1 {size}\nmalloc 2 1\nfree 1\nfree 2\n")
            self.refused(run("plan", "--memo", path), 3, f"{path}:{line}: field size: ", "2^62")
        path = self.write(HEADER + "malloc,1,5,0,,,,0,static\nfree,1,,,,,,0,static\n")
        self.refused(run("plan", "--trace", path, "--mode", "bilevel"), 3, "bilevel", "phase")

    def test_budget_trace(self):
        self.refused(run("plan", "--trace", self.layers(), "--gpu-memory", "1GiB", "--routing",
                         self.path("absent")), 3, "absent")


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE, cli.DEVICE = sys.argv[1], sys.argv[2], "host"
    unittest.main(argv=sys.argv[:1], verbosity=0)
