"""What has no kernels of ours: torch's indexed copies, and the contiguous copies that everything
is compared with."""

import paged_rows


class TorchIndex:
    """index_copy_ and index_select, for a host that knows the rows: one launch per tensor."""
    name = "torch_index"
    operations = ("stash", "restore")

    def __init__(self, payload):
        self.payload, self.torch = payload, payload.machine.torch
        config, machine = payload.config, payload.machine
        self.parts = []
        for arena in range(len(payload.source)):
            for i, shape in enumerate(config.tensors):
                self.parts.append((arena, *self._tensor(machine, payload, arena, i, shape)))

    def _tensor(self, machine, payload, arena, i, shape):
        """Source, destination, store and row numbers: whole pages, in shuffled order."""
        rows, page_rows = shape.rows(payload.config.rows), paged_rows.PAGE_ROWS
        pages = -(-rows // page_rows)
        memory = machine.allocate(pages * page_rows * shape.row_bytes)
        machine.poison(memory)
        store = machine.view(memory, 0, pages * page_rows, shape.width, shape.element_bytes)
        order = self.torch.randperm(pages, generator=self.torch.Generator().manual_seed(i))
        ids = (order[:, None] * page_rows + self.torch.arange(page_rows)).reshape(-1)[:rows]
        return (payload.view(payload.source[arena], i)[:rows],
                payload.view(payload.destination[arena], i)[:rows], store, ids.to(store.device))

    def stash(self, arena):
        for owner, source, _, store, ids in self.parts:
            if owner == arena:
                store.index_copy_(0, ids, source)

    def restore(self, arena):
        for owner, _, destination, store, ids in self.parts:
            if owner == arena:
                self.torch.index_select(store, 0, ids, out=destination)

    def capture(self, enqueue):
        return self.payload.machine.capture(enqueue)

    def fault(self):
        return None

    def mismatches(self):
        return self.payload.mismatches()

    def close(self):
        self.payload.machine.synchronize()


class Copy:
    """The driver's copy (memcpy on the CPU) of as many bytes, in one piece."""
    name = "copy"
    operations = ("copy",)

    def __init__(self, payload):
        self.payload = payload

    def copy(self, arena):
        payload = self.payload
        payload.machine.copy(payload.destination[arena], payload.source[arena],
                             payload.config.bytes)

    def capture(self, enqueue):
        return self.payload.machine.capture(enqueue)

    def fault(self):
        return None

    def mismatches(self):
        return self.payload.contiguous_mismatches()

    def close(self):
        self.payload.machine.synchronize()


def candidates(machine, copy_contiguous):
    """{name: copy(destination, source)} for the best contiguous copy; on the CPU memcpy alone,
    which has one thread like the library."""
    if machine.kind == "cpu":
        return {"memcpy": lambda to, source: machine.copy(to, source, len(source))}
    torch = machine.torch
    return {
        "torch_copy": lambda to, source: to.copy_(source),
        # an elementwise kernel that happens to change nothing
        "torch_elementwise": lambda to, source: torch.bitwise_or(
            source.view(torch.int64), 0, out=to.view(torch.int64)),
        "triton_flat": lambda to, source: copy_contiguous(to.view(torch.int64),
                                                          source.view(torch.int64)),
    }


def measure_ceiling(machine, num_bytes, samples, copy_contiguous):
    """Seconds of each candidate and the bytes that it got wrong."""
    source, destination = machine.allocate(num_bytes), machine.allocate(num_bytes)
    machine.randomize(source, 0)
    replays, seconds, wrong = {}, {}, {}
    for name, copy in candidates(machine, copy_contiguous).items():
        def enqueue(copy=copy):
            copy(destination, source)
        machine.poison(destination)
        machine.synchronize()
        machine.run(enqueue)
        wrong[name] = machine.differing(source, destination, 0, num_bytes)
        replays[name], _ = machine.capture(enqueue)
        machine.time([replays[name]])
        seconds[name] = []
    for _ in range(samples):
        for name, replay in replays.items():
            seconds[name] += machine.time([replay])
    return seconds, wrong


def measure_launch(machine, samples):
    """Seconds of replaying a graph of one node that fills 16 bytes; [] where there is no graph."""
    if machine.kind == "cpu":
        return []
    word = machine.allocate(16)
    replay, _ = machine.capture(lambda: machine.poison(word))
    machine.time([replay])
    return machine.time([replay] * samples)
