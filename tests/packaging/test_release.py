#!/usr/bin/env python3
"""The source release: test_release.py SOURCE_DIR. What it holds, that it is the same every time, and when it is
refused. Works on a small repository that is made here."""
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

SOURCE = sys.argv[1]
LOG = "# Changelog\n\n## Unreleased\n\n## {} - 2026-01-31\n\n### Added\n\n- All of it.\n"


class ReleaseTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = os.path.join(self.folder.name, "source")
        self.out = os.path.join(self.folder.name, "out")
        for name in ("tools/release.sh", "include/pagestash/api.h"):
            os.makedirs(os.path.dirname(os.path.join(self.root, name)), exist_ok=True)
            shutil.copy(os.path.join(SOURCE, name), os.path.join(self.root, name))
        header = self.read("include/pagestash/api.h")
        self.version = ".".join(re.findall(r"#define PST_VERSION_\w+ (\d+)", header)[:3])
        self.write("CHANGELOG.md", LOG.format(self.version))
        self.git("init", "-q")
        self.commit()

    def read(self, name):
        with open(os.path.join(self.root, name), encoding="utf-8") as file:
            return file.read()

    def write(self, name, text):
        with open(os.path.join(self.root, name), "w", encoding="utf-8") as file:
            file.write(text)

    def git(self, *arguments):
        subprocess.run(["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@b.invalid", *arguments],
                       check=True, capture_output=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-qm", "all")

    def release(self, **options):
        return subprocess.run([os.path.join(self.root, "tools/release.sh"), self.out], text=True,
                              capture_output=True, **options)

    def refused(self, text):
        result = self.release()
        self.assertEqual((result.returncode, result.stdout), (1, ""), result)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn(text, result.stderr)
        self.assertEqual(os.listdir(self.out), [])

    def test_archive(self):
        name = f"pagestash-{self.version}"
        result = self.release()
        path = os.path.join(self.out, f"{name}.tar.gz")
        self.assertEqual((result.returncode, result.stdout), (0, path + "\n"), result)
        with tarfile.open(path) as archive:
            files = [entry.name for entry in archive if entry.isfile()]
        self.assertEqual(sorted(files), [f"{name}/CHANGELOG.md", f"{name}/include/pagestash/api.h",
                                         f"{name}/tools/release.sh"])
        subprocess.run(["sha256sum", "--check", "--quiet", f"{name}.tar.gz.sha256"], cwd=self.out, check=True)
        with open(path, "rb") as file:
            first = file.read()
        self.assertEqual(self.release().returncode, 0)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), first)

    def test_not_committed(self):
        self.write("stray", "")
        self.refused("not committed: ?? stray")

    def test_changelog(self):
        good = LOG.format(self.version)
        for text, told in ((good.replace(self.version, "9.9.9"), f'must be "## {self.version} - YYYY-MM-DD"'),
                           (good.replace(" - 2026-01-31", ""), "YYYY-MM-DD"),
                           (good.replace("## Unreleased\n\n", ""), 'must be "## Unreleased"'),
                           (good.replace("Unreleased\n", "Unreleased\n\n- More.\n"), "entries are left")):
            self.write("CHANGELOG.md", text)
            self.commit()
            self.refused(told)

    def test_not_a_clone(self):
        """An unpacked archive, alone and within the repository of something else."""
        shutil.rmtree(os.path.join(self.root, ".git"))
        self.refused("source: no git clone to release from: fatal: not a git repository")
        subprocess.run(["git", "init", "-q", self.folder.name], check=True)
        self.refused(f"source: no git clone to release from, but a folder of {self.folder.name}")

    def test_git_fails(self):
        """In any of its steps: nothing is left."""
        git = os.path.join(self.folder.name, "bin", "git")
        os.mkdir(os.path.dirname(git))
        path = os.pathsep.join((os.path.dirname(git), os.environ["PATH"]))
        for step in ("rev-parse", "status", "archive"):
            with open(git, "w", encoding="utf-8") as file:
                file.write(f'#!/bin/sh\n[ "$1" != {step} ] || exit 7\nexec {shutil.which("git")} "$@"\n')
            os.chmod(git, 0o755)
            result = self.release(env=dict(os.environ, PATH=path))
            self.assertNotEqual(result.returncode, 0, step)
            self.assertEqual((result.stdout, os.listdir(self.out)), ("", []), step)

    def test_usage(self):
        script = os.path.join(self.root, "tools/release.sh")
        self.assertEqual(subprocess.run([script], capture_output=True).returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
