"""The C interface of libpagestash, as far as the benchmark uses it, through ctypes.

The structs repeat include/pagestash/*.h field by field; tests/bench/test_peers.py compares their
sizes and offsets with what the C compiler makes of the headers, and the sizes are compared with
those of the library when it is loaded.
"""
import ctypes
import glob
import os
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_int32, c_int64, c_size_t
from ctypes import c_uint8, c_uint32, c_uint64, c_void_p

ROWS_PREFIX = 0
COUNT_INT64 = 1
POOL_ORDERED = 0


class StructInfo(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("bytes", c_size_t), ("first_bytes", c_size_t),
                ("version", c_int), ("can_grow", c_bool), ("padding", c_uint8 * 3)]


class GraphInfo(ctypes.Structure):
    _fields_ = [("num_nodes", c_uint64), ("num_kernels", c_uint64)]


class RowSpace(ctypes.Structure):
    _fields_ = [("kind", c_int), ("count_type", c_int), ("capacity", c_int64),
                ("num_segments", c_uint32), ("padding", c_uint32)]


class Tensor(ctypes.Structure):
    _fields_ = [("row_bytes", c_uint64), ("row_stride", c_uint64), ("segment_stride", c_uint64),
                ("space", c_uint32), ("num", c_uint32), ("den", c_uint32), ("rounding", c_int),
                ("layout", c_uint32), ("written_by", c_uint32)]


class GroupConfig(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("spaces", POINTER(RowSpace)), ("num_spaces", c_uint32),
                ("space_bytes", c_uint32), ("tensors", POINTER(Tensor)),
                ("num_tensors", c_uint32), ("tensor_bytes", c_uint32)]


class Buffers(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("bases", POINTER(c_void_p)),
                ("counts", POINTER(c_void_p)), ("capacities", POINTER(c_int64)),
                ("row_strides", POINTER(c_uint64)), ("segment_strides", POINTER(c_uint64))]


class GroupUsage(ctypes.Structure):
    _fields_ = [("payload_bytes", c_uint64), ("stream_bytes", c_uint64), ("pages", c_uint64)]


class PoolConfig(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("page_bytes", c_uint64), ("num_pages", c_uint64),
                ("mode", c_int), ("max_tickets", c_uint32), ("memory", c_void_p),
                ("memory_bytes", c_uint64), ("num_host_pages", c_uint64), ("max_pages", c_uint64),
                ("max_host_pages", c_uint64), ("scrub", c_bool), ("fails_fast", c_bool),
                ("padding", c_uint8 * 2), ("slab_tickets", c_uint32), ("slab_pages", c_uint64),
                ("slab_counts", c_uint32), ("padding_2", c_uint32), ("make_room", c_void_p),
                ("make_room_context", c_void_p)]


class PoolStatus(ctypes.Structure):
    """The beginning; what nobody here reads is room."""
    _fields_ = [("flags", c_uint32), ("step_valid", c_int32), ("fault_state", c_uint32),
                ("fault", c_uint32), ("room", c_uint64 * 30)]


class LaunchOptions(ctypes.Structure):
    _fields_ = [("num_sms", c_int), ("backend", c_int), ("priority", c_int),
                ("programmatic", c_bool)]


class StashOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("launch", LaunchOptions)]


class RestoreOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("launch", LaunchOptions), ("pages", c_int),
                ("tail", c_int), ("dirty", c_void_p), ("failed", c_int), ("padding", c_uint32)]


class Ticket(ctypes.Structure):
    _fields_ = [("id", c_uint64)]


# C name -> struct.
STRUCTS = {"pst_struct_info": StructInfo, "pst_graph_info": GraphInfo, "pst_row_space": RowSpace, "pst_tensor": Tensor,
           "pst_group_config": GroupConfig, "pst_group_usage": GroupUsage, "pst_buffers": Buffers,
           "pst_pool_config": PoolConfig, "pst_pool_status": PoolStatus,
           "pst_launch_options": LaunchOptions, "pst_stash_options": StashOptions,
           "pst_restore_options": RestoreOptions, "pst_ticket": Ticket}

# Every handle but a ticket, pst_stream too, is a pointer.
CALLS = {
    "pst_struct_find": [c_char_p, POINTER(StructInfo)],
    "pst_device_open": [c_char_p, c_int, POINTER(c_void_p)],
    "pst_device_close": [c_void_p],
    "pst_stream_create": [c_void_p, POINTER(c_void_p)],
    "pst_stream_destroy": [c_void_p, c_void_p],
    "pst_stream_synchronize": [c_void_p, c_void_p],
    "pst_graph_begin": [c_void_p, c_void_p],
    "pst_graph_end": [c_void_p, c_void_p, POINTER(c_void_p)],
    "pst_graph_launch": [c_void_p, c_void_p],
    "pst_graph_get_info": [c_void_p, POINTER(GraphInfo)],
    "pst_graph_destroy": [c_void_p],
    "pst_group_create": [POINTER(GroupConfig), POINTER(c_void_p)],
    "pst_group_destroy": [c_void_p],
    "pst_group_measure": [c_void_p, POINTER(c_int64), c_uint64, POINTER(GroupUsage)],
    "pst_pool_create": [c_void_p, POINTER(PoolConfig), POINTER(c_void_p)],
    "pst_pool_destroy": [c_void_p],
    "pst_pool_check": [c_void_p, c_void_p],
    "pst_pool_step": [c_void_p, c_void_p],
    "pst_pool_poll": [c_void_p, POINTER(PoolStatus)],
    "pst_ticket_create": [c_void_p, c_void_p, POINTER(Ticket)],
    "pst_ticket_destroy": [Ticket],
    "pst_ticket_stash": [Ticket, c_void_p, POINTER(Buffers), POINTER(StashOptions), c_void_p],
    "pst_ticket_restore": [Ticket, c_void_p, POINTER(Buffers), POINTER(RestoreOptions), c_void_p],
}


class Error(Exception):
    """A call answered with something else than PST_OK; the text is the library's own."""


class Library:
    """lib.device_open(...) is pst_device_open(...), and raises Error unless it succeeds.

    lib.create("pool_create", ...) also supplies the out parameter and returns the handle.
    """

    def __init__(self, path):
        self._dll = ctypes.CDLL(path)
        self._dll.pst_last_message.restype = c_char_p
        self._dll.pst_status_name.restype = c_char_p
        self._dll.pst_fault_text.restype = c_char_p
        for name, arguments in CALLS.items():
            function = getattr(self._dll, name)
            function.argtypes, function.restype = arguments, c_int
            setattr(self, name[len("pst_"):], self._checked(name, function))
        self.path = path
        self.version = self._dll.pst_version()
        self._check_sizes()

    def _check_sizes(self):
        info = StructInfo()
        for name, struct in STRUCTS.items():
            self.struct_find(name.encode(), byref(info))
            size = ctypes.sizeof(struct)
            # the library takes older, smaller ones of those that can grow
            least = info.first_bytes if info.can_grow else info.bytes
            if not least <= size <= info.bytes:
                sizes = f"{least} to {info.bytes}" if info.can_grow else info.bytes
                raise Error(f"{name} has {size} bytes here, and {sizes} in the library, which is of "
                            f"version {info.version}")

    def _checked(self, name, function):
        def call(*arguments):
            status = function(*arguments)
            if status != 0:
                raise Error(f"{name}: {self._dll.pst_status_name(status).decode()}: "
                            f"{self._dll.pst_last_message().decode()}")
        return call

    def create(self, call, *arguments):
        handle = Ticket() if call == "ticket_create" else c_void_p()
        getattr(self, call)(*arguments, byref(handle))
        return handle

    def fault_text(self, fault):
        return self._dll.pst_fault_text(fault).decode()


def find(explicit, root):
    """Path of the library: the one named, else the newest that a build left; None without one."""
    if explicit:
        return explicit
    built = glob.glob(os.path.join(root, "build", "*", "libpagestash.so"))
    return max(built, key=os.path.getmtime, default=None)
