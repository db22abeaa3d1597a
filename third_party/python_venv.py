#!/usr/bin/env python3
"""python_venv.py [--oldest | --cuda12] [FOLDER]: the Python environment of the tests, build/python if no folder
is named.

Python 3.12 where there is one, which Megatron-Core wants, else the Python that runs this; with what
python_requirements.txt names and, for NVIDIA's libraries, the stand-ins of nvidia_standins.py. Does nothing
where the folder already holds just that.
--oldest: build/python-oldest, of python_oldest.txt: the oldest torch that the package is tried with.
--cuda12: build/cuda12, of cuda12.txt: no torch, but what PyPI has of CUDA 12.4."""
import glob
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
REQUIREMENTS = HERE / "python_requirements.txt"
OTHERS = {"--oldest": ("python-oldest", HERE / "python_oldest.txt"), "--cuda12": ("cuda12", HERE / "cuda12.txt")}
# Wheels of which only the headers are wanted: for the pretended GPU, where there is no CUDA toolkit.
HEADERS = ("nvidia-cuda-runtime==13.0.96", "nvidia-cuda-crt==13.0.88")


def say(text):
    print(f"third_party/python_venv.py: {text}", file=sys.stderr)


def answer(*command):
    """What a command prints; "" where it cannot be run or fails, as pyenv's shims of absent versions do."""
    try:
        return subprocess.run(command, check=True, text=True, capture_output=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def interpreter():
    """The Python to make the environment of: a file."""
    script = "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2], sys.executable)"
    of_pyenv = glob.glob(os.path.expanduser("~/.pyenv/versions/3.12*/bin/python3.12"))
    for candidate in ["python3.12", *sorted(of_pyenv), sys.executable, "/usr/bin/python3"]:
        version, _, path = answer(candidate, "-c", script).partition(" ")
        if version == "3.12":
            return path
        if version:
            say(f"no Python 3.12 here: Python {version} instead, and no Megatron-Core")
            return path
    sys.exit("third_party/python_venv.py: no Python with venv and ensurepip (Debian: python3-venv)")


def stamp_of(python, requirements):
    """What the environment is made of, as one hash."""
    files = (requirements, HERE / "nvidia_standins.py", pathlib.Path(__file__))
    parts = [file.read_bytes() for file in files]
    parts.append(answer(python, "-c", "import sys; print(sys.version, sys.executable)").encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def run(*command):
    """A command whose output is shown if it fails."""
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    if done.returncode:
        sys.stderr.write(done.stdout[-3000:])
        sys.exit(f"third_party/python_venv.py: failed: {' '.join(map(str, command))}")
    return done.stdout


def make(folder, python, requirements):
    """Anew: pip would leave behind what the list no longer names. Its cache keeps that quick."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    run(python, "-m", "venv", folder)
    inside = folder / "bin" / "python"
    run(inside, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--only-binary=:all:",
        "--requirement", requirements)
    if requirements.name == "cuda12.txt":
        say(f"{folder}: CUDA 12.4 without nvcc")
        return
    site = answer(inside, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))")
    run(inside, HERE / "nvidia_standins.py", f"{site}/torch/lib")
    if requirements == REQUIREMENTS:
        unpack_headers(inside, site)
    version = run(inside, "-c", "import torch; print(torch.__version__)").split()[-1]
    say(f"{folder}: {answer(inside, '--version')}, torch {version}")


def unpack_headers(inside, site):
    """Puts nvidia/cu13/include where an installation of those wheels would have it."""
    with tempfile.TemporaryDirectory() as temporary:
        run(inside, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps",
            "--only-binary=:all:", "--dest", temporary, *HEADERS)
        for wheel in pathlib.Path(temporary).glob("*.whl"):
            with zipfile.ZipFile(wheel) as file:
                file.extractall(site, [name for name in file.namelist() if "/include/" in name])


def main():
    words = sys.argv[1:]
    name, requirements = OTHERS.get(words[0] if words else "", ("python", REQUIREMENTS))
    if name != "python":
        del words[0]
    if len(words) > 1 or words and words[0].startswith("-"):
        sys.exit(__doc__)
    folder = pathlib.Path(words[0] if words else HERE.parent / "build" / name).absolute()
    python = interpreter()
    stamp, wanted = folder / "pagestash.stamp", stamp_of(python, requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    if folder.exists() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists():
        sys.exit(f"third_party/python_venv.py: {folder} is not empty and no environment of Python")
    say(f"making {folder} ({shutil.which(python) or python})")
    make(folder, python, requirements)
    stamp.write_text(wanted)


main()
