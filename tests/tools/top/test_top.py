#!/usr/bin/env python3
"""pagestash top: test_top.py PAGESTASH SOURCE_DIR. Pools of a running replay are watched through a pseudo-terminal;
what a dead process left, what is no such file, and the exit codes."""
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import reports
sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir, "docs"))
import check_blocks

BINARY, SOURCE = sys.argv[1:3]
ROUTING = os.path.join(SOURCE, "bench/data/bytelm-e64-top6-l6.csv")
RECORD_BYTES = 512  # psti_top_file, and its parts
START, BOOT, NAMESPACE, SEQUENCE = slice(24, 32), slice(176, 216), slice(216, 224), slice(224, 232)
ROW = re.compile(r"^ *(?P<process>\d+) +(?P<pool>\d+) +(?P<age>\d+[smhd]) +(?P<steps>\d+) +(?P<used>\d+)/(?P<all>\d+) "
                 r"+\d+% +(?P<most>\d+) +(?P<demand>\d+) +(-|\d+/\d+ +\d+%) +(?P<spilled>\d+) (?P<faults>\d+)"
                 r"(?P<rest>.*)$", re.M)


class TopTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.job = None

    def run_top(self, *flags, **options):
        return subprocess.run([BINARY, "top", *flags], text=True, capture_output=True, timeout=240, **options)

    def start(self, **options):
        """A replay that polls its pool after each iteration; it is stopped once it has. Where a stall of the machine
        lets it end before that, another."""
        for _ in range(5):
            pool = self.start_one(**options)
            if pool:
                return pool
        self.fail("each replay ended before it was seen")

    def start_one(self, **options):
        self.job = subprocess.Popen([BINARY, "replay", "--routing", ROUTING, "--num-micro-batches", "2", "--device",
                                     "host", "--expert-model-parallel-size", "8", "--hidden-size", "64",
                                     "--moe-ffn-hidden-size", "32"],
                                    env=dict(os.environ, PAGESTASH_TOP=self.folder), stdout=subprocess.DEVNULL,
                                    **options)
        self.addCleanup(self.end)
        while self.job.poll() is None:
            if any(pool["state"] == "runs" and pool["process"] == self.job.pid for pool in self.pools()):
                self.job.send_signal(signal.SIGSTOP)
                os.waitpid(self.job.pid, os.WUNTRACED)
                return next(pool for pool in self.pools() if pool["process"] == self.job.pid)
            time.sleep(0.002)
        return None

    def end(self):
        if self.job.poll() is None:
            self.job.kill()
        self.job.wait()

    def pools(self):
        result = self.run_top("--dir", self.folder, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return reports.load(result.stdout)["pools"]

    def test_table_and_json_agree(self):
        pool = self.start()
        self.assertEqual((pool["state"], pool["process"], pool["pool"]), ("runs", self.job.pid, 0))
        self.assertEqual((pool["num_faults"], pool["step_valid"]), (0, True))
        result = self.run_top("--dir", self.folder)
        self.assertEqual(result.returncode, 0)
        row = ROW.search(result.stdout)
        self.assertIsNotNone(row, result.stdout)
        for name, key in (("process", "process"), ("pool", "pool"), ("steps", "steps"), ("used", "in_use"),
                          ("all", "num_pages"), ("most", "high_water"), ("demand", "demand_high_water"),
                          ("spilled", "spilled_pages"), ("faults", "num_faults")):
            self.assertEqual(int(row[name]), pool[key], name)
        self.assertEqual(row["rest"], "")
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 100)

    def test_the_manuals_table_is_of_this_form(self):
        self.start()
        told = self.run_top("--dir", self.folder).stdout.splitlines()
        sample = check_blocks.text_of(os.path.join(SOURCE, "docs/formats.md"), "nothing was polled").splitlines()
        self.assertEqual(sample[1:3], told[1:3])
        for first in (sample[0], told[0]):
            self.assertRegex(first, r"^\d\d:\d\d:\d\d  \d+ pools? in \S+; pages of each tier in use and in all$")
        for line in sample[3:]:
            self.assertTrue(ROW.match(line) or re.match(r"^ *\d+ +\d+ +-  nothing was polled$", line), line)

    def test_dead_processes_are_said_and_pruned(self):
        self.start()
        self.job.kill()
        self.job.wait()
        self.assertEqual({pool["state"] for pool in self.pools()}, {"dead"})
        self.assertEqual(ROW.search(self.run_top("--dir", self.folder).stdout)["rest"], " dead")
        self.assertEqual(self.run_top("--dir", self.folder, "--prune").returncode, 0)
        self.assertEqual(os.listdir(self.folder), [])

    def test_dead_before_the_first_poll(self):
        """Or within it: there are no figures, and no lost step."""
        self.start()
        data = self.record()
        self.replace(data)
        for sequence in (0, 1):
            data[SEQUENCE] = struct.pack("<Q", sequence)
            for state, line in (("not polled", "nothing was polled"), ("dead", "nothing was polled, dead")):
                data[START] = struct.pack("<Q", struct.unpack("<Q", data[START])[0] + (state == "dead"))
                self.replace(data)
                pool, = self.pools()
                self.assertEqual((pool["state"], "steps" in pool, "age_seconds" in pool), (state, False, False))
                self.assertRegex(self.run_top("--dir", self.folder).stdout, rf"(?m)^ *{self.job.pid} +0 +-  {line}$")
            data[START] = struct.pack("<Q", struct.unpack("<Q", data[START])[0] - 1)

    def record(self):
        """The file of the job's pool; changes of it go into another one."""
        with open(self.path(0), "rb") as file:
            data = bytearray(file.read())
        self.assertEqual(len(data), RECORD_BYTES)
        return data

    def path(self, number):
        return os.path.join(self.folder, f"pagestash-{self.job.pid}-{number}.top")

    def replace(self, data):
        """This one stands there alone."""
        for name in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, name))
        with open(self.path(0), "wb") as file:
            file.write(data)

    def test_another_process_with_the_number_is_not_it(self):
        self.start()
        data = self.record()
        data[START] = struct.pack("<Q", struct.unpack("<Q", data[START])[0] + 1)
        self.replace(data)
        self.assertEqual(self.pools()[0]["state"], "dead")

    def test_restarted_with_the_same_number(self):
        """As process 1 of a container: what the killed one left is the new one's, which is seen and not dead."""
        first = self.start()
        self.job.kill()
        self.job.wait()
        data = self.record()
        os.unlink(self.path(0))

        def leave():
            data[16:24] = struct.pack("<q", os.getpid())
            descriptor = os.open(os.path.join(self.folder, f"pagestash-{os.getpid()}-0.top"), os.O_CREAT | os.O_WRONLY, 0o600)
            os.write(descriptor, data)
            os.close(descriptor)
        second = self.start(preexec_fn=leave)
        self.assertEqual((second["state"], second["process"], second["pool"]), ("runs", self.job.pid, 0))
        self.assertNotEqual(second["process"], first["process"])

    def test_elsewhere(self):
        """What lives in another place is not judged by the processes of this one."""
        self.start()
        data = self.record()
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            self.assertEqual(data[BOOT].rstrip(b"\0").decode() + "\n", file.read())
        self.assertEqual(struct.unpack("<Q", data[NAMESPACE])[0], os.stat("/proc/self/ns/pid").st_ino)
        self.job.kill()
        self.job.wait()
        for place, other, has_age in ((BOOT, b"another boot".ljust(40, b"\0"), False), (BOOT, bytes(40), False),
                                      (NAMESPACE, struct.pack("<Q", 1), True)):
            changed = bytearray(data)
            changed[place] = other
            self.replace(changed)
            pool, = self.pools()
            self.assertEqual((pool["state"], "age_seconds" in pool, pool["steps"] > 0), ("elsewhere", has_age, True))
            result = self.run_top("--dir", self.folder, "--prune")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stdout, rf"(?m)^ *{self.job.pid} +0 +{'[0-9]+s' if has_age else '-'} .* 0 elsewhere$")
            self.assertLessEqual(max(map(len, result.stdout.splitlines())), 95)  # 100, and " lost"
            self.assertEqual(os.listdir(self.folder), [os.path.basename(self.path(0))])

    def test_other_files(self):
        for name, data in (("pagestash-1-0.top", b""), ("pagestash-2-0.top", b"x" * RECORD_BYTES),
                           ("pagestash-3-0.top", b"PSTTOP1\0".ljust(RECORD_BYTES, b"\xff"))):
            with open(os.path.join(self.folder, name), "wb") as file:
                file.write(data)
        os.mkfifo(os.path.join(self.folder, "pagestash-4-0.top"))
        os.symlink("/etc/passwd", os.path.join(self.folder, "pagestash-5-0.top"))
        with open(os.path.join(self.folder, "notes.txt"), "w", encoding="utf-8"):
            pass
        pools = self.pools()
        self.assertEqual([(pool["file"], pool["state"]) for pool in pools],
                         [(f"pagestash-{i}-0.top", "unreadable") for i in range(1, 6)])
        result = self.run_top("--dir", self.folder, "--prune")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(len(os.listdir(self.folder)), 6)

    def test_bad_input(self):
        for flags, code, told in (([], 2, "--dir: missing, and PAGESTASH_TOP names no folder"),
                                  (["--dir", "/nowhere"], 3, "--dir /nowhere: No such file or directory"),
                                  (["--dir", "/", "--interval", "0"], 2, "--interval 0"),
                                  (["--dir", "/", "stray"], 2, "stray")):
            environment = {name: value for name, value in os.environ.items() if name != "PAGESTASH_TOP"}
            result = self.run_top(*flags, env=environment)
            self.assertEqual((result.returncode, result.stdout), (code, ""), result)
            self.assertEqual(result.stderr.count("\n"), 1)
            self.assertIn(told, result.stderr)

    def screen(self, keys, stdin=None):
        """What it shows on a terminal of 100 columns until `keys` are typed (None: a signal comes), its exit code, and
        whether the terminal's modes are those of before."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        before = termios.tcgetattr(slave)
        process = subprocess.Popen([BINARY, "top", "--dir", self.folder, "--interval", "0.05"], stdin=stdin or slave, stdout=slave,
                                   stderr=slave, start_new_session=True)
        shown = b""
        while shown.count(b"\033[H\033[J") < 3:
            self.assertTrue(select.select([master], [], [], 240)[0], shown)
            shown += os.read(master, 65536)
        if keys is None:
            process.send_signal(signal.SIGTERM)
        else:
            os.write(master, keys)
        is_over = False
        while not is_over:
            is_over = process.poll() is not None
            while select.select([master], [], [], 0.05)[0]:
                shown += os.read(master, 65536)
        code = process.wait()
        same = termios.tcgetattr(slave) == before
        os.close(master)
        os.close(slave)
        return shown.decode(), code, same

    def test_terminal(self):
        self.start()
        for keys in (b"q", None):
            shown, code, same = self.screen(keys)
            self.assertEqual((code, same), (0, True))
            self.assertIn("\nq ends", shown.replace("\r", ""))
            self.assertTrue(shown.startswith("\033[?25l") and shown.endswith("\033[?25h"), repr(shown[-40:]))
            last = shown.split("\033[H\033[J")[2]
            self.assertEqual(int(ROW.search(last.replace("\r", ""))["process"]), self.job.pid)

    def test_terminal_without_keys(self):
        """As top(1) in the background: standard input that has ended is no key, and ends nothing."""
        self.start()
        shown, code, same = self.screen(None, stdin=subprocess.DEVNULL)
        self.assertEqual((code, same), (0, True))
        self.assertIn("\nCtrl-C ends", shown.replace("\r", ""))
        self.assertNotIn("q ends", shown)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
