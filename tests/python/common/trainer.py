"""A GPT with an optimizer, on a GPU."""
import torch
from torch.utils.checkpoint import checkpoint

from common.gpt import GPT, loss_of


class Trainer:
    """Of so many layers. optimizer: "sgd", "adam" (it has lists of temporaries), "loop" (Adam from
    parameter to parameter). clip: of the gradients' norm. rank: of two; the second has half the tokens.
    reentrant: None: no layer is checkpointed; else how they are. between: something
    stands between the layers."""

    def __init__(self, layers, optimizer="adam", clip=True, rank=0, hidden=256, tokens=512,
                 reentrant=None, between=False):
        with torch.device("cuda"):
            self.model = GPT(layers, hidden)
            self.words = torch.zeros(1, tokens // (1 + rank) + 1, dtype=torch.long)
        parameters = self.model.parameters()
        self.optimizer = {
            "sgd": lambda: torch.optim.SGD(parameters, lr=0.1),
            "adam": lambda: torch.optim.Adam(parameters, foreach=True),
            "loop": lambda: torch.optim.Adam(parameters, foreach=False)}[optimizer]()
        self.clip, self.reentrant, self.between = clip, reentrant, between

    def loss(self):
        """Of a forward."""
        return loss_of(self.forward, self.words)

    def forward(self, words):
        """With each layer computed again in the backward, or not."""
        if self.reentrant is None and not self.between:
            return self.model(words)
        x = self.model.embedding(words)
        for layer in self.model.layers:
            x = layer(x) if self.between else checkpoint(layer, x, use_reentrant=self.reentrant)
            x = torch.sigmoid(x) if self.between else x
        return self.model.head(x)

    def step(self):
        """One training step."""
        self.backward()
        self.optimize()

    def backward(self):
        """Of one micro-batch."""
        self.loss().backward()

    def optimize(self):
        """What comes once."""
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
