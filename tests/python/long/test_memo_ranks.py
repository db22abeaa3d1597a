"""memo.run with "auto" on ranks that run each layer together: all choose as the slowest one wants."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
from common import gpt
from pagestash import memo

RANKS, TOKENS = 2, 256


def chosen(rank, group):
    """What a rank chose: rank 1 has a slow link, rank 0 little host memory."""
    torch.manual_seed(0)
    model = gpt.GPT(6)
    run = memo.run(model.layers, fraction="auto", block_tokens=16, link_bytes_per_second=(1 << 40, 1 << 29)[rank],
                   host_bytes=(2 << 20, 1 << 40)[rank], group=group)
    gpt.train(model, run, 1, tokens=TOKENS)
    run.close()
    return {"tokens": run.choice.tokens, "host_limit": run.choice.host_limit, "host_bytes": run.choice.host_bytes,
            "out_rate": run.choice.times.out_rate, "forward_ns": run.choice.times.forward_ns}


def both(rank, folder):
    """In a process of its own: with a group, and without."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    out = [chosen(rank, torch.distributed.group.WORLD), chosen(rank, None)]
    torch.distributed.destroy_process_group()
    return out


class Ranks(unittest.TestCase):
    def test_of_a_group_choose_alike_and_others_by_themselves(self):
        with tempfile.TemporaryDirectory() as folder:
            children = [subprocess.Popen([sys.executable, __file__, "rank", str(rank), folder],
                                         stdout=subprocess.PIPE, text=True) for rank in range(RANKS)]
            texts = [child.communicate(timeout=900)[0] for child in children]
        self.assertEqual([child.returncode for child in children], [0, 0])
        (first, first_alone), (second, second_alone) = (json.loads(text.splitlines()[-1]) for text in texts)
        self.assertEqual(first, second)
        self.assertEqual((first["host_limit"], first["out_rate"]), (2 << 20, 1 << 29))
        self.assertLessEqual(first["host_bytes"], 2 << 20)
        self.assertEqual((first_alone["out_rate"], second_alone["out_rate"]), (1 << 40, 1 << 29))
        self.assertEqual((first_alone["host_limit"], second_alone["host_limit"]), (2 << 20, 1 << 40))


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        print(json.dumps(both(int(sys.argv[2]), sys.argv[3])))
    else:
        unittest.main()
