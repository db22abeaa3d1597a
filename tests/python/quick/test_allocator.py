"""pagestash.allocator without a GPU and without torch: a module of that name plays its part."""
import os
import subprocess
import sys
import tempfile
import unittest

from common import built

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
HEADER = "op,id,size,stream,phase,layer,micro_batch,rank,tag"
TORCH = """
import ctypes, os, sys, types
class Hooks:
    def __getattr__(self, name):
        if not name.startswith("set_") or name == "set_release_pool": raise AttributeError(name)
        return lambda address: seen.__setitem__(name, address)
hooks = Hooks()
class Allocator:
    def __init__(self, path, malloc, free):
        library = ctypes.CDLL(path)
        seen["names"] = bool(getattr(library, malloc) and getattr(library, free))
    def allocator(self): return hooks
seen = {}
def change(allocator):
    if "now" in seen: raise RuntimeError("Can't swap an already initialized allocator\\nmore")
    seen["now"] = allocator
memory = types.SimpleNamespace(CUDAPluggableAllocator=Allocator, change_current_allocator=change)
torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(memory=memory, MemPool=lambda hooks: ("pool", hooks))
sys.modules["torch"] = torch
from pagestash import Error, allocator as p
def refused(call):
    try:
        call()
    except Error as error:
        print(error)
        return True
"""


class AllocatorTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def python(self, text, **variables):
        kept = {key: value for key, value in os.environ.items()
                if not key.startswith("PAGESTASH_") or key == "PAGESTASH_LIBRARY"}
        variables = {f"PAGESTASH_{key}": value for key, value in variables.items()}
        environment = {**kept, "PAGESTASH_TORCH_DEVICE": "host",
                       "PAGESTASH_TORCH_LIBRARY": built.torch_library(), **variables}
        result = subprocess.run([sys.executable, "-c", TORCH + text], capture_output=True,
                                text=True, timeout=240, env=environment, cwd=self.folder,
                                check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="ascii") as file:
            return file.read().splitlines()

    def test_install_gives_torch_what_it_wants(self):
        said = self.python("""
os.mkdir("new")
allocator = p.install(trace="here.csv")
os.chdir("new")
assert seen["now"] is allocator and seen["names"]
library = p._process.loaded
for setter, function in p._HOOKS.items():
    if setter != "set_release_pool":
        wanted = ctypes.cast(getattr(library, function), ctypes.c_void_p).value
        assert seen[setter] == wanted, setter
        assert seen[setter]
p.mark_iteration()
a = library.pagestash_torch_malloc(700, 0, None)
ctypes.memset(a, 1, 700)
library.pagestash_torch_free(a, 700, 0, None)
assert library.pagestash_torch_malloc(0, 0, None) is None
now = p.stats()
assert now["requests"] == 1 and now["live"] == 0 and now["iterations"] == 1, now
assert set(now["deviations"]) == set("size stream extra order missing blocked nomem late early "
                                     "use".split()) and not any(now["deviations"].values()), now
assert now["first_deviation"] == "" and now["failures"] == 0
assert refused(lambda: p.install(trace="../here.csv"))
assert refused(lambda: p.install(trace="there.csv"))
assert refused(lambda: p.mem_pool("plan.csv"))
""").splitlines()
        self.assertEqual(self.read("here.csv"), [HEADER, "mark,0,,,,,,0,iteration",
                                                 "malloc,0,700,0,,,,0,static", "free,0,,0,,,,0,"])
        self.assertIn("torch does not change its allocator: Can't swap", said[0])
        self.assertNotIn("more", said[0])
        self.assertRegex(said[1], "this process allocates with .*TRACE=.*/here.csv; it cannot "
                                  "also with .*/there.csv")
        self.assertRegex(said[2], "it cannot also with PAGESTASH_TORCH=plan, .*/plan.csv")

    def test_a_pool_is_torchs_over_the_same_allocator(self):
        said = self.python("""
assert p.record("t.csv", device="host") == ("pool", hooks)
assert p.mem_pool(trace="t.csv", device="host") == ("pool", hooks)
assert "now" not in seen
def refuse(hooks): raise RuntimeError("No CUDA GPUs are available\\nmore")
torch.cuda.MemPool = refuse
assert refused(lambda: p.record("t.csv", device="host"))
assert os.environ["PAGESTASH_TORCH_TRACE"] == os.path.abspath("t.csv")
""")
        self.assertEqual(said, "torch makes no MemPool: No CUDA GPUs are available\n")

    def test_figures_are_the_structure_of_the_header(self):
        source, binary = os.path.join(self.folder, "size.c"), os.path.join(self.folder, "size")
        with open(source, "w", encoding="ascii") as file:
            file.write('#include "pagestash_torch.h"\n#include <stdio.h>\nint main(void) {'
                       'printf("%zu %zu %zu %d", sizeof(pagestash_torch_figures),'
                       "offsetof(pagestash_torch_figures, deviations),"
                       "offsetof(pagestash_torch_figures, last_failure), (int)PST_NUM_DEVIATIONS);"
                       "return 0; }\n")
        subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-I", os.path.join(SOURCE, "include"),
                        "-I", os.path.join(SOURCE, "python/allocator"), source, "-o", binary],
                       check=True)
        wanted = subprocess.run([binary], capture_output=True, text=True, check=True).stdout
        self.assertEqual(self.python("""
f = p._Figures
print(ctypes.sizeof(f), f.deviations.offset, f.last_failure.offset, p._NUM_DEVIATIONS, end="")
"""), wanted)

    def test_failures_are_raised_at_the_next_mark(self):
        said = self.python("""
p.install(plan="none.csv")
p.mark_iteration()
assert p._process.loaded.pagestash_torch_malloc(8, 0, None) is None
assert refused(p.mark_iteration)
p.mark_iteration()
assert p.stats()["failures"] == 1
""")
        self.assertRegex(said, "^set up: .*none.csv: No such file")

    def test_what_is_refused(self):
        said = self.python("""
assert refused(lambda: p.mem_pool("a.csv", trace="b.csv"))
assert refused(lambda: p.mem_pool(device="cpu"))
assert p._process.loaded is None
assert refused(lambda: p.stats(64)) and refused(lambda: p.stats(-1))
""").splitlines()
        self.assertEqual(said, [
            "plan 'a.csv' and trace 'b.csv': a process follows a plan or records, not both",
            "device 'cpu': allowed are auto, host, cuda", "device 64: allowed are 0 to 63",
            "device -1: allowed are 0 to 63"])
        said = self.python("""
assert refused(p.stats) and refused(lambda: p.install(plan="x"))
""", TORCH_LIBRARY="/nowhere/x.so")
        self.assertIn("cannot load /nowhere/x.so: ", said)
        self.assertIn("PAGESTASH_TORCH_LIBRARY may name", said)

    def test_library_of_a_build(self):
        """It is found beside libpagestash.so."""
        said = self.python("p.mem_pool(); print(p.library_path())", TORCH_LIBRARY="",
                           LIBRARY=os.path.join(built.folder(), "libpagestash.so"))
        self.assertEqual(said.strip(), built.torch_library())

    def test_a_process_records_and_then_follows_the_plan(self):
        self.python("""
def malloc(size): return library.pagestash_torch_malloc(size, 0, None)
def free(address, size): library.pagestash_torch_free(address, size, 0, None)
p.install(trace="here.csv")
library = p._process.loaded
kept = malloc(100)
ctypes.memset(kept, 5, 100)
p.mark_iteration()
p.label("forward", 0, 3)
a = malloc(700)
p.label("other")
b = malloc(1000)
free(a, 700)
free(b, 1000)
with open("plan.csv", "w") as file:
    file.write("op,id,size,stream,offset\\nmark,0,,,\\nmalloc,1,700,0,1024\\nmalloc,2,1000,0,0\\n"
               "free,1,,,\\nfree,2,,,\\n")
p.switch("plan.csv")
before = malloc(700)
p.mark_iteration()
a, b = malloc(700), malloc(1000)
now = p.stats()
assert a - b == 1024, now
assert now["requests"] == 3 and now["planned"] == 2 and now["live"] == 4, now
free(a, 700)
free(b, 1000)
free(before, 700)
assert ctypes.string_at(kept, 100) == bytes([5]) * 100
free(kept, 100)
now = p.stats()
assert now["live"] == 0 and not any(now["deviations"].values()) and now["failures"] == 0, now
p.switch(trace="more.csv")
free(malloc(64), 64)
p.switch()
free(malloc(32), 32)
assert p.stats()["iterations"] == 0 and p.stats()["arena_bytes"] == 0
""")
        self.assertEqual(self.read("here.csv"), [
            HEADER, "malloc,0,100,0,,,,0,static", "mark,0,,,,,,0,iteration",
            "malloc,1,700,0,forward,0,3,0,static", "malloc,2,1000,0,other,,,0,static",
            "free,1,,0,other,,,0,", "free,2,,0,other,,,0,"])
        self.assertEqual(self.read("more.csv"), [HEADER, "malloc,0,64,0,,,,0,static",
                                                 "free,0,,0,,,,0,"])

    def test_a_switch_that_fails_leaves_all_as_it_was(self):
        said = self.python("""
assert refused(p.switch)
p.install(trace="here.csv")
library = p._process.loaded
library.pagestash_torch_free(library.pagestash_torch_malloc(8, 0, None), 8, 0, None)
assert refused(lambda: p.switch("none.csv"))
assert refused(lambda: p.switch(trace="none/t.csv"))
assert refused(lambda: p.label("sideways")) and refused(lambda: p.label("other", -1))
library.pagestash_torch_free(library.pagestash_torch_malloc(16, 0, None), 16, 0, None)
p.mark_iteration()
""").splitlines()
        self.assertIn("mem_pool or install comes first", said[0])
        self.assertRegex(said[1], "^switch: .*none.csv: No such file")
        self.assertRegex(said[2], "^switch: no trace at .*none/t.csv")
        self.assertEqual(len(self.read("here.csv")), 6)

    def test_threads(self):
        self.python("""
import threading
p.record("t.csv")
library = p._process.loaded
def work():
    for k in range(300):
        a = library.pagestash_torch_malloc(64 + k, 0, None)
        ctypes.memset(a, 7, 64 + k)
        library.pagestash_torch_record_stream(ctypes.c_void_p(a), ctypes.c_void_p(4096))
        library.pagestash_torch_free(a, 64 + k, 0, None)
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
p.mark_iteration()
for t in threads: t.join()
now = p.stats()
assert now["requests"] == 1200 and now["live"] == 0 and now["failures"] == 0, now
""")
        self.assertEqual(sum(row.startswith("malloc") for row in self.read("t.csv")), 1200)


if __name__ == "__main__":
    unittest.main()
