"""What bad input gets: usage, absent devices, malformed traces."""
import json
import os
import subprocess

import cli
import reports
from cli import MIB, CommandTest, run


EP, RANK = "--expert-model-parallel-size", "--expert-model-parallel-rank"


class Usage(CommandTest):
    """Exit codes 2 and 4."""

    # Fault rows 65.
    def test_values(self):
        path = self.trace()
        large = self.write("step,layer,e0\n0,0,2147483647\n", "large.csv")
        for flags, words in (
                ([EP, 3], [f"{EP} 3", "8 experts"]),
                ([EP, 0], [f"{EP} 0", "1.."]),
                ([EP, 2, RANK, 2], [f"{RANK} 2", "0..1"]),
                (["--hidden-size", "-4"], ["--hidden-size -4", "1.."]),
                (["--hidden-size", "9" * 20], ["--hidden-size " + "9" * 20]),
                (["--hidden-size", "12x"], ["--hidden-size 12x"]),
                (["--num-layers", 4], ["--num-layers 4", "1..3"]),
                (["--num-micro-batches", 3], ["--num-micro-batches 3", "4 steps", "--steps 0:3"]),
                (["--num-micro-batches", 5], ["--num-micro-batches 5", "1..4"]),
                (["--capacity-factor", 0], ["--capacity-factor 0", "above 0"]),
                (["--capacity-factor", "nan"], ["--capacity-factor nan"]),
                (["--capacity-factor", 1000000, "--routing", large], ["2147483647"]),
                (["--pages", 2**31], ["--pages 2147483648", "1..2147483647"]),
                (["--headroom", 2, "--pages", 9], ["--headroom 2", "--pages"]),
                (["--host-headroom", 2, "--host-pages", 0], ["--host-headroom 2", "--host-pages"]),
                (["--offload-fraction", "3/2", "--host-pages", 9],
                 ["--offload-fraction 3/2", "NUM <= DEN"]),
                (["--offload-fraction", "0/0"], ["--offload-fraction 0/0", "1 <= DEN"]),
                (["--offload-fraction", "0.5"], ["--offload-fraction 0.5", "NUM/DEN"]),
                (["--offload-fraction", "1/4294967296"], ["--offload-fraction 1/4294967296"]),
                (["--offload-fraction", "1/2", "--host-pages", 0], ["no host pages"]),
                (["--page-size", 100000], ["--page-size 100000", "power of two"]),
                (["--page-size", "8MiB"], ["--page-size 8MiB"]),
                (["--page-size", "64KB"], ["--page-size 64KB"]),
                (["--page-size", "17179869184GiB"], ["--page-size"]),
                (["--steps", "3"], ["--steps 3", "A:B"]),
                (["--steps", "2:2"], ["--steps 2:2"]),
                (["--steps", "0:5"], ["--steps 0:5", "0:4"]),
                (["--num-sms", 1025], ["--num-sms 1025", "0..1024"]),
                (["--num-sms", 1024], ["--num-sms 1024", "0.."]),
                (["--device", "gpu"], ["--device gpu", "auto|host|cuda"]),
                (["--tail", ""], ["--tail", "keep|zero"]),
                (["--json="], ["--json"]),
                (["--bogus"], ["--bogus"]),
                (["--hidden", 64], ["--hidden"]),  # no beginning of a name
                (["--hidden=64"], ["--hidden"]),
                (["stray"], ["stray"]),
                (["--scrub=1"], ["--scrub=1: it takes no value"]),
                (["--help=1"], ["--help=1: it takes no value"]),
                (["--hidden-size"], ["pagestash: --hidden-size: needs a value, and none follows"])):
            with self.subTest(flags=flags):
                self.refused(run("replay", "--routing", path, "--device", cli.DEVICE, *flags), 2,
                             *words)
        for name in (self.folder, "/no/such/folder/x"):
            self.refused(run("replay", "--routing", path, "--device", cli.DEVICE, f"--json={name}"), 3,
                         f"--json {name}: ")

    # Fault rows 65.
    def test_commands(self):
        self.refused(run(), 2, "--help")
        self.refused(run("bogus"), 2, "bogus", "replay")
        self.refused(run("help", "bogus"), 2, "bogus", "replay")
        self.refused(run("replay"), 2, "--routing")
        self.refused(run("env", "stray"), 2, "stray")
        self.refused(run("env", "--bogus"), 2, "--bogus")
        path = self.write("step,layer," + ",".join(f"e{e}" for e in range(1025)) + "\n0,0" +
                          ",1" * 1025 + "\n")
        self.refused(run("replay", "--routing", path, "--layout", "segments"), 2,
                     "--layout segments", "1025", "1024")

    def test_help_and_version(self):
        for arguments in (["--help"], ["help"], ["-h"]):
            result = run(*arguments)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            for word in ("replay", "env", "--version"):
                self.assertIn(word, result.stdout)
        with open(os.path.join(cli.SOURCE, "include/pagestash/api.h"), encoding="ascii") as file:
            parts = [line.split()[2] for line in file if line.startswith("#define PST_VERSION_")]
        version = f"pagestash {'.'.join(parts)}\n"
        for command in ("replay", "trace", "plan", "simulate", "estimate", "top", "env"):
            texts = [run(command, "--help"), run(command, "-h"), run("help", command)]
            for text in texts:
                self.assertEqual((text.returncode, text.stderr), (0, ""), command)
                self.assertEqual(text.stdout, texts[0].stdout, command)
            for flag in ("--json[=FILE]", "-h, --help", "-V, --version"):
                self.assertIn(flag, texts[0].stdout, command)
            for flag in ("-V", "--version"):
                self.assertEqual(run(command, flag).stdout, version)
        for flag in ("-V", "--version"):
            self.assertEqual(run(flag).stdout, version)

    def test_json_of_every_command(self):
        """On stdout in place of the text, or in a file beside it."""
        for command in (["replay", "--routing", self.trace()], ["trace", "--derive"],
                        ["plan", "--memo", self.write("malloc 1 5\nfree 1\n", "memo")],
                        ["simulate", "--schedule", "1f1b", "--micro-batches", 1, "--layers", 1],
                        ["estimate", "--preset", "gpt2-124m"], ["env"]):
            with self.subTest(command=command[0]):
                path = self.path("report.json")
                report = reports.load(run(*command, "--json").stdout)
                self.assertEqual(report["command"], command[0])
                result = run(*command, f"--json={path}")
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertNotIn("{", result.stdout)
                self.assertNotEqual(result.stdout, "")
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(json.load(file).keys(), report.keys())
                self.refused(run(*command, "--json", path), 2, path)

    # Fault rows 39.
    def test_cuda_absent(self):
        if cli.DEVICE == "cuda":
            self.skipTest("the device under test is there")
        result = run("replay", "--routing", self.trace(), "--device", "cuda",
                     env={"CUDA_VISIBLE_DEVICES": ""})
        self.refused(result, 4, "--device cuda", "allowed")

    def test_backend_absent(self):
        if cli.DEVICE == "cuda":
            self.skipTest("which backends there are depends on the GPU")
        for backend in ("ldg", "bulk", "squeeze"):
            result = run("replay", "--routing", self.trace(), "--device", "host", "--backend",
                         backend)
            self.refused(result, 4, f"--backend {backend}", "host has none", "allowed here: auto")

    # Fault rows 64.
    def test_env(self):
        result = run("env", env={"PAGESTASH_NUM_SMS": "3"})
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        entry = result.stdout.split("PAGESTASH_NUM_SMS=")[1]
        self.assertTrue(entry.startswith("3\n    source: environment; default: 0; allowed: "))
        self.assertIn("PAGESTASH_LOG=off\n    source: default", run("env").stdout)
        path = self.trace()
        for arguments in (["env"], ["replay", "--routing", path], ["plan"], ["trace"], ["simulate"],
                          ["estimate", "--preset", "gpt2-124m"]):
            self.refused(run(*arguments, env={"PAGESTASH_NUM_SMS": "x"}), 2, "PAGESTASH_NUM_SMS",
                         "x", "0..1024")
            self.refused(run(*arguments, env={"PAGESTASH_NUM_SM": "3"}), 2, "PAGESTASH_NUM_SM ",
                         "PAGESTASH_NUM_SMS was meant?")
        for value, shown in (("x" * 5000, f"'{'x' * 64}'"), ("\udcff\x1b", "'\udcff '")):
            self.refused(run("plan", env={"PAGESTASH_NUM_SMS": value}), 2, f"PAGESTASH_NUM_SMS={shown} is not one of")
        self.refused(run("plan", env={"PAGESTASH_NUM_SM\udcff": "3"}), 2, "PAGESTASH_NUM_SM\udcff is not",
                     "PAGESTASH_NUM_SMS was meant?")
        self.assertEqual(run("plan", "--help", env={"PAGESTASH_LOG": "loud"}).returncode, 0)
        result = run("env", env={"PAGESTASH_FOO": "3"})
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stderr, "pagestash: PAGESTASH_FOO is not a variable of pagestash\n")
        result = run("env", env={"PAGESTASH_" + "F" * 5000: "3"})
        self.assertEqual((result.returncode, result.stderr),
                         (0, f"pagestash: PAGESTASH_{'F' * 54} is not a variable of pagestash\n"))


class BadTraces(CommandTest):
    """Exit code 3."""

    # Fault rows 52, 53.
    def test_malformed(self):
        head = "step,layer,e0,e1\n"
        good = head + "0,0,1,2\n"
        for content, words in (
                ("", [":1:", "empty file"]),
                (head, [":2:", "no rows"]),
                ("step,layer\n0,0\n", [":1:", "field 3 of the header", "missing"]),
                ("step,e0,layer\n0,0,0\n", [":1:", "field 2 of the header", '"e0"', "layer"]),
                ("step,layer,e0,e2\n0,0,1,2\n", [":1:", "field 4 of the header", '"e2"', "e1"]),
                ("step,layer,e0,E1\n0,0,1,2\n", [":1:", '"E1"']),
                (good + "0,1,1,many\n", [":3:", "field e1", '"many"', "0..2147483647"]),
                (good + "0,1,1,-2\n", [":3:", "field e1", '"-2"']),
                (good + "0,1,1,2147483648\n", [":3:", "field e1", '"2147483648"']),
                (good + "0,1,1,0x2\n", [":3:", "field e1", '"0x2"']),
                (good + "0,1,1,2k\n", [":3:", "field e1", '"2k"']),
                (good + "0,1,1\n", [":3:", "field e1", "missing", "4 fields"]),
                (good + "0,1,1,2,3\n", [":3:", "field 5", '"3"', "4 fields"]),
                (good + "\n0,1,1,2\n", [":3:", "field step", "missing"]),
                (good + "0,0,1,2\n", [":3:", "field layer", "layer 1"]),
                (good + "0,2,1,2\n", [":3:", "layer 2"]),
                (good + "2,0,1,2\n", [":3:", "field step", "step 1"]),
                (head + "0,1,1,2\n", [":2:", "field layer"]),
                (good + "0,1,1,2\n1,0,1,2\n", [":5:", "field layer"]),
                (good + "0,1,1,2\n1,0,1,2\n2,0,1,2\n", [":5:", "step 1 layer 1"]),
                (good + "0,1,1,2\n1,0,1,2\n1,1,1,2\n1,2,1,2\n", [":6:", "step 2 layer 0"]),
                (head + "0,0,2147483647,2147483647\n", [":2:", "e0 to e1", "4294967294"]),
                (good.encode() + b"0,1,1,2\0\n", [":3:", "field e1", '"2?"']),
                (good.encode() + b"0,1,1,\xff\x1b[31m\n", [":3:", "field e1", '"??[31m"']),
                (good.encode().replace(b"\n", b"\r"), [":1:"])):
            with self.subTest(content=content[-60:]):
                path = self.write(content)
                report = self.path("report.json")
                result = run("replay", "--routing", path, "--device", cli.DEVICE,
                             f"--json={report}")
                self.refused(result, 3, path, *words)
                self.assertFalse(os.path.exists(report))
                self.assertEqual(os.listdir(self.folder), ["trace.csv"])

    def test_unreadable(self):
        self.refused(run("replay", "--routing", self.path("absent.csv")), 3, "absent.csv",
                     "No such file")
        self.refused(run("replay", "--routing", self.folder), 3, self.folder, "directory")

    def test_longest_line(self):
        """1 MiB is allowed, one byte more is not; with and without an end, in rows and header."""
        head = "step,layer,e0\n"
        longest = "0,0," + "0" * (MIB - 5) + "7"
        flags = ["--hidden-size", 8, "--moe-ffn-hidden-size", 8, "--device", cli.DEVICE]
        for content in (head + longest, head + longest + "\n", head + longest + "\n1,0,3\n"):
            self.assertEqual(self.replay(self.write(content), *flags)["capacity_rows"], 7)
        for content in (head + "0" + longest, head + "0" + longest + "\n1,0,3\n"):
            result = run("replay", "--routing", self.write(content), *flags)
            self.refused(result, 3, ":2:", "1048576")
        self.refused(run("replay", "--routing", self.write("s" * (MIB + 1)), *flags), 3, ":1:",
                     "1048576")

    def endless(self, content):
        """Gives content again and again through a pipe until the command has had enough."""
        process = subprocess.Popen([cli.BINARY, "replay", "--routing", "-", "--device", cli.DEVICE],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        sent = 0
        try:
            while sent < 256 * MIB:
                sent += process.stdin.write(content)
        except BrokenPipeError:
            pass
        output = process.stdout.read(), process.stderr.read().decode()
        _, status, resources = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for stream in (process.stdout, process.stderr):
            stream.close()
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass
        self.assertEqual((process.returncode, output[0]), (3, b""), output)
        self.assertEqual(output[1].count("\n"), 1, output)
        return sent, resources.ru_maxrss << 10, output[1]

    # Fault rows 52.
    def test_endless_line(self):
        sent, memory, message = self.endless(b"x" * (64 << 10))
        self.assertLess(sent, 8 * MIB)
        self.assertLess(memory, 256 * MIB)
        self.assertIn("1048576", message)
