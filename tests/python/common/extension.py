"""Builds examples/torch_extension in a folder, and runs it there."""
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
SOURCES = os.path.join(ROOT, "examples", "torch_extension")


def _run(arguments, folder, environment, python=sys.executable):
    done = subprocess.run([python, *arguments], cwd=folder, env=environment, text=True, timeout=240,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


def build(folder, environment, flags="", python=sys.executable):
    """The folder with sources and layer_pages.so, below this one. Errors: AssertionError with the output."""
    folder = os.path.join(folder, "torch_extension")
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("build", "*.so"))
    code, text = _run(["setup.py", "build_ext", "--inplace"], folder,
                      environment | {"LAYER_PAGES_FLAGS": flags}, python)
    if code or "warning:" in text:
        raise AssertionError(text[-4000:])
    return folder


def run(folder, environment, python=sys.executable):
    """(exit status, output) of run.py."""
    return _run(["run.py"], folder, environment, python)
