"""pagestash itself: one group, a ticket per set of buffers, one launch each way."""
import ctypes

import libpagestash as pst

PAGE_BYTES = 256 << 10


class Pagestash:
    name = "pagestash"
    operations = ("stash", "restore")

    def __init__(self, library, payload, num_sms):
        self.calls, self.payload = library, payload
        self.stash_options = pst.StashOptions(ctypes.sizeof(pst.StashOptions))
        self.restore_options = pst.RestoreOptions(ctypes.sizeof(pst.RestoreOptions))
        self.stash_options.launch.num_sms = self.restore_options.launch.num_sms = num_sms
        self._open = []  # (destroy call, arguments), in order of creation
        try:
            self._create()
        except BaseException:
            self.close()
            raise

    def _make(self, create, destroy, *arguments, owner=()):
        handle = self.calls.create(create, *arguments)
        self._open.append((destroy, (*owner, handle)))
        return handle

    def _create(self):
        payload, machine = self.payload, self.payload.machine
        kind = b"cuda" if machine.kind == "cuda" else b"host"
        index = machine.device.index if machine.kind == "cuda" else 0
        self.device = self._make("device_open", "device_close", kind, index)
        self.stream = ctypes.c_void_p(machine.stream)
        if machine.kind != "cuda":
            self.stream = self._make("stream_create", "stream_destroy", self.device,
                                     owner=(self.device,))
        self.group = self._group()
        self.sources = [self._buffers(arena) for arena in payload.source]
        self.destinations = [self._buffers(arena) for arena in payload.destination]
        pages = self._pages() * len(self.sources)
        config = pst.PoolConfig(struct_size=ctypes.sizeof(pst.PoolConfig), page_bytes=PAGE_BYTES,
                                num_pages=pages, mode=pst.POOL_ORDERED,
                                max_tickets=len(self.sources))
        self.pool = self._make("pool_create", "pool_destroy", self.device, config)
        self.tickets = [self._make("ticket_create", "ticket_destroy", self.pool, self.group)
                        for _ in self.sources]

    def _group(self):
        config = self.payload.config
        space = pst.RowSpace(pst.ROWS_PREFIX, pst.COUNT_INT64, config.capacity, 1)
        tensors = (pst.Tensor * len(config.tensors))(*(
            pst.Tensor(row_bytes=shape.row_bytes, num=1, den=shape.per)
            for shape in config.tensors))
        group = pst.GroupConfig(ctypes.sizeof(pst.GroupConfig), ctypes.pointer(space), 1,
                                ctypes.sizeof(pst.RowSpace),
                                ctypes.cast(tensors, ctypes.POINTER(pst.Tensor)), len(tensors),
                                ctypes.sizeof(pst.Tensor))
        return self._make("group_create", "group_destroy", group)

    def _buffers(self, arena):
        payload, num = self.payload, len(self.payload.config.tensors)
        bases = (ctypes.c_void_p * num)(*(payload.base(arena, i) for i in range(num)))
        counts = (ctypes.c_void_p * 1)(payload.machine.address(payload.count))
        return pst.Buffers(ctypes.sizeof(pst.Buffers), bases, counts)

    def _pages(self):
        usage = pst.GroupUsage()
        self.calls.group_measure(self.group, ctypes.c_int64(self.payload.config.rows),
                                   PAGE_BYTES, usage)
        return usage.pages

    def stash(self, arena):
        self.calls.ticket_stash(self.tickets[arena], self.group, self.sources[arena],
                                self.stash_options, self.stream)

    def restore(self, arena):
        self.calls.ticket_restore(self.tickets[arena], self.group, self.destinations[arena],
                                  self.restore_options, self.stream)

    def capture(self, enqueue):
        """On cuda torch's capture serves; host has graphs of its own."""
        if self.payload.machine.kind == "cuda":
            return self.payload.machine.capture(enqueue)
        self.calls.graph_begin(self.device, self.stream)
        enqueue()
        graph = self._make("graph_end", "graph_destroy", self.device, self.stream)
        info = pst.GraphInfo()
        self.calls.graph_get_info(graph, info)
        return lambda: self.calls.graph_launch(graph, self.stream), info.num_nodes

    def fault(self):
        """What the pool recorded, after a check that no page is lost; None if nothing."""
        status = pst.PoolStatus()
        self.calls.pool_check(self.pool, self.stream)
        self.calls.pool_step(self.pool, self.stream)
        self.calls.stream_synchronize(self.device, self.stream)
        self.calls.pool_poll(self.pool, status)
        return self.calls.fault_text(status.fault) if status.flags else None

    def mismatches(self):
        return self.payload.mismatches()

    def close(self):
        self.payload.machine.synchronize()
        while self._open:
            call, arguments = self._open.pop()
            getattr(self.calls, call)(*arguments)
