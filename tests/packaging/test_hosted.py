#!/usr/bin/env python3
"""test_hosted.py SOURCE: Dockerfile and the hosted CI, which run elsewhere: that they are what .ci/run and README
say. Neither is executed here."""
import pathlib
import re
import shlex
import sys
import unittest

import yaml

SOURCE = pathlib.Path(sys.argv[1])


def read(name):
    return (SOURCE / name).read_text(encoding="utf-8")


class Hosted(unittest.TestCase):
    def test_workflow_runs_the_stages(self):
        job = yaml.safe_load(read(".github/workflows/ci.yml"))["jobs"]["stages"]
        runs = [step["run"] for step in job["steps"] if "run" in step]
        self.assertEqual(runs[-1], ".ci/run ${{ matrix.stages }}")
        stages = " ".join(job["strategy"]["matrix"]["stages"]).split()
        wanted = re.search(r"^order='(.*)'$", read(".ci/run"), re.M)[1].split()
        self.assertEqual(sorted(stages), sorted(wanted))
        minutes = dict(re.findall(r"\[(\w+)\]=(\d+)", read(".ci/run")))
        for group in job["strategy"]["matrix"]["stages"]:
            self.assertLess(sum(int(minutes[stage]) for stage in group.split()), job["timeout-minutes"])

    def test_python_comes_before_test(self):
        """The stage python makes the environment that a part of test runs in."""
        groups = yaml.safe_load(read(".github/workflows/ci.yml"))["jobs"]["stages"]["strategy"]["matrix"]["stages"]
        self.assertTrue([group for group in groups if re.search(r"\bpython .*\btest\b", group)])

    def test_dockerfile_is_the_two_commands(self):
        lines = [line.split(" ", 1) for line in read("Dockerfile").splitlines() if not line.startswith("#")]
        self.assertEqual([name for name, _ in lines], ["FROM", "COPY", "WORKDIR", "RUN", "RUN", "RUN"])
        self.assertEqual([text for name, text in lines if name == "RUN"][1:], ["make demo", "make test"])
        install = shlex.split([text for name, text in lines if name == "RUN"][0])
        self.assertEqual(install[-1], "make")
        self.assertRegex(read("README.md").replace("\n", " "), r"Debian 12 machine `make demo` .* `make test`")
        self.assertEqual(lines[0][1], "debian:bookworm")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
