"""Stash and pop in the style of the paged stash that Megatron-LM, torchtitan and NeMo have: a pool
for each dtype and width, pages of rows, 64-bit page ids, and a graph node for everything that is
not the copy. Which kernels copy is left to the subclasses."""

PAGE_ROWS = 64
MAX_BLOCKS = 2048
BLOCK = 1024  # elements in a step


class RowPool:
    """Pages of rows of one dtype and width, their circular freelist. State words come in pairs:
    device, host; there are no host pages."""

    def __init__(self, machine, shape, num_pages):
        torch, size = machine.torch, num_pages * PAGE_ROWS * shape.row_bytes
        self._memory = machine.allocate(size)
        machine.poison(self._memory)
        self.pages = machine.view(self._memory, 0, num_pages * PAGE_ROWS, shape.width,
                                  shape.element_bytes)
        integers = {"dtype": torch.int64, "device": self.pages.device}
        self.freelist = torch.arange(num_pages, **integers)
        self.host_freelist = torch.empty(0, **integers)
        self.head = torch.zeros(2, **integers)
        self.tail = torch.tensor([num_pages, 0], **integers)
        self.slots = torch.tensor([num_pages, 0], **integers)
        self.overflow = torch.zeros(1, **integers)
        self.any_spilled = torch.zeros(1, **integers)


class StashedTensor:
    def __init__(self, payload, pool, arena, tensor):
        torch, config = payload.machine.torch, payload.config
        self.shape, self.pool = config.tensors[tensor], pool
        self.capacity = self.shape.rows(config.capacity)
        self.source = payload.view(payload.source[arena], tensor)
        self.destination = payload.view(payload.destination[arena], tensor)
        integers = {"dtype": torch.int64, "device": self.source.device}
        self.count = payload.machine.count_view(payload.count)
        self.live = self.count if self.shape.per == 1 else torch.empty(1, **integers)
        self.record = torch.empty(-(-self.capacity // PAGE_ROWS), **integers)
        self.spilled = torch.empty(1, **integers)
        self.new_head = torch.empty(2, **integers)
        self.new_tail = torch.empty(2, **integers)
        self.grid = (min(self.capacity, MAX_BLOCKS),)


class PagedRows:
    operations = ("stash", "restore")

    def __init__(self, payload):
        self.payload = payload
        self.torch = payload.machine.torch
        config, wanted = payload.config, {}
        for shape in config.tensors:
            pages = -(-shape.rows(config.rows) // PAGE_ROWS) * len(payload.source)
            key = shape.width, shape.element_bytes
            wanted[key] = wanted.get(key, 0) + pages
        self.pools = {}
        for shape in config.tensors:
            key = shape.width, shape.element_bytes
            if key not in self.pools:
                self.pools[key] = RowPool(payload.machine, shape, wanted[key])
        self.tensors = [[StashedTensor(payload, self.pools[shape.width, shape.element_bytes],
                                       arena, i) for i, shape in enumerate(config.tensors)]
                        for arena in range(len(payload.source))]

    def stash(self, arena):
        for tensor in self.tensors[arena]:
            tensor.record.zero_()
            tensor.spilled.zero_()
            self._count(tensor)
            self.launch_stash(tensor)
            tensor.pool.head.copy_(tensor.new_head)

    def restore(self, arena):
        for tensor in self.tensors[arena]:
            self._count(tensor)
            self.launch_pop(tensor)
            tensor.pool.tail.copy_(tensor.new_tail)

    def _count(self, tensor):
        if tensor.shape.per != 1:
            self.torch.floor_divide(tensor.count, tensor.shape.per, out=tensor.live)

    def capture(self, enqueue):
        return self.payload.machine.capture(enqueue)

    def fault(self):
        if any(int(pool.overflow) for pool in self.pools.values()):
            return "overflow: fewer pages than wanted"
        if any(int((pool.tail - pool.head - pool.slots).abs().sum())
               for pool in self.pools.values()):
            return "pages did not come back"
        return None

    def mismatches(self):
        return self.payload.mismatches()

    def close(self):
        self.payload.machine.synchronize()
