"""Has two ranks, processes of their own, run scenarios of Megatron-Core (megatron_rank.py)."""
import json
import os
import subprocess
import sys
import tempfile

_RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "megatron_rank.py")


def run_ranks(names):
    """The results of the scenarios by rank. names: functions of megatron_scenarios.py, or of
    another file of this folder: file.function."""
    with tempfile.TemporaryDirectory() as folder:
        store, out = os.path.join(folder, "store"), os.path.join(folder, "out")
        environment = dict(os.environ, NO_VCS_VERSION="1", OMP_NUM_THREADS="1")
        ranks = [subprocess.Popen([sys.executable, _RANK, str(rank), store, out, *names],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env=environment) for rank in range(2)]
        try:
            texts = [rank.communicate(timeout=900)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        if any(rank.returncode for rank in ranks):
            raise AssertionError("\n".join(text[-4000:] for text in texts))
        results = []
        for rank in range(2):
            with open(f"{out}.{rank}", encoding="utf-8") as file:
                results.append(json.load(file))
        return results
