#!/usr/bin/env python3
"""Tests of the command pagestash trace: test_trace.py BINARY SOURCE_FOLDER"""
import contextlib
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import cli
import reports
from cli import MIB, CommandTest, run
from snapshot import PROTOCOLS, dump, snapshot

HEADER = "op,id,size,stream,phase,layer,micro_batch,rank,tag\n"
TP, CP = "--tensor-model-parallel-size", "--context-parallel-size"
PP, PP_RANK = "--pipeline-model-parallel-size", "--pipeline-model-parallel-rank"
KEYS = ["schema_version", "command", "version", "trace", "requests", "marks", "passes", "streams",
        "tensors", "unfreed_tensors", "distinct_sizes", "most_live_tensors", "align_bytes",
        "most_live_bytes", "most_live_request", "online_peak_bytes", "online_fragmentation",
        "dynamic_tensors", "most_live_dynamic_bytes"]


def lives(draw, tensors, most):
    """Requests of so many tensors: (True, id, size) and (False, id, size)."""
    requests = []
    live = []
    while tensors or live:
        if tensors and len(live) < most and draw.random() < 0.55:
            size = draw.choice([1, 511, 512, 513, 4096, draw.randrange(1, 1 << 20)])
            live.append((tensors, size))
            requests.append((True, *live[-1]))
            tensors -= 1
        elif live:
            requests.append((False, *live.pop(draw.randrange(len(live)))))
    return requests


def sizes_up(requests, align=512):
    return [(is_malloc, key, -(-size // align) * align) for is_malloc, key, size in requests]


def expect(requests, align=512):
    """Load, where, most live, and what best fit in the order of the requests reaches."""
    load = top = count = most = where = best_load = 0
    blocks = []  # (address, size, id) of what lives, in order
    for i, (is_malloc, key, size) in enumerate(sizes_up(requests, align)):
        if not is_malloc:
            blocks = [block for block in blocks if block[2] != key]
            load -= size
            count -= 1
            continue
        gaps = []
        end = 0
        for address, length, _ in blocks:
            if address - end >= size:
                gaps.append((address - end, end))
            end = address + length
        place = min(gaps)[1] if gaps else end
        blocks = sorted(blocks + [(place, size, key)])
        load += size
        count += 1
        top = max(top, place + size)
        most = max(most, count)
        if load > best_load:
            best_load, where = load, i
    return {"most_live_bytes": best_load, "most_live_request": where, "online_peak_bytes": top,
            "most_live_tensors": most, "requests": len(requests),
            "tensors": len(requests) // 2, "align_bytes": align,
            "distinct_sizes": len({size for _, _, size in requests})}


def csv_text(requests):
    return HEADER + "".join(f"malloc,{key},{size},0,,,,0,static\n" if is_malloc else
                            f"free,{key},,0,,,,0,static\n" for is_malloc, key, size in requests)


def memo_text(requests):
    return "".join(f"malloc {key} {size}\n" if is_malloc else f"free {key}\n"
                   for is_malloc, key, size in requests)


def stalloc_text(requests):
    return "".join(f"{int(is_malloc)} {hex(key * 512)} {size} 7\n"
                   for is_malloc, key, size in requests)


def minimalloc_text(requests):
    spans = {}
    for time, (is_malloc, key, size) in enumerate(requests):
        spans[key] = (time, None, size) if is_malloc else (spans[key][0], time, size)
    rows = [f"{size},{lower},{key},{upper}\n" for key, (lower, upper, size) in spans.items()]
    random.Random(1).shuffle(rows)
    return "size,lower,id,upper\n" + "".join(rows)


class TraceTest(CommandTest):
    def summary(self, *flags, code=0, **options):
        """The JSON; the text must say the same."""
        result = run("trace", *flags, "--json", **options)
        self.assertEqual((result.returncode, result.stderr), (code, ""), result)
        keys = reports.load(result.stdout)
        self.assertEqual(list(keys), KEYS)
        self.assertEqual((keys["schema_version"], keys["command"]), (1, "trace"))
        self.assertEqual(run("trace", *flags, "--json", **options).stdout, result.stdout)
        text = run("trace", *flags, **options).stdout.splitlines()
        for key in KEYS[4:]:
            words = f"{key.replace('_', ' ')}: "
            value = next(line for line in text if line.startswith(words))[len(words):].split()[0]
            if isinstance(keys[key], int):
                self.assertEqual(int(value), keys[key], key)
        return keys

    def out(self, *flags):
        """What --out writes."""
        path = self.path("out.csv")
        result = run("trace", *flags, "--out", path)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        with open(path, encoding="ascii") as file:
            text = file.read()
        os.unlink(path)
        self.assertEqual(run("trace", *flags, "--out", "-").stdout, text)
        return text


class Formats(TraceTest):
    def test_every_format_says_the_same(self):
        for seed in range(4):
            requests = lives(random.Random(seed), 60, 5 + 10 * seed)
            expected = expect(requests)
            for name, text in (("trace", csv_text(requests)), ("memo", memo_text(requests)),
                               ("stalloc", stalloc_text(requests)),
                               ("minimalloc", minimalloc_text(requests)),
                               ("pytorch", dump(snapshot(requests)))):
                with self.subTest(format=name, seed=seed):
                    keys = self.summary(f"--{name}", self.write(text))
                    self.assertEqual({key: keys[key] for key in expected}, expected)
                    self.assertAlmostEqual(
                        keys["online_fragmentation"],
                        expected["online_peak_bytes"] / expected["most_live_bytes"] - 1)

    def test_alignment(self):
        requests = lives(random.Random(9), 50, 12)
        path = self.write(memo_text(requests))
        for align, flag in ((1, 1), (256, 256), (1 << 21, "2MiB")):
            keys = self.summary("--memo", path, "--align", flag)
            expected = expect(requests, align)
            self.assertEqual({key: keys[key] for key in expected}, expected)

    def test_out_is_canonical(self):
        text = (HEADER + "mark,3,,0,,,,2,iteration\nmalloc,5,7,4,forward,0,1,2,dynamic\n"
                "mark,1,,4,,,,2,record\nmark,1,,9,other,,,2,wait\nmark,5,,9,,,,2,use\n"
                "free,5,7,9,weight,4294967294,0,2,static\nmark,0,,0,,,,2,sync\n")
        self.assertEqual(self.out("--trace", self.write(text)), text)
        requests = lives(random.Random(3), 40, 9)
        text = csv_text(requests)
        for name, other in (("trace", text), ("memo", memo_text(requests))):
            self.assertEqual(self.out(f"--{name}", self.write(other)), text)

    def test_line_ends(self):
        requests = lives(random.Random(4), 30, 9)
        expected = expect(requests)
        for name, text in (("trace", csv_text(requests)), ("memo", memo_text(requests)),
                           ("stalloc", stalloc_text(requests)),
                           ("minimalloc", minimalloc_text(requests))):
            for changed in (text.replace("\n", "\r\n"), "\ufeff" + text, text[:-1]):
                keys = self.summary(f"--{name}", self.write(changed))
                self.assertEqual(keys["most_live_bytes"], expected["most_live_bytes"])

    def test_standard_input(self):
        requests = lives(random.Random(5), 30, 9)
        result = run("trace", "--memo", "-", "--json", input=memo_text(requests))
        self.assertEqual(reports.load(result.stdout)["most_live_bytes"],
                         expect(requests)["most_live_bytes"])

    def test_rank_iteration_unfreed(self):
        text = (HEADER + "malloc,1,512,,,,,0,\nmalloc,1,1024,,,,,1,\nfree,1,,,,,,0,\n"
                "free,1,,,,,,1,\nmark,0,,,,,,1,iteration\nmalloc,2,2048,,,,,1,\n")
        path = self.write(text)
        self.refused(run("trace", "--trace", path), 3, ":3: field rank: 1: allowed is 0")
        self.assertEqual(self.summary("--trace", path, "--trace-rank", 0)["most_live_bytes"], 512)
        self.refused(run("trace", "--trace", path, "--trace-rank", 1), 3,
                     ":7: field id: 2: never freed", "--keep-unfreed")
        keys = self.summary("--trace", path, "--trace-rank", 1, "--keep-unfreed")
        self.assertEqual((keys["most_live_bytes"], keys["unfreed_tensors"]), (2048, 1))
        keys = self.summary("--trace", path, "--iteration", 0, "--keep-unfreed")
        self.assertEqual((keys["requests"], keys["marks"]), (1, 1))
        self.refused(run("trace", "--trace", path, "--trace-rank", 7), 3, "rank 7")
        self.refused(run("trace", "--trace", path, "--trace-rank", 1, "--iteration", 1), 3,
                     "iteration 1: the trace has 1")


class Snapshots(TraceTest):
    # Fault rows 61.
    def test_protocols(self):
        requests = lives(random.Random(6), 200, 30)
        expected = expect(requests)
        for protocol in PROTOCOLS:
            path = self.write(dump(snapshot(requests), protocol))
            keys = self.summary("--pytorch", path)
            self.assertEqual({key: keys[key] for key in expected}, expected)

    # Fault rows 62.
    def test_devices(self):
        path = self.write(dump(snapshot(lives(random.Random(7), 50, 10), [0, 1 << 40])))
        self.assertEqual(self.summary("--pytorch", path, "--trace-device", 1)["streams"], 2)
        self.refused(run("trace", "--pytorch", path, "--trace-device", 2), 3, "device 2",
                     "2 devices")
        self.refused(run("trace", "--pytorch", path), 3, "no malloc")

    def test_sharing_does_not_expand(self):
        """A list of lists of ... the same list: 2^60 values if it were written out."""
        shared = []
        for _ in range(60):
            shared = [shared, shared]
        path = self.write(dump(dict(snapshot([(True, 1, 512), (False, 1, 512)]), more=shared)))
        self.assertEqual(self.summary("--pytorch", path)["most_live_bytes"], 512)
        cycle = snapshot([(True, 1, 512), (False, 1, 512)])
        cycle["device_traces"][1].append(cycle)
        cycle["self"] = cycle
        self.refused(run("trace", "--pytorch", self.write(dump(cycle)), "--trace-device", 1), 3,
                     "field action: nothing")


class Evil:
    """What would run a command if it were unpickled."""

    def __reduce__(self):
        return os.system, ("touch evil",)


class BadTraces(TraceTest):
    """One of each format; the readers' own tests have the rest."""

    # Fault rows 54, 55.
    def test_bad_files(self):
        both = snapshot([(True, 1, 512), (False, 1, 512)])
        for kind, content, words in (
                ("trace", "", [":1: empty file"]),
                ("trace", HEADER + "free,1,,,,,,,\n", [":2: field id: 1: free before malloc"]),
                ("trace", HEADER + "malloc,1,\033[31m5,,,,,,\n", [':2: field size: "?[31m5"']),
                ("minimalloc", "id,lower,upper,size\n1,5,5,9\n", [":2: field upper", "more than"]),
                ("memo", "malloc 1 5\nfree 2\n", [":2: field id: 2: free before malloc"]),
                ("memo", "malloc 1 5\nmalloc 1 5\n", [":2: field id: 1: used twice: the other malloc is at 1"]),
                ("memo", "malloc 1 5\nfree 1\nfree 1\n",
                 [":3: field id: 1: double free: freed at 2, malloc'ed at 1"]),
                ("stalloc", "begin layer\n", [':1: field op: "begin"', "Iteration Index : "]),
                ("pytorch", b"", ["byte 0: the file ends"]),
                ("pytorch", b"}.", ["byte 0: 0x7d: allowed is 0x80"]),
                ("pytorch", dump(dict(both, device_traces=3)), ["field device_traces: an int"])):
            with self.subTest(kind=kind, content=content):
                self.refused(run("trace", f"--{kind}", self.write(content)), 3, *words)

    def test_no_end(self):
        """Of a file that never ends as much is read as it takes to see that it is none."""
        for kind, words in (("pytorch", ["byte 0: 0x00"]), ("memo", [":1: line of more than"]),
                            ("minimalloc", [":1: line of more than"])):
            result = run("trace", f"--{kind}", "/dev/zero")
            self.refused(result, 3, "/dev/zero:", *words)

    def test_more_than_addresses(self):
        path = self.write(f"malloc 1 {2**62}\nmalloc 2 1\nfree 1\nfree 2\n")
        self.refused(run("trace", "--memo", path), 3, path, "2^62 bytes live at line 2: ")

    # Fault rows 60.
    def test_nothing_is_run(self):
        for protocol in PROTOCOLS:
            path = self.write(dump(dict(snapshot([]), more=[Evil()]), protocol))
            result = run("trace", "--pytorch", path, cwd=self.folder)
            self.refused(result, 3, ": byte ", "opcode ", "GLOBAL")
            self.assertEqual(os.listdir(self.folder), ["trace.csv"])


class Derived(TraceTest):
    def test_figures(self):
        for flags, tensors, load in (
                (["layer-forward"], 23, 896.125),
                (["layer-backward"], 41, 1922),
                (["layer", "--full"], 66, 3234.25),
                (["model"], 2040, 7106.125),
                (["model", "--num-layers", 80, "--full"], 5224, 171126.125),
                (["model", "--fused-loss"], 2040, 1923.75),
                (["model", "--num-layers", 80, "--full", "--fused-loss", TP, 2, CP, 4], 5224,
                 165108.875),
                (["model", "--num-layers", 80, "--full", "--num-micro-batches", 12, "--warmup", 4], 62688,
                 827724.125),
                (["model", TP, 8, CP, 1, "--alpha", "1/1"], 1400, 7684.125),
                (["layer-forward", "--micro-batch-size", 2, "--seq-length", 65536], 23, 896.125),
                (["layer-forward", "--hidden-size", 8192, "--num-attention-heads", 64], 23, 1792.125),
                (["layer-backward", "--ffn-hidden-size", 32768], 41, 2368)):
            with self.subTest(flags=flags):
                keys = self.summary("--derive", "--part", *flags)
                self.assertEqual((keys["tensors"], keys["most_live_bytes"]), (tensors, load * MIB))

    def test_expansion(self):
        small = ["--derive", "--seq-length", 1024, "--hidden-size", 256, "--full"]
        long = self.out(*small, "--num-layers", 5)
        self.assertEqual(self.out(*small, "--num-layers", 1, "--expand", 5), long)
        path = self.write(self.out(*small, "--num-layers", 2))
        self.assertEqual(self.out("--trace", path, "--expand", 5), long)
        rows = long.splitlines()[1:]
        bare = [row.split(",") for row in self.out(*small, "--num-layers", 1).splitlines()[1:]]
        ranges = []
        for phase in ("forward", "backward"):
            at = [i for i, row in enumerate(bare) if row[4] == phase]
            ranges += [f"--{phase}", f"{at[0]}:{at[-1] + 1}"]
        path = self.write(HEADER + "".join(",".join(row[:4]) + ",,,,0,static\n" for row in bare))
        self.assertEqual([row.split(",")[:5] for row in
                          self.out("--trace", path, "--expand", 5, *ranges).splitlines()[1:]],
                         [row.split(",")[:5] for row in rows])
        piped = ["--num-micro-batches", 6, "--order", "1f1b", PP, 4, PP_RANK, 1]
        self.assertEqual(self.out("--trace", path, "--expand", 3, *ranges, *piped).splitlines()[1:],
                         self.out(*small, "--num-layers", 3, "--num-micro-batches", 6, "--warmup",
                                  2).splitlines()[1:])
        self.refused(run("trace", "--trace", path, "--expand", 3), 3, "label the layers")
        self.refused(run("trace", "--trace", path, "--expand", 3, "--forward", "0:9", "--backward",
                         "9:9999"), 2, "--backward: allowed is a range within 0:")

    def test_flags_that_belong_to_the_other_source(self):
        file = ["--memo", self.write("malloc 1 5\nfree 1\n")]
        for flags in (["--micro-batch-size", 2], ["--seq-length", 8], ["--hidden-size", 8], ["--ffn-hidden-size", 8],
                      ["--num-attention-heads", 2], ["--vocab-size", 2], [TP, 1], [CP, 1], ["--num-layers", 5],
                      ["--alpha", "1/2"], ["--alpha", "2/4"], ["--full"], ["--fused-loss"], ["--warmup", 1],
                      ["--part", "layer"]):
            with self.subTest(flags=flags):
                self.refused(run("trace", *file, *flags), 2, "--derive: missing: the flags from --part to --warmup")
        for flags in (["--trace-rank", 0], ["--trace-device", 1], ["--iteration", 0], ["--keep-unfreed"]):
            with self.subTest(flags=flags):
                self.refused(run("trace", "--derive", *flags), 2, "--derive: allowed is a file with --trace-device")
        for flags in (["--forward", "0:1", "--backward", "1:2"], ["--order", "1f1b"]):
            with self.subTest(flags=flags):
                self.refused(run("trace", *file, *flags), 2, "--expand: missing: --forward, --backward and --order")

    def test_usage(self):
        path = self.write("malloc 1 5\nfree 1\n")
        file = ["--memo", path]
        model = ["--derive"]
        for flags, words in (
                ([], ["0 traces given", "--trace"]),
                ([*file, *model], ["2 traces given"]),
                ([*file, "--trace", path], ["2 traces given"]),
                ([*model, TP, 3], ["multiple of"]),
                ([*model, "--alpha", "5/4"], ["--alpha 5/4"]),
                ([*model, "--num-attention-heads", 3], ["heads 3"]),
                ([*model, "--seq-length", 2**63 - 8], ["sequence_size 9223372036854775800"]),
                ([*model, "--check"], ["--check"]),
                ([*file, "--num-micro-batches", 2], ["--num-micro-batches 2"]),
                ([*file, "--expand", 2, "--forward", "1:2"], ["--backward: missing"]),
                ([*file, "--expand", 2, PP, 2], ["--pipeline-model-parallel-size 2", "1f1b"]),
                ([*file, "--expand", 2, "--order", "1f1b", PP, 2, PP_RANK, 2],
                 ["--pipeline-model-parallel-rank 2", "0..1"]),
                ([*file, "--json", "--out", "-"], ["--out -"]),
                ([*file, "--out", ""], ["--out: empty"]),
                ([*file, "--json", "--check"], ["--check"])):
            with self.subTest(flags=flags):
                self.refused(run("trace", *flags), 2, *words)
        for name in (self.path("none/x"), self.folder):
            self.refused(run("trace", *file, "--out", name), 3, f"--out {name}: ")
        self.refused(run("trace", "--memo", self.path("none")), 3, "--memo", "No such file")
        self.refused(run("trace", "--memo", self.folder), 3, "directory")


class Output(TraceTest):
    # Fault rows 63.
    def test_the_whole_file_or_nothing(self):
        good = self.write("malloc 1 5\nfree 1\n", "good")
        bad = self.write("malloc 1 5\nfree 2\n", "bad")
        target = self.write("before", "target")
        self.refused(run("trace", "--memo", bad, "--out", target), 3, ":2: field id: 2")
        with open(target, encoding="ascii") as file:
            self.assertEqual(file.read(), "before")
        link = self.path("link")
        os.symlink(target, link)
        before = os.stat(target).st_ino
        self.assertEqual(run("trace", "--memo", good, "--out", link).returncode, 0)
        self.assertNotEqual(os.stat(target).st_ino, before)  # another file took its name
        self.assertTrue(os.path.islink(link))
        with open(target, encoding="ascii") as file:
            self.assertTrue(file.read().startswith("op,id,"))
        self.assertEqual(sorted(os.listdir(self.folder)), ["bad", "good", "link", "target"])
        self.assertEqual(os.stat(target).st_mode & 0o777, 0o666 & ~self.mask())
        self.refused(run("trace", "--memo", good, "--out", "/dev/full"), 3, "--out /dev/full")

    def test_rights_are_kept(self):
        good = self.write("malloc 1 5\nfree 1\n", "good")
        for mode in (0o600, 0o664):
            target = self.write("before", "target")
            os.chmod(target, mode)
            self.assertEqual(run("trace", "--memo", good, "--out", target).returncode, 0)
            self.assertEqual(os.stat(target).st_mode & 0o777, mode)

    def interrupted(self, number, micro_batches):
        """Whether the signal came while the file was written: the command is stopped when it comes."""
        target = self.write("before", "target")
        command = [cli.BINARY, "trace", "--derive", "--num-layers", "32", "--num-micro-batches", str(micro_batches),
                   "--out", target]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            while len(os.listdir(self.folder)) == 1 and process.poll() is None:
                time.sleep(0.0002)
            process.send_signal(signal.SIGSTOP)
            with contextlib.suppress(ChildProcessError):  # it was done before
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            is_written = len(os.listdir(self.folder)) == 2
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)
        self.assertEqual(os.listdir(self.folder), ["target"])
        if is_written:
            self.assertEqual(process.returncode, -number)
            with open(target, encoding="ascii") as file:
                self.assertEqual(file.read(), "before")
        return is_written

    def test_signals_leave_nothing(self):
        """Of larger and larger files, until one takes long enough to be met."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.assertTrue(any(self.interrupted(number, 20 << i) for i in range(8)), number)

    def test_ignored_signals_stay_ignored(self):
        script = 'trap "" HUP; exec "$@"'
        command = ["sh", "-c", script, "sh", cli.BINARY, "trace", "--derive", "--num-micro-batches", "4",
                   "--out", self.path("out")]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            while not os.listdir(self.folder) and process.poll() is None:
                time.sleep(0.0002)
            process.send_signal(signal.SIGHUP)
        self.assertEqual((process.returncode, os.listdir(self.folder)), (0, ["out"]))

    def test_limit_of_file_sizes(self):
        target = self.write("before", "target")
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        with tempfile.TemporaryDirectory() as apart:  # what a build for coverage counts is too large, too
            uncounted = dict(os.environ, GCOV_PREFIX=apart, GCOV_ERROR_FILE="/dev/null")
            result = subprocess.run([cli.BINARY, "trace", "--derive", "--out", target], text=True, timeout=240,
                                    capture_output=True, check=False, preexec_fn=limit, env=uncounted)
        self.refused(result, 3, f"--out {target}: File too large")
        self.assertEqual(os.listdir(self.folder), ["target"])

    @staticmethod
    def mask():
        mask = os.umask(0)
        os.umask(mask)
        return mask

    def test_full_disk_on_stdout(self):
        path = self.write("malloc 1 5\nfree 1\n")
        with open("/dev/full", "wb") as full:
            for flags in ([], ["--json"], ["--out", "-"], ["--check"]):
                result = subprocess.run([cli.BINARY, "trace", "--memo", path, *flags], stdout=full,
                                        stderr=subprocess.PIPE, text=True, timeout=240)
                self.assertEqual(result.returncode, 3)
                self.assertIn("standard output", result.stderr)


class Streams(TraceTest):
    PAIRS = 10000

    def read_pairs(self, times, *flags):
        """What trace writes of PAIRS tensors `times` over through a pipe, and the most memory that it had."""
        process = subprocess.Popen([cli.BINARY, "trace", "--trace", "-", *flags],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def write():
            with process.stdin as pipe:
                pipe.write(HEADER.encode())
                for first in range(0, times * self.PAIRS, self.PAIRS):
                    pipe.write("".join(
                        f"malloc,{i},4096,0,forward,0,0,0,static\nfree,{i},,0,forward,0,0,0,\n"
                        for i in range(first, first + self.PAIRS)).encode())
        writer = threading.Thread(target=write)
        writer.start()
        output = process.stdout.read().decode()
        process.stdout.close()
        writer.join()
        _, status, resources = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        return output, resources.ru_maxrss << 10

    # Fault rows 56.
    def test_constant_memory(self):
        """Two million rows; what is held does not grow with them."""
        output, taken = self.read_pairs(100, "--check")
        self.assertEqual(output, f"rows: {200 * self.PAIRS}\n")
        self.assertLess(taken, 64 * MIB)

    # Fault rows 56.
    def test_memory_of_a_request(self):
        """Without --check the trace is held."""
        _, little = self.read_pairs(1)
        output, taken = self.read_pairs(20)
        self.assertIn(f"\nrequests: {40 * self.PAIRS}\n", "\n" + output)
        with open(cli.BINARY, "rb") as file:
            has_zones = b"__asan_init" in file.read()  # around each request
        self.assertLess((taken - little) / (38 * self.PAIRS), 1600 if has_zones else 200)

    def test_check_says_form_only(self):
        path = self.write("free 1\nfree 1\n")
        self.assertEqual(run("trace", "--memo", path, "--check").stdout, "rows: 2\n")
        path = self.write("free 1\nfree x\n")
        self.refused(run("trace", "--memo", path, "--check"), 3, ":2: field id: \"x\"")


class Progress(CommandTest):
    """On a terminal, from the third second of the command on, whatever it is at then. Those that take long need not
    end."""

    def test_deriving(self):
        shown = cli.shown_on_terminal(cli.BINARY, "trace", "--derive", "--full", "--num-layers", 2000,
                                      "--num-micro-batches", 256, until="deriving the trace: second")
        self.assertIn("deriving the trace: second", shown)

    def test_summing_up(self):
        shown = cli.shown_on_terminal(cli.BINARY, "trace", "--derive", "--full", "--num-layers", 600,
                                      "--num-micro-batches", 256, until="summing up the trace: second")
        self.assertIn("summing up the trace: second", shown)

    def test_seconds_go_on(self):
        """From one part, a trace that comes late, to the next, which alone would take too short to be shown."""
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        main, terminal = os.openpty()
        with subprocess.Popen([cli.BINARY, "trace", "--memo", "-", "--out", pipe], stdin=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, stderr=terminal) as process:
            os.close(terminal)
            shown = ""
            while not re.search("reading the trace: second (?!3)", shown):
                shown += os.read(main, 4096).decode()
            process.stdin.write(b"".join(b"malloc %d 512\nfree %d\n" % (i, i) for i in range(1, 10000)))
            process.stdin.close()
            with open(pipe, "rb") as file:
                while "writing the trace: second" not in shown:
                    shown += os.read(main, 4096).decode()
                file.read()
        shown += cli.read_to_end(main)
        os.close(main)
        self.assertEqual(process.returncode, 0)
        seconds = re.fullmatch(r"(?:reading the trace: second (\d+)\r\033\[K)+"
                               r"(?:writing the trace: second (\d+)\r\033\[K)+"
                               r"(?:summing up the trace: second \d+\r\033\[K)*", shown)
        self.assertTrue(seconds and 3 <= int(seconds[1]) <= int(seconds[2]), shown)

    def test_expanding(self):
        path = self.write("malloc 1 512\nmalloc 2 512\nfree 2\nfree 1\n")
        shown = cli.shown_on_terminal(cli.BINARY, "trace", "--memo", path, "--expand", 30000, "--num-micro-batches", 300,
                                      "--forward", "0:2", "--backward", "2:4", until="expanding the trace: second")
        self.assertIn("expanding the trace: second ", shown)

    def test_writing(self):
        """Into a pipe, where a slow reader lets it wait."""
        pipe = self.path("pipe")
        os.mkfifo(pipe)

        def read():
            with open(pipe, "rb") as file:
                time.sleep(4)
                file.read()
        reader = threading.Thread(target=read)
        reader.start()
        command = [cli.BINARY, "trace", "--derive", "--full", "--num-layers", 32, "--num-micro-batches", 8, "--out"]
        shown = cli.shown_on_terminal(*command, pipe)
        reader.join()
        self.assertIn("writing the trace: second ", shown)
        self.assertTrue(shown.endswith("\r\033[K"), shown)
        fast = [cli.BINARY, "trace", "--derive", "--num-layers", 2, "--num-micro-batches", 1, "--out", self.path("fast")]
        self.assertIn("", (cli.shown_on_terminal(*fast) for _ in range(5)))  # a stall of the machine makes one slow

    def test_no_line_between_rows(self):
        """Where rows are shown on the terminal, they are the progress."""
        main, terminal = os.openpty()
        with subprocess.Popen([cli.BINARY, "trace", "--derive", "--full", "--num-layers", "32", "--num-micro-batches", "8",
                               "--out", "-"], stdout=terminal, stderr=terminal) as process:
            os.close(terminal)
            time.sleep(2.5)
            shown = b""
            with contextlib.suppress(OSError):  # the other side was closed, and all was read
                while True:
                    shown += os.read(main, 65536)
        os.close(main)
        self.assertTrue(process.returncode == 0 and shown.startswith(HEADER.rstrip().encode()), shown[:200])
        self.assertNotIn(b"second", shown)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    cli.BINARY, cli.SOURCE = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=sys.argv[:1], verbosity=0)
