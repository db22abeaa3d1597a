"""The package that tools/gpu-package.sh makes, of programs that run on a pretended GPU, and runs of its scripts: how
far each step came."""
import collections
import itertools
import os
import re
import shutil
import subprocess
import tempfile

from gpu_fakes import GpuTools

# They take the options of the real ones that the scripts use, and no others.
FAKES = {
    "path/compute-sanitizer": """while :; do case $1 in
        --tool) case $2 in memcheck | initcheck | synccheck | racecheck) shift 2 ;; *) exit 9 ;; esac ;;
        --error-exitcode | --report-api-errors) shift 2 ;;
        -*) echo "========= Error: unknown option $1"; exit 9 ;;
        *) break ;;
        esac; done
        "$@"; code=$?; echo "========= ERROR SUMMARY: 0 errors"; exit $code""",
    "path/ncu": """while :; do case $1 in
        --clock-control | --kernel-name | --launch-skip | --launch-count) shift 2 ;;
        --section=SpeedOfLight | --section=MemoryWorkloadAnalysis | --section=Occupancy) shift ;;
        --section=LaunchStats | --section=WarpStateStats) shift ;;
        -*) echo "==ERROR== unrecognised option '$1'"; exit 1 ;;
        *) exec "$@" ;;
        esac; done""",
}
REACHED = re.compile(r"^pretended GPU: reached (.+); launches before: (\d+), allocations: (\d+), bytes: (\d+)$",
                     re.MULTILINE)
Reached = collections.namedtuple("Reached", "launch before allocations bytes launches")


class GpuPackage(GpuTools):
    programs = None  # those of tests/tools/rehearsal.cmake
    package = None

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.made = os.path.join(scratch.name, "package")
        subprocess.run([cls.source / "tools/gpu-package.sh", "--from", cls.programs, cls.made], check=True)

    def setUp(self):
        super().setUp()
        for name, body in FAKES.items():
            self.fake(name, body)
        self.package = self.folder / "package"
        shutil.copytree(self.made, self.package, copy_function=os.link)  # a test replaces files, and writes into none
        self.variables = {}

    def command(self, *arguments):
        return [shutil.which("bash"), str(self.package / self.script), *arguments]

    def environment(self, seconds=None):
        beside = self.programs.parent
        return {"PATH": f"{self.folder}/path", "LD_LIBRARY_PATH": str(beside / "rehearsal_libraries"),
                "PAGESTASH_NCCL_LIBRARY": str(beside / "libfake_nccl.so"),
                "PAGESTASH_CUBLASLT_LIBRARY": str(beside / "libfake_cublaslt.so"),
                "PRETENDED_LAUNCHES": str(self.folder / "launches"), **self.variables}

    def reached(self, code, name, until, *arguments):
        """Runs a stage, whose processes end at these launches: {step: how far it came, with the lines of its
        launches; None where no process came to one of them}."""
        (self.folder / "launches").write_text("")
        self.variables["PRETENDED_UNTIL"] = ",".join(until)
        self.stage(code, name, *arguments)
        log = (self.packed / "log.txt").read_text()
        parts = re.split(r"^== (.*), at most \d+ s: .*$", log, flags=re.MULTILINE)
        lines = iter((self.folder / "launches").read_text().splitlines())
        found = {}
        for step, text in zip(parts[1::2], parts[2::2]):
            said = REACHED.findall(text)
            found[step] = None
            if said:
                self.assertEqual(len(said), 1, text)
                launches = list(itertools.takewhile(lambda line: not line.startswith("reached "), lines))
                found[step] = Reached(said[0][0], *map(int, said[0][1:]), launches)
        return found
