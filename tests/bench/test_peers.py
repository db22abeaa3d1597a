#!/usr/bin/env python3
"""test_peers.py SOURCE_DIR LIBRARY: bench/peers, with the standard library alone and, where torch
and Triton are installed, their parts too. No figure is judged. Exit 77: no shared library."""
import ctypes
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
source = library = None
SMALL = ("--device", "cpu", "--bytes", "1MiB", "--width", "1000", "--rows", "96", "--layers", "2",
         "--replays", "20", "--anchor-bytes", "1MiB")
TOP_KEYS = ["schema_version", "machine", "commit", "versions", "unavailable", "anchors", "rows"]
MACHINE_KEYS = {"device", "device_name", "num_sms", "compute_capability", "cache_bytes", "system",
                "driver", "clock_sm_mhz", "clock_memory_mhz"}
TIME_KEYS = {"samples", "seconds_min", "seconds_median", "seconds_max", "gbps"}
ROW_KEYS = TIME_KEYS | {"peer", "op", "config", "bytes", "tensors", "layers", "sets", "nodes",
                        "share_of_a0", "share_of_copy", "ratio_to_pagestash", "mismatched_bytes",
                        "fault"}
BOTH = (("pagestash", "stash"), ("pagestash", "restore"))

# Names and arguments as in the file that --megatron-ops wants, and no code.
OPS = """
import {module}
GLOBAL_BLOCK_SIZE = 1024
def paged_stash_copy_kernel(src_ptr, cuda_dst_ptr, host_dst_ptr, num_tokens_ptr,
        free_list_cuda_ptr, free_list_host_ptr, free_list_head_ptr, free_list_tail_ptr,
        free_list_capacity_ptr, page_record_ptr, overflow_ptr, host_spill_global_ptr,
        spilled_to_host_ptr, new_free_list_head_ptr, PAGE_SIZE, HIDDEN_SIZE, BLOCK_SIZE,
        HAS_HOST_BUFFER): pass
def paged_stash_pop_kernel(cuda_src_ptr, host_src_ptr, dst_ptr, num_tokens_ptr, page_record_ptr,
        spilled_to_host_ptr, overflow_ptr, free_list_cuda_ptr, free_list_host_ptr,
        free_list_tail_ptr, free_list_capacity_ptr, new_free_list_tail_ptr, PAGE_SIZE,
        HIDDEN_SIZE, BLOCK_SIZE): pass
"""


def installed(*modules):
    return all(importlib.util.find_spec(module) for module in modules)


def run(*arguments, env=None, without_torch=False, folder=None):
    """Without torch: a module of that name that says it is not there stands before the real one."""
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("PAGESTASH_LIBRARY", "TRITON_INTERPRET")}
    environment.update(env or {})
    with tempfile.TemporaryDirectory() as shadow:
        if without_torch:
            text = 'raise ModuleNotFoundError("no torch", name="torch")\n'
            pathlib.Path(shadow, "torch.py").write_text(text, encoding="ascii")
            environment["PYTHONPATH"] = shadow
        return subprocess.run([sys.executable, str(source / "bench/peers/run.py"), *arguments],
                              capture_output=True, text=True, timeout=280, env=environment,
                              cwd=folder)


class Arguments(unittest.TestCase):
    def refused(self, code, text, *arguments, **options):
        result = run(*arguments, **options)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        lines = [line for line in result.stderr.splitlines()
                 if line.startswith("run.py: ")]
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertIn(text, lines[0])
        self.assertNotIn("Traceback", result.stderr)

    def test_usage(self):
        for text, *arguments in (
                ("--device", "--device", "rocm"), ("--nonsense", "--nonsense"),
                ("'0'", "--bytes", "0"), ("'1023KiB'", "--bytes", "1023KiB"),
                ("'2TiB'", "--bytes", "2TiB"), ("from 16 to 65536", "--width", "8"),
                ("from 20 to 10000", "--replays", "19"), ("from 0 to 64", "--layers", "65"),
                ("'-1'", "--num-sms=-1"), ("multiple of 32", "--rows", "100"),
                ("no such file", "--library", "/nonexistent/libpagestash.so"),
                ("cannot write in", "--json", "/nonexistent/report.json"),
                ("a file, or -", "--json", ""), ("a file, or -", "--json", "/")):
            with self.subTest(arguments=arguments):
                self.refused(2, text, *arguments)
        self.refused(2, "PAGESTASH_LIBRARY", env={"PAGESTASH_LIBRARY": "/nonexistent"})
        self.refused(2, "TRITON_INTERPRET", env={"TRITON_INTERPRET": "1"})

    def test_without_torch(self):
        with tempfile.TemporaryDirectory() as folder:
            self.refused(4, "torch is not installed", "--json", os.path.join(folder, "report.json"),
                         without_torch=True)
            self.assertEqual(os.listdir(folder), [])

    def test_too_large(self):
        self.refused(1, "are free for single-1000", *SMALL, "--bytes", "1024GiB")

    def test_help(self):
        result = run("--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("--megatron-ops", result.stdout)

    def megatron(self, text, code, message):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "paged_stash.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            self.refused(code, message, "--megatron-ops", path, without_torch=True)

    def test_megatron_file(self):
        good = OPS.format(module="os")
        self.megatron("x = (", 3, "not Python")
        self.megatron("x = 1", 3, "no function paged_stash_copy_kernel")
        self.megatron(good.replace("page_record_ptr", "record"), 3,
                      "paged_stash_copy_kernel has no argument page_record_ptr")
        self.megatron(good.replace("HIDDEN_SIZE, BLOCK_SIZE): pass", "X): pass"), 3,
                      "paged_stash_pop_kernel has no argument BLOCK_SIZE, HIDDEN_SIZE")
        self.megatron(good.replace("HAS_HOST_BUFFER)", "HAS_HOST_BUFFER, MORE)"), 3,
                      "not known here: MORE")
        self.megatron(good.replace("GLOBAL_BLOCK_SIZE", "OTHER"), 3, "GLOBAL_BLOCK_SIZE")
        self.megatron(good, 4, "torch is not installed")
        self.refused(3, "No such file", "--megatron-ops", "/nonexistent")


class Declarations(unittest.TestCase):
    def test_structs_are_those_of_the_headers(self):
        """Size, and offset and size of every field, by the C compiler. A struct with a field
        "room" stands for the beginning of one that only the library writes."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            self.skipTest("no C compiler")
        structs = load("libpagestash").STRUCTS
        lines, expected = [], []
        for name, struct in structs.items():
            fields = [field for field, *_ in struct._fields_ if field != "room"]
            size = ctypes.sizeof(struct)
            if len(fields) == len(struct._fields_):
                lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
                expected.append(f"{name} {size}")
            else:
                lines.append(f'printf("{name} %d\\n", sizeof({name}) <= {size});')
                expected.append(f"{name} 1")
            for field in fields:
                lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                             f"sizeof((({name} *)0)->{field}));")
                at = getattr(struct, field)
                expected.append(f"{name}.{field} {at.offset} {at.size}")
        text = ("#include <pagestash/pagestash.h>\n#include <stdio.h>\nint main(void)\n{\n"
                + "\n".join(lines) + "\nreturn 0;\n}\n")
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "layout")
            subprocess.run([compiler, "-x", "c", "-I", str(source / "include"), "-o", program, "-"],
                           input=text, text=True, check=True)
            found = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        self.assertEqual(found.splitlines(), expected)

    def test_constants_are_those_of_the_headers(self):
        module, headers = load("libpagestash"), ""
        for path in (source / "include/pagestash").glob("*.h"):
            headers += path.read_text(encoding="ascii")
        for name, value in (("PST_ROWS_PREFIX", module.ROWS_PREFIX),
                            ("PST_COUNT_INT64", module.COUNT_INT64),
                            ("PST_POOL_ORDERED", module.POOL_ORDERED)):
            self.assertIn(f"{name} = {value}", headers)


def load(name):
    path = source / "bench/peers" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Cpu(unittest.TestCase):
    def report(self, *arguments, code=0, **options):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            result = run(*SMALL, "--json", path, *arguments, **options)
            self.assertEqual(result.returncode, code, result.stderr + result.stdout)
            self.assertEqual(os.listdir(folder), ["report.json"])
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        self.check(report)
        return report

    def check(self, report):
        self.assertEqual(list(report), TOP_KEYS)
        self.assertEqual(report["schema_version"], 1)
        self.assertEqual(set(report["machine"]), MACHINE_KEYS)
        for anchor in report["anchors"]:
            self.assertEqual(set(anchor), TIME_KEYS | {"name", "bytes", "mismatched_bytes"})
        for row in report["rows"]:
            self.assertEqual(set(row), ROW_KEYS)
            self.assertEqual(row["bytes"], {"single-1000": 524 * 2000, "layer": 96 * (
                2 * (7168 + 2 * 4096 + 2048) + 224) + 3 * 7168}[row["config"]])
            if row["samples"]:
                self.assertGreaterEqual(row["samples"], 20)
                self.assertLess(0, row["seconds_min"])
                self.assertLessEqual(row["seconds_min"], row["seconds_median"])
                self.assertLessEqual(row["seconds_median"], row["seconds_max"])
                self.assertAlmostEqual(row["gbps"] * row["seconds_median"], row["bytes"] * 1e-9)
            self.assertEqual((row["mismatched_bytes"], row["fault"]), (0, None), row)

    def peers(self, report):
        return {(row["peer"], row["op"]) for row in report["rows"]}

    def test_library_without_torch(self):
        report = self.report("--library", library, without_torch=True)
        self.assertEqual(self.peers(report), {("copy", "copy"), *BOTH})
        self.assertEqual([row["tensors"] for row in report["rows"]], [1] * 3 + [6] * 3)
        for row in report["rows"]:
            if row["peer"] == "pagestash":
                self.assertEqual(row["nodes"], 1)
                self.assertEqual(row["ratio_to_pagestash"], 1)
            self.assertLess(0, row["share_of_a0"])
        self.assertEqual({entry["peer"] for entry in report["unavailable"]},
                         {"torch_index", "triton"})

    def test_absent_and_wrong_library(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "libpagestash.so")
            with open(path, "wb") as file:
                file.write(b"no library")
            report = self.report("--library", path, without_torch=True)
            self.assertEqual(self.peers(report), {("copy", "copy")})
            self.assertIn(path, report["unavailable"][0]["why"])
            copy = shutil.copytree(source / "bench/peers", os.path.join(folder, "a/bench/peers"))
            result = subprocess.run([sys.executable, os.path.join(copy, "run.py"), *SMALL],
                                    capture_output=True, text=True, timeout=120, cwd=folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("unavailable: pagestash: no build/", result.stdout)

    def test_variable_names_the_library_and_stdout_is_json_alone(self):
        result = run(*SMALL, "--layers", "0", "--json", "-", without_torch=True,
                     env={"PAGESTASH_LIBRARY": library, "PAGESTASH_LOG": "warn"})
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        report = json.loads(result.stdout)
        self.check(report)
        self.assertEqual(self.peers(report), {("copy", "copy"), *BOTH})
        self.assertEqual({row["config"] for row in report["rows"]}, {"single-1000"})

    def test_wrong_bytes_are_counted(self):
        """With the copy made a byte short."""
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(shutil.copytree(source / "bench/peers", folder + "/bench/peers"))
            plain = copy / "plain.py"
            text = plain.read_text(encoding="utf-8")
            right = "payload.config.bytes)"
            self.assertEqual(text.count(right), 1)
            plain.write_text(text.replace(right, "payload.config.bytes - 1)"), encoding="utf-8")
            path = os.path.join(folder, "report.json")
            result = subprocess.run(
                [sys.executable, str(copy / "run.py"), *SMALL, "--layers", "0", "--json", path,
                 "--library", library], capture_output=True, text=True, timeout=120, cwd=folder)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn("bytes differ", result.stderr)
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        wrong = {row["peer"]: row["mismatched_bytes"] for row in report["rows"]}
        self.assertEqual(wrong["pagestash"], 0)
        self.assertLess(0, wrong["copy"])

    @unittest.skipUnless(installed("torch"), "torch is not installed")
    def test_torch(self):
        report = self.report("--library", library)
        self.assertEqual(self.peers(report), {("copy", "copy"), *BOTH, ("torch_index", "stash"),
                                              ("torch_index", "restore")})

    @unittest.skipUnless(installed("torch", "triton", "numpy"), "Triton is not installed")
    def test_triton_interpreted(self):
        report = self.report("--library", library, "--layers", "1", "--rows", "96",
                             env={"TRITON_INTERPRET": "1"})
        self.assertLessEqual({("triton", "stash"), ("triton", "restore")}, self.peers(report))
        self.assertEqual({row["samples"] for row in report["rows"]}, {0})

    @unittest.skipUnless(installed("torch", "triton", "numpy"), "Triton is not installed")
    def test_megatron_interpreted(self):
        """Kernels with the expected arguments, which do nothing: every live byte is then wrong."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "ops.py")
            text = OPS.format(module="triton").replace("def ", "@triton.jit\ndef ")
            path.write_text(text, encoding="utf-8")
            result = run(*SMALL, "--layers", "0", "--library", library, "--megatron-ops", str(path),
                         env={"TRITON_INTERPRET": "1"})
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("single-1000 megatron stash", result.stderr)


if __name__ == "__main__":
    source, library = pathlib.Path(sys.argv[1]).resolve(), os.path.abspath(sys.argv[2])
    if not os.path.isfile(library):
        print(f"{library}: no shared library: skipped")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=1)
