"""What is copied: configurations, and their buffers on a machine."""
import dataclasses
import math

ALIGNMENT = 256
SCALE_ROWS = 32  # column-wise scales have one row for so many


@dataclasses.dataclass(frozen=True)
class Tensor:
    width: int          # elements in a row
    element_bytes: int  # 2: bf16, 1: fp8 and scales
    per: int = 1        # one row for so many rows of the row space

    @property
    def row_bytes(self):
        return self.width * self.element_bytes

    def rows(self, rows):
        return rows // self.per


@dataclasses.dataclass(frozen=True)
class Config:
    name: str
    tensors: tuple
    rows: int    # live
    layers: int  # in one replay

    @property
    def capacity(self):
        """A quarter more than live."""
        return math.ceil(self.rows * 5 / 4 / SCALE_ROWS) * SCALE_ROWS

    @property
    def bytes(self):
        """Live, of one layer."""
        return sum(t.rows(self.rows) * t.row_bytes for t in self.tensors)

    def offsets(self):
        """Where each tensor begins in a layer's arena, and the arena's bytes."""
        starts, end = [], 0
        for tensor in self.tensors:
            starts.append(end)
            size = tensor.rows(self.capacity) * tensor.row_bytes
            end += math.ceil(size / ALIGNMENT) * ALIGNMENT
        return starts, end


def single(num_bytes, width):
    """One bf16 tensor of as many whole rows as num_bytes hold."""
    return Config(f"single-{width}", (Tensor(width, 2),), num_bytes // (2 * width), 1)


def layer(rows, layers):
    """What an MoE layer keeps: bf16 tensors, row-wise and column-wise scales."""
    tensors = (Tensor(7168, 2), Tensor(4096, 2), Tensor(4096, 2), Tensor(2048, 2),
               Tensor(7168 // SCALE_ROWS, 1), Tensor(7168, 1, SCALE_ROWS))
    return Config("layer", tensors, rows, layers)


class Payload:
    """Sources and destinations: an arena for each layer of each set. Sets are used in turn, so
    that memory is cold."""

    def __init__(self, machine, config, num_sets):
        self.machine, self.config, self.num_sets = machine, config, num_sets
        self.starts, self.arena_bytes = config.offsets()
        self.count = machine.count(config.rows)
        self.source = self._arenas()
        self.destination = self._arenas()
        for index, arena in enumerate(self.source):
            machine.randomize(arena, index)

    def _arenas(self):
        return [self.machine.allocate(self.arena_bytes)
                for _ in range(self.num_sets * self.config.layers)]

    def layers_of(self, index):
        """Arena numbers of one set."""
        layers = self.config.layers
        return range(index * layers, (index + 1) * layers)

    def base(self, arena, tensor):
        return self.machine.address(arena) + self.starts[tensor]

    def view(self, arena, tensor):
        """The tensor with its whole capacity, as torch sees it; 16-bit rows as integers, since a
        copy must not care for NaNs."""
        shape = self.config.tensors[tensor]
        return self.machine.view(arena, self.starts[tensor], shape.rows(self.config.capacity),
                                 shape.width, shape.element_bytes)

    def poison(self):
        for arena in self.destination:
            self.machine.poison(arena)

    def mismatches(self):
        """Bytes of the destinations that are neither the live bytes nor, behind them, poison."""
        wrong, config = 0, self.config
        for source, destination in zip(self.source, self.destination):
            for tensor, start in zip(config.tensors, self.starts):
                live = tensor.rows(config.rows) * tensor.row_bytes
                end = tensor.rows(config.capacity) * tensor.row_bytes
                wrong += self.machine.differing(source, destination, start, live)
                wrong += self.machine.unpoisoned(destination, start + live, end - live)
        return wrong

    def contiguous_mismatches(self):
        """The same after a plain copy of config.bytes."""
        live, wrong = self.config.bytes, 0
        for source, destination in zip(self.source, self.destination):
            wrong += self.machine.differing(source, destination, 0, live)
            wrong += self.machine.unpoisoned(destination, live, self.arena_bytes - live)
        return wrong
