"""The offload controller of pagestash.te with streams, on the pretended GPU: eager, captured, replayed."""
import unittest

from common import pretended

pretended.start()

import torch  # noqa: E402 pylint: disable=wrong-import-position
import pagestash.te  # noqa: E402 pylint: disable=wrong-import-position
from common.copying import LAYERS, ROWS, Keep, Model, StashTest  # noqa: E402


class Controlled(Model):
    """Layers that are stashed and restored by the controller's calls."""

    def __init__(self, stash, offload_stream):
        super().__init__(stash)
        self.context, self.sync, self.controller = pagestash.te.get_cpu_offload_context(
            enabled=True, model_layers=LAYERS, manual_synchronization=True, stash=stash,
            offload_stream=offload_stream, counts=lambda layer: self.counts[layer], capacity=ROWS)

    def forward(self):
        y = self.x
        for layer, (source, seen) in enumerate(zip(self.source, self.seen)):
            with self.context:
                y = Keep.apply(y, source, seen, self.threads)
            y = self.sync(y)
            self.controller.start_offload_layer(layer)
        for layer in range(LAYERS):
            self.controller.release_activation_forward_gpu_memory(layer)
        for layer in reversed(range(LAYERS)):
            self.controller.start_reload_layer(layer)
        return y


class Controller(StashTest):
    def model(self, stream):
        stash = self.stash(pages=16, page_bytes=16384, overlap=stream or False)
        return Controlled(stash, stream)

    def test_eager_and_captured(self):
        for beside in (False, True):
            with self.subTest(beside=beside):
                model = self.model(torch.cuda.Stream() if beside else None)
                for live in ((20, 0, ROWS), (0, 0, 0), (ROWS, 1, 2)):
                    model.fill(*live)
                    model.step()
                    self.right(model)
                self.assertTrue(model.stash.status().valid)
                graph = model.capture()
                self.replay(model, graph)
                self.assertTrue(model.stash.status().valid)
                graph.reset()

    def test_another_stream(self):
        with self.assertRaisesRegex(pagestash.Error, "not the stream of the stash"):
            Controlled(self.stash(pages=16, overlap=True), torch.cuda.Stream())


if __name__ == "__main__":
    unittest.main()
