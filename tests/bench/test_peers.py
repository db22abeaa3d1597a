#!/usr/bin/env python3
"""test_peers.py SOURCE_DIR LIBRARY CLASS: bench/peers, with the standard library alone (Peers) or with Triton,
interpreted (Interpreted). No figure is judged. Exit 77: no shared library; no torch or no Triton."""
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
SMALL = ("--device", "cpu", "--cache", "1MiB", "--bytes", "1MiB", "--width", "1000", "--rows", "96",
         "--layers", "2", "--replays", "20", "--anchor-bytes", "1MiB")
BOTH = {("copy", "copy"), ("pagestash", "stash"), ("pagestash", "restore")}


def run(*arguments, root=None, **environment):
    """With this build's library, not the newest of all builds, which may be a sanitized one. Without
    torch: a module of that name that says it is not there stands before the real one."""
    with tempfile.TemporaryDirectory() as shadow:
        text = 'raise ModuleNotFoundError("no torch", name="torch")\n'
        pathlib.Path(shadow, "torch.py").write_text(text, encoding="ascii")
        return subprocess.run(
            [sys.executable, str((root or source) / "bench/peers/run.py"), *arguments],
            capture_output=True, text=True, timeout=280,
            env={**os.environ, "PAGESTASH_LIBRARY": library, "PYTHONPATH": shadow, **environment})


class Peers(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def copy_of_source(self):
        for part in ("peers", "common"):
            shutil.copytree(source / "bench" / part, self.folder / "bench" / part)
        return self.folder

    def test_refusals_are_one_line(self):
        file = self.folder / "ops.py"
        file.write_text("def paged_stash_copy_kernel(page_record_ptr): pass", encoding="ascii")
        for code, says, *arguments in (
                (2, "'1023KiB'", "--bytes", "1023KiB"), (2, "multiple of 32", "--rows", "100"),
                (2, "no such file", "--library", "/nowhere"), (2, "cannot write", "--json=/no/x"),
                (3, "has no argument BLOCK_SIZE", "--megatron-ops", str(file)),
                (4, "torch is not installed",),
                (1, "are free for single-1000", *SMALL, "--bytes", "1024GiB")):
            with self.subTest(arguments=arguments):
                result = run(*arguments)
                self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
                self.assertRegex(result.stderr, f"^run.py: .*{says}.*\n$")

    def test_report(self):
        result = run(*SMALL, "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        report = json.loads(result.stdout)
        self.assertEqual({entry["peer"] for entry in report["unavailable"]},
                         {"torch_index", "triton"})
        for config in ("single-1000", "layer"):
            self.assertEqual({(row["peer"], row["op"]) for row in report["rows"]
                              if row["config"] == config}, BOTH)
        text = (source / "bench/peers/README.md").read_text(encoding="utf-8")
        self.assertEqual({key for key in (*report, *report["rows"][0], *report["machine"])
                          if f"`{key}`" not in text}, set())
        for row in report["rows"]:
            self.assertEqual((row["mismatched_bytes"], row["fault"]), (0, None))
            self.assertGreaterEqual(row["samples"], 20)
            self.assertLessEqual(row["seconds_min"], row["seconds_median"])
            self.assertEqual(row["nodes"], 1 if row["peer"] == "pagestash" else None)

    def test_absent_library_and_wrong_bytes(self):
        """A copy that is a byte short."""
        plain = self.copy_of_source() / "bench/peers/plain.py"
        text = plain.read_text(encoding="utf-8")
        right = "payload.config.bytes)"
        self.assertEqual(text.count(right), 1)
        plain.write_text(text.replace(right, "payload.config.bytes - 1)"), encoding="utf-8")
        result = run(*SMALL, "--layers", "0", root=self.folder, PAGESTASH_LIBRARY="")
        self.assertIn("unavailable: pagestash: no build/", result.stdout)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"single-1000 copy copy: [1-9]\d* bytes differ")

    def test_library_of_other_structs(self):
        """A frozen struct that is larger here, and one that is smaller than the library takes."""
        module = self.copy_of_source() / "bench/peers/libpagestash.py"
        text = module.read_text(encoding="utf-8")
        for name, base, fields, says in (
                ("pst_graph_info", "GraphInfo", "[('more', c_uint64)]", "24 bytes here, and 16 in"),
                ("pst_pool_config", "ctypes.Structure", "[('struct_size', c_size_t)]",
                 r"8 bytes here, and \d+ to \d+ in")):
            other = f"STRUCTS['{name}'] = type('Other', ({base},), {{'_fields_': {fields}}})"
            module.write_text(f"{text}\n\n{other}\n", encoding="utf-8")
            result = run(*SMALL, "--layers", "0", "--library", library, root=self.folder)
            self.assertRegex(result.stdout, f"unavailable: pagestash: .*{name} has {says} the library")

    def test_declarations_are_those_of_the_headers(self):
        """Offset and size of every field, by the C compiler."""
        path = source / "bench/peers/libpagestash.py"
        spec = importlib.util.spec_from_file_location("libpagestash", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        lines = ["#include <pagestash/pagestash.h>", "#include <stddef.h>"]
        for name in ("ROWS_PREFIX", "COUNT_INT64", "POOL_ORDERED"):
            lines.append(f'_Static_assert(PST_{name} == {getattr(module, name)}, "{name}");')
        for name, struct in module.STRUCTS.items():
            fields = [field for field, *_ in struct._fields_]
            lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, "{name}");')
            for field in set(fields) - {"room"}:  # for the rest, which only the library writes
                at = getattr(struct, field)
                lines.append(f"_Static_assert(offsetof({name}, {field}) == {at.offset} && "
                             f'sizeof((({name} *)0)->{field}) == {at.size}, "{name}.{field}");')
        subprocess.run(["cc", "-std=c11", "-x", "c", "-I", str(source / "include"),
                        "-fsyntax-only", "-"], input="\n".join(lines) + "\n", text=True, check=True)


class Interpreted(unittest.TestCase):
    def test_triton(self):
        result = run(*SMALL, "--library", library, TRITON_INTERPRET="1", PYTHONPATH="")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, "triton +stash")


if __name__ == "__main__":
    source, library = pathlib.Path(sys.argv[1]).resolve(), os.path.abspath(sys.argv[2])
    if not os.path.isfile(library):
        print(f"{library}: no shared library: skipped")
        sys.exit(77)
    absent = [name for name in ("torch", "triton") if not importlib.util.find_spec(name)]
    if sys.argv[3] == "Interpreted" and absent:
        print(f"no {' and no '.join(absent)}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], sys.argv[3]], verbosity=1)
