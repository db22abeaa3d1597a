"""The C interface: structs, constants and functions of include/pagestash/*.h.

Made by python/generate_abi.py from the headers; not edited by hand."""
# pylint: disable=too-many-lines
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int,
                    c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p)

PST_ARENA_MAX_LOOKAHEAD = 4096
PST_ARENA_MAX_STREAMS = 64
PST_FLAG_ORDER = 256
PST_LAYOUT_PACKED = 0
PST_MAX_DEVIATIONS = 16
PST_MAX_PARTS = 4
PST_MAX_SEGMENTS = 1024
PST_MAX_SETS = 8
PST_MAX_SPACES = 8
PST_MAX_TENSORS = 64
PST_PAGE_BYTES_DEFAULT = 262144
PST_PAGE_BYTES_MAX = 4194304
PST_PAGE_BYTES_MIN = 16384
PST_PLAN_FINISH_NS = 8
PST_PLAN_FREE = -1
PST_PLAN_MAX_BYTES = 4611686018427387904
PST_PLAN_MAX_STREAMS = 16
PST_PLAN_MAX_TENSORS = 67108864
PST_PLAN_NO_BLOCK = 4294967295
PST_POLICY_GIVEN_AHEAD = 4
PST_POLICY_GIVEN_ALL = 63
PST_POLICY_GIVEN_PAGE_BYTES = 16
PST_POLICY_GIVEN_RULE = 1
PST_POLICY_GIVEN_SETS = 2
PST_POLICY_GIVEN_SHARES = 32
PST_POLICY_GIVEN_STREAMS = 8
PST_POLICY_UNLIMITED = -1
PST_RESET_ALL = 7
PST_RESET_FAULTS = 2
PST_RESET_PAGES = 1
PST_RESET_STATISTICS = 4
PST_SCHEDULE_MAX_MICRO_BATCHES = 1048576
PST_SCHEDULE_MAX_PASSES = 4294967296
PST_SCHEDULE_NO_SLOT = 4294967295
PST_SCRATCH_MAX_NAME_BYTES = 64
PST_SWAP_MAX_BYTES = 4611686018427387904
PST_TRACE_ALIGN_DEFAULT = 512
PST_TRACE_MAX_BYTES = 9223372036854775807
PST_TRACE_MAX_STREAMS = 64
PST_TRACE_NONE = 4294967295
PST_USE_BACKWARD = 1
PST_USE_WEIGHT = 2
PST_VERSION = 100
PST_VERSION_MAJOR = 0
PST_VERSION_MINOR = 1
PST_VERSION_PATCH = 0
PST_WRITTEN_BY_GLU = 1
PST_WRITTEN_BY_STASH = 0

PST_OK = 0
PST_E_INVALID = -1
PST_E_BUSY = -2
PST_E_NOMEM = -3
PST_E_DEVICE_NOMEM = -4
PST_E_UNSUPPORTED = -5
PST_E_NO_DEVICE = -6
PST_E_CUDA = -7
PST_E_CAPTURE = -8
PST_E_AGAIN = -9
PST_E_ORDER = -10
PST_E_PEER = -11
PST_E_DAMAGED = -12


class pst_struct_info(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("bytes", c_size_t),
        ("first_bytes", c_size_t),
        ("version", c_int),
        ("can_grow", c_bool),
        ("padding", c_uint8 * 3),
    ]


class pst_env_info(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("type", c_char_p),
        ("allowed", c_char_p),
        ("default_value", c_char_p),
        ("help", c_char_p),
        ("value", c_char_p),
        ("is_set", c_bool),
    ]

PST_LOG_OFF = 0
PST_LOG_ERROR = 1
PST_LOG_WARN = 2
PST_LOG_INFO = 3
PST_LOG_DEBUG = 4


pst_log_callback = CFUNCTYPE(None, c_int, c_char_p, c_void_p)

PST_DEVICE_HOST = 0
PST_DEVICE_CUDA = 1

PST_BACKEND_AUTO = 0
PST_BACKEND_LDG = 1
PST_BACKEND_BULK = 2
PST_BACKEND_SQUEEZE = 3


class pst_device_info(Structure):
    _fields_ = [
        ("kind", c_int),
        ("name", c_char * 128),
        ("index", c_int),
        ("num_sms", c_int),
        ("compute_capability", c_int),
        ("backends", c_uint32),
        ("total_bytes", c_uint64),
        ("free_bytes", c_uint64),
    ]


class pst_graph_info(Structure):
    _fields_ = [
        ("num_nodes", c_uint64),
        ("num_kernels", c_uint64),
    ]

PST_ROWS_PREFIX = 0
PST_ROWS_SEGMENTS = 1
PST_ROWS_SUM = 2

PST_COUNT_INT32 = 0
PST_COUNT_INT64 = 1
PST_COUNT_HOST = 2

PST_ROUND_UP = 0
PST_ROUND_DOWN = 1


class pst_row_space(Structure):
    _fields_ = [
        ("kind", c_int),
        ("count_type", c_int),
        ("capacity", c_int64),
        ("num_segments", c_uint32),
        ("padding", c_uint32),
    ]


class pst_tensor(Structure):
    _fields_ = [
        ("row_bytes", c_uint64),
        ("row_stride", c_uint64),
        ("segment_stride", c_uint64),
        ("space", c_uint32),
        ("num", c_uint32),
        ("den", c_uint32),
        ("rounding", c_int),
        ("layout", c_uint32),
        ("written_by", c_uint32),
    ]


class pst_group_config(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("spaces", POINTER(pst_row_space)),
        ("num_spaces", c_uint32),
        ("space_bytes", c_uint32),
        ("tensors", POINTER(pst_tensor)),
        ("num_tensors", c_uint32),
        ("tensor_bytes", c_uint32),
    ]


class pst_buffers(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("bases", POINTER(c_void_p)),
        ("counts", POINTER(c_void_p)),
        ("capacities", POINTER(c_int64)),
        ("row_strides", POINTER(c_uint64)),
        ("segment_strides", POINTER(c_uint64)),
    ]


class pst_group_usage(Structure):
    _fields_ = [
        ("payload_bytes", c_uint64),
        ("stream_bytes", c_uint64),
        ("pages", c_uint64),
    ]

PST_POOL_ORDERED = 0
PST_POOL_CONCURRENT = 1


pst_make_room_fn = CFUNCTYPE(c_bool, c_void_p, c_uint64, c_uint32)


class pst_pool_config(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("page_bytes", c_uint64),
        ("num_pages", c_uint64),
        ("mode", c_int),
        ("max_tickets", c_uint32),
        ("memory", c_void_p),
        ("memory_bytes", c_uint64),
        ("num_host_pages", c_uint64),
        ("max_pages", c_uint64),
        ("max_host_pages", c_uint64),
        ("scrub", c_bool),
        ("fails_fast", c_bool),
        ("padding", c_uint8 * 2),
        ("slab_tickets", c_uint32),
        ("slab_pages", c_uint64),
        ("slab_counts", c_uint32),
        ("padding_2", c_uint32),
        ("make_room", pst_make_room_fn),
        ("make_room_context", c_void_p),
    ]

PST_FAULT_NONE = 0
PST_FAULT_EXHAUSTED = 1
PST_FAULT_COUNT = 2
PST_FAULT_LIVE = 3
PST_FAULT_EMPTY = 4
PST_FAULT_FAILED = 5
PST_FAULT_DESTINATION = 6
PST_FAULT_DAMAGED = 7
PST_FAULT_ORDER = 8
PST_FAULT_CHECK = 9
PST_FAULT_MOVED = 10
PST_FAULT_FORM = 11
PST_FAULT_LOST = 12
PST_FAULT_SCHEDULE = 13


class pst_pool_status(Structure):
    _fields_ = [
        ("flags", c_uint32),
        ("step_valid", c_int32),
        ("fault_state", c_uint32),
        ("fault", c_uint32),
        ("fault_ticket", c_uint32),
        ("num_faults", c_uint32),
        ("fault_wanted", c_uint64),
        ("fault_free", c_uint64 * 2),
        ("high_water", c_uint64 * 2),
        ("demand_high_water", c_uint64),
        ("step_demand", c_uint64),
        ("spilled_pages", c_uint64),
        ("in_use", c_uint64 * 2),
        ("steps", c_uint64),
        ("checks", c_uint64),
        ("epoch", c_uint32),
        ("check_errors", c_uint32),
        ("offloaded_pages", c_uint64),
        ("displaced_pages", c_uint64),
        ("demoted_pages", c_uint64),
        ("promoted_pages", c_uint64),
        ("stranded_pages", c_uint64),
        ("struct_bytes", c_uint32),
        ("version", c_uint32),
        ("reserved", c_uint64 * 6),
        ("demand_quantiles", c_uint64 * 4),
    ]


class pst_pool_info(Structure):
    _fields_ = [
        ("page_bytes", c_uint64),
        ("page_shift", c_uint32),
        ("num_tickets", c_uint32),
        ("max_tickets", c_uint32),
        ("slab_tickets", c_uint32),
        ("slab_taken", c_uint32),
        ("padding", c_uint32),
        ("num_pages", c_uint64 * 2),
        ("max_pages", c_uint64 * 2),
        ("held_bytes", c_uint64 * 2),
        ("reserved_bytes", c_uint64 * 2),
        ("metadata_bytes", c_uint64),
        ("pages", c_void_p * 2),
        ("owners", POINTER(c_uint64) * 2),
    ]

PST_STEPS_P50 = 0
PST_STEPS_P90 = 1
PST_STEPS_P99 = 2
PST_STEPS_P999 = 3
PST_STEPS_ALL = 4


class pst_ticket(Structure):
    _fields_ = [
        ("id", c_uint64),
    ]

PST_RESTORE_CONSUME = 0
PST_RESTORE_KEEP = 1

PST_TAIL_UNTOUCHED = 0
PST_TAIL_ZERO = 1
PST_TAIL_ZERO_ALL = 2

PST_FAILED_UNTOUCHED = 0
PST_FAILED_ZERO = 1

PST_PRIORITY_STREAM = 0
PST_PRIORITY_LOW = 1
PST_PRIORITY_HIGH = 2


class pst_launch_options(Structure):
    _fields_ = [
        ("num_sms", c_int),
        ("backend", c_int),
        ("priority", c_int),
        ("programmatic", c_bool),
    ]


class pst_stash_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("launch", pst_launch_options),
    ]


class pst_restore_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("launch", pst_launch_options),
        ("pages", c_int),
        ("tail", c_int),
        ("dirty", c_void_p),
        ("failed", c_int),
        ("padding", c_uint32),
    ]

PST_MIGRATE_ALL = 0
PST_MIGRATE_UP_TO = 1
PST_MIGRATE_REST = 2


class pst_migrate_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("launch", pst_launch_options),
        ("share", c_int),
        ("max_pages", c_uint64),
    ]

PST_PASS_FORWARD = 0
PST_PASS_BACKWARD = 1
PST_PASS_BACKWARD_INPUT = 2
PST_PASS_BACKWARD_WEIGHT = 3


class pst_pass(Structure):
    _fields_ = [
        ("micro_batch", c_uint32),
        ("chunk", c_uint32),
        ("kind", c_int),
        ("pairs", c_bool),
        ("padding", c_uint8 * 3),
    ]

PST_SCHEDULE_1F1B = 0
PST_SCHEDULE_INTERLEAVED = 1
PST_SCHEDULE_GPIPE = 2
PST_SCHEDULE_GPIPE_REVERSED = 3
PST_SCHEDULE_ZB_H1 = 4
PST_SCHEDULE_ZB_H2 = 5
PST_SCHEDULE_ZB_V = 6
PST_SCHEDULE_DUALPIPE = 7
PST_SCHEDULE_DUALPIPE_V = 8
PST_SCHEDULE_LIST = 9


class pst_schedule_config(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int),
        ("num_stages", c_uint32),
        ("stage", c_uint32),
        ("num_chunks", c_uint32),
        ("num_micro_batches", c_uint32),
        ("group", c_uint32),
        ("overlaps_exchange", c_bool),
        ("padding", c_uint8 * 3),
        ("limit", c_uint32),
        ("passes", POINTER(pst_pass)),
        ("num_passes", c_uint64),
    ]


class pst_schedule_info(Structure):
    _fields_ = [
        ("num_passes", c_uint64),
        ("peak", c_uint32),
        ("peak_at", c_uint32),
        ("is_fifo", c_bool),
        ("is_lifo", c_bool),
        ("splits_backward", c_bool),
        ("is_forward_only", c_bool),
        ("padding", c_uint8 * 4),
        ("digest", c_uint64),
        ("reserved", c_uint64 * 4),
        ("config", pst_schedule_config),
    ]

PST_KEEP_PAGED = 0
PST_KEEP_SWAPPED = 1
PST_KEEP_PLANNED = 2
PST_KEEP_RECOMPUTED = 3

PST_MOVE_DIRECT = 0
PST_MOVE_DEMOTE = 1


class pst_layer_policy(Structure):
    _fields_ = [
        ("host_num", c_uint32),
        ("host_den", c_uint32),
        ("move", c_int),
        ("promote_ahead", c_uint32),
        ("swap_tokens", c_uint64),
        ("recomputes", c_bool),
        ("holds", c_bool),
        ("padding", c_uint8 * 6),
    ]

PST_GLU_SWIGLU = 0
PST_GLU_GEGLU = 1
PST_GLU_GEGLU_TANH = 2
PST_GLU_REGLU = 3
PST_GLU_QUICK_GEGLU = 4
PST_GLU_CLAMPED = 5

PST_GLU_BF16 = 0
PST_GLU_FP16 = 1
PST_GLU_FP32 = 2


class pst_glu(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int),
        ("dtype", c_int),
        ("interleave", c_uint32),
        ("limit", c_float),
        ("alpha", c_float),
        ("bias", c_float),
    ]


class pst_glu_rows(Structure):
    _fields_ = [
        ("base", c_void_p),
        ("row_stride", c_uint64),
        ("segment_stride", c_uint64),
    ]


class pst_glu_operands(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("output", pst_glu_rows),
        ("probability", pst_glu_rows),
        ("gradient", pst_glu_rows),
        ("input_gradient", pst_glu_rows),
        ("probability_gradient", pst_glu_rows),
    ]


class pst_scratch_config(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("reserve_bytes", c_uint64),
    ]


class pst_lease(Structure):
    _fields_ = [
        ("address", c_void_p),
        ("bytes", c_uint64),
        ("id", c_uint64),
    ]


class pst_scratch_info(Structure):
    _fields_ = [
        ("mapped_bytes", c_uint64),
        ("peak_mapped_bytes", c_uint64),
        ("leased_bytes", c_uint64),
        ("peak_leased_bytes", c_uint64),
        ("num_leases", c_uint64),
        ("num_waits", c_uint64),
        ("num_names", c_uint32),
        ("num_live", c_uint32),
    ]


class pst_part(Structure):
    _fields_ = [
        ("group", c_void_p),
        ("sources", POINTER(POINTER(pst_buffers))),
        ("destinations", POINTER(POINTER(pst_buffers))),
        ("dirty", POINTER(c_void_p)),
        ("uses", c_uint32),
        ("padding", c_uint32),
    ]


class pst_layer(Structure):
    _fields_ = [
        ("chunk", c_uint32),
        ("layer", c_uint32),
        ("keep", c_int),
        ("num_parts", c_uint32),
        ("parts", POINTER(pst_part)),
        ("buffers", c_void_p * 2),
        ("whole_bytes", c_uint64),
        ("token_bytes", c_uint64),
        ("num_tokens", c_uint64),
        ("policy", pst_layer_policy),
    ]

PST_CAPTURE_ITERATION = 0
PST_CAPTURE_LAYERS = 1

PST_RESTORE_ASAP = 0
PST_RESTORE_NEXT = 1


class pst_visit_key(Structure):
    _fields_ = [
        ("kind", c_int),
        ("chunk", c_uint32),
        ("layer", c_uint32),
        ("micro_batch", c_uint32),
    ]


pst_destination_fn = CFUNCTYPE(c_int, c_void_p, POINTER(pst_visit_key), c_uint32, c_void_p, POINTER(pst_buffers))


class pst_scheduler_config(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("pool", c_void_p),
        ("arena", c_void_p),
        ("schedule", c_void_p),
        ("layers", POINTER(pst_layer)),
        ("num_layers", c_uint32),
        ("layer_bytes", c_uint32),
        ("part_bytes", c_uint32),
        ("num_stages", c_uint32),
        ("stage", c_uint32),
        ("num_sources", c_uint32),
        ("num_destinations", c_uint32),
        ("one_ring", c_bool),
        ("keeps_nothing", c_bool),
        ("measures", c_bool),
        ("padding", c_uint8),
        ("ahead", c_uint32),
        ("rule", c_int),
        ("max_slots", c_uint32),
        ("capture", c_int),
        ("num_streams", c_uint32),
        ("streams", c_void_p * 4),
        ("launch", pst_launch_options * 2),
        ("tail", c_int),
        ("failed", c_int),
        ("destination", pst_destination_fn),
        ("user", c_void_p),
    ]


class pst_visit(Structure):
    _fields_ = [
        ("slot", c_uint32),
        ("set", c_uint32),
        ("in_place", c_bool),
        ("is_live", c_bool),
        ("is_held", c_bool),
        ("padding", c_uint8),
        ("num_freed", c_uint32),
        ("first_token", c_uint64),
        ("freed", pst_visit_key * 8),
    ]


class pst_step_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("num_micro_batches", c_uint32),
        ("forward_only", c_bool),
        ("padding", c_uint8 * 3),
    ]


class pst_scheduler_stats(Structure):
    _fields_ = [
        ("steps", c_uint64),
        ("aborted_steps", c_uint64),
        ("lost_steps", c_uint64),
        ("visits", c_uint64),
        ("kept_in_place", c_uint64),
        ("stashed", c_uint64),
        ("swapped", c_uint64),
        ("recomputed", c_uint64),
        ("planned", c_uint64),
        ("restores", c_uint64),
        ("deferred_restores", c_uint64),
        ("demotes", c_uint64),
        ("promotes", c_uint64),
        ("waits", c_uint64),
        ("records", c_uint64),
        ("program_bytes", c_uint64),
        ("conflicts", c_uint64),
        ("num_tickets", c_uint64),
        ("num_slots", c_uint64),
        ("num_events", c_uint64),
        ("measured_steps", c_uint64),
        ("exposed_forward_ns", c_uint64),
        ("exposed_backward_ns", c_uint64),
        ("worst_ns", c_uint64),
        ("worst", pst_visit_key),
    ]


class pst_layer_buffers(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("alias", c_uint32),
        ("padding", c_uint32),
        ("buffers", POINTER(POINTER(pst_buffers))),
    ]


class pst_times(Structure):
    _fields_ = [
        ("before", c_uint64),
        ("core", c_uint64),
        ("after", c_uint64),
    ]


class pst_simulated_layer(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("chunk", c_uint32),
        ("layer", c_uint32),
        ("keep", c_int),
        ("num_parts", c_uint32),
        ("uses", c_uint32 * 4),
        ("part_ns", c_uint64 * 4),
        ("policy", pst_layer_policy),
        ("forward", pst_times),
        ("backward", pst_times),
        ("backward_input", pst_times),
        ("backward_weight", pst_times),
        ("recompute_ns", c_uint64),
        ("usages", POINTER(pst_group_usage)),
        ("num_usages", c_uint32),
        ("padding", c_uint32),
        ("max_demote_pages", c_uint64),
        ("swap_bytes", c_uint64),
        ("glu_parts", c_uint32),
        ("padding_2", c_uint32),
        ("glu_bytes", POINTER(c_uint64)),
    ]


class pst_simulated_rates(Structure):
    _fields_ = [
        ("stash_fixed_ns", c_uint64),
        ("restore_fixed_ns", c_uint64),
        ("demote_fixed_ns", c_uint64),
        ("promote_fixed_ns", c_uint64),
        ("stash_rate", c_uint64),
        ("restore_rate", c_uint64),
        ("out_rate", c_uint64),
        ("in_rate", c_uint64),
    ]

PST_SIMULATED_MAIN = 0
PST_SIMULATED_STASH = 1
PST_SIMULATED_RESTORE = 2
PST_SIMULATED_TO_HOST = 3
PST_SIMULATED_FROM_HOST = 4
PST_NUM_SIMULATED_STREAMS = 5

PST_SIMULATED_WORK = 0
PST_SIMULATED_RECOMPUTE = 1
PST_SIMULATED_STALL = 2
PST_SIMULATED_BUBBLE = 3
PST_SIMULATED_DO_STASH = 4
PST_SIMULATED_DO_RESTORE = 5
PST_SIMULATED_DO_DEMOTE = 6
PST_SIMULATED_DO_PROMOTE = 7
PST_SIMULATED_DO_SWAP_OUT = 8
PST_SIMULATED_DO_SWAP_IN = 9


class pst_simulated_event(Structure):
    _fields_ = [
        ("stage", c_uint32),
        ("stream", c_int),
        ("kind", c_int),
        ("visit", pst_visit_key),
        ("part", c_uint32),
        ("fault", c_int),
        ("begin_ns", c_uint64),
        ("end_ns", c_uint64),
        ("pages", c_uint64 * 2),
        ("in_use", c_uint64 * 2),
    ]


pst_simulated_event_fn = CFUNCTYPE(None, c_void_p, POINTER(pst_simulated_event))

PST_CHUNKS_OF_KIND = 0
PST_CHUNKS_LOOPED = 1
PST_CHUNKS_V = 2
PST_CHUNKS_DIRECTIONS = 3


class pst_simulation_config(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("num_stages", c_uint32),
        ("alone", c_bool),
        ("one_ring", c_bool),
        ("keeps_nothing", c_bool),
        ("by_slot", c_bool),
        ("schedules", POINTER(c_void_p)),
        ("layers", POINTER(POINTER(pst_simulated_layer))),
        ("num_layers", POINTER(c_uint32)),
        ("layer_bytes", c_uint32),
        ("num_sources", c_uint32),
        ("num_destinations", c_uint32),
        ("ahead", c_uint32),
        ("num_streams", c_uint32),
        ("rule", c_int),
        ("mode", c_int),
        ("steps", c_uint32),
        ("p2p_ns", c_uint64),
        ("num_pages", c_uint64 * 2),
        ("page_bytes", c_uint64),
        ("rates", pst_simulated_rates),
        ("interference_per_mille", c_uint32),
        ("chunk_order", c_int),
        ("in_call_order", c_bool),
        ("padding", c_uint8 * 7),
        ("on_event", pst_simulated_event_fn),
        ("user", c_void_p),
    ]


class pst_stage_result(Structure):
    _fields_ = [
        ("num_passes", c_uint64),
        ("peak_in_flight", c_uint64),
        ("num_tickets", c_uint64),
        ("num_slots", c_uint64),
        ("kept_in_place", c_uint64),
        ("stashed", c_uint64),
        ("restored", c_uint64),
        ("conflicts", c_uint64 * 2),
        ("span_ns", c_uint64),
        ("end_ns", c_uint64),
        ("busy_ns", c_uint64),
        ("bubble_ns", c_uint64),
        ("exposed_forward_ns", c_uint64),
        ("exposed_backward_ns", c_uint64),
        ("recompute_ns", c_uint64),
        ("stash_busy_ns", c_uint64),
        ("restore_busy_ns", c_uint64),
        ("link_busy_ns", c_uint64 * 2),
        ("link_bytes", c_uint64 * 2),
        ("high_water", c_uint64 * 2),
        ("demand_high_water", c_uint64),
        ("spilled_pages", c_uint64),
        ("offloaded_pages", c_uint64),
        ("displaced_pages", c_uint64),
        ("demoted_pages", c_uint64),
        ("promoted_pages", c_uint64),
        ("stranded_pages", c_uint64),
        ("num_faults", c_uint64),
        ("in_use", c_uint64 * 2),
        ("high_water_bounds", c_uint64 * 2),
        ("order_is_simulated", c_bool),
        ("padding", c_uint8 * 3),
        ("fault", c_int),
        ("fault_visit", pst_visit_key),
        ("fault_wanted", c_uint64),
        ("fault_free", c_uint64 * 2),
        ("worst_ns", c_uint64),
        ("worst", pst_visit_key),
        ("swapped_host_bytes", c_uint64),
        ("program_bytes", c_uint64),
    ]


class pst_simulation(Structure):
    _fields_ = [
        ("makespan_ns", c_uint64),
        ("deadlocked", c_bool),
        ("padding", c_uint8 * 7),
        ("deadlock", c_char * 256),
    ]

PST_POLICY_LEAST_BYTES = 0
PST_POLICY_LEAST_EXPOSED = 1

PST_POLICY_SETS_FIXED = 0
PST_POLICY_SETS_CALLERS = 1


class pst_policy_layer(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("treatments", c_uint32),
        ("padding", c_uint32),
        ("planned_bytes", c_uint64),
        ("whole_bytes", c_uint64),
        ("token_bytes", c_uint64),
        ("num_tokens", c_uint64),
        ("block_tokens", c_uint64),
        ("recompute_ns", c_uint64),
    ]


class pst_policy_config(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("simulation", POINTER(pst_simulation_config)),
        ("layers", POINTER(POINTER(pst_policy_layer))),
        ("layer_bytes", c_uint32),
        ("routing_bytes", c_uint32),
        ("padding", c_uint32),
        ("share_den", c_uint32),
        ("objective", c_int),
        ("sets", c_int),
        ("given", c_uint32),
        ("max_sets", c_uint32),
        ("gpu_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("static_bytes", POINTER(c_uint64)),
        ("reserve_bytes", c_uint64),
        ("set_bytes", c_uint64),
        ("routings", POINTER(POINTER(POINTER(pst_simulated_layer)))),
        ("num_routings", c_uint32),
        ("quantile_per_mille", c_uint32),
        ("page_bytes", POINTER(c_uint64)),
        ("num_page_bytes", c_uint32),
        ("max_tickets", c_uint32),
        ("max_evaluations", c_uint64),
        ("max_combinations", c_uint64),
    ]


class pst_layer_choice(Structure):
    _fields_ = [
        ("stage", c_uint32),
        ("chunk", c_uint32),
        ("layer", c_uint32),
        ("keep", c_int),
        ("policy", pst_layer_policy),
        ("recompute_ns", c_uint64),
        ("swap_bytes", c_uint64),
    ]


class pst_policy_stage(Structure):
    _fields_ = [
        ("num_pages", c_uint64 * 2),
        ("exposed_ns", c_uint64),
        ("recompute_ns", c_uint64),
        ("bubble_ns", c_uint64),
        ("static_bytes", c_uint64),
        ("pool_bytes", c_uint64),
        ("swap_buffer_bytes", c_uint64),
        ("swapped_bytes", c_uint64),
        ("gpu_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("total_bytes", c_uint64),
        ("link_bytes", c_uint64 * 2),
    ]


class pst_policy(Structure):
    _fields_ = [
        ("fits", c_bool),
        ("is_optimal", c_bool),
        ("is_scarce", c_bool),
        ("one_ring", c_bool),
        ("rule", c_int),
        ("num_sources", c_uint32),
        ("num_destinations", c_uint32),
        ("ahead", c_uint32),
        ("num_streams", c_uint32),
        ("mode", c_int),
        ("num_sets", c_uint32),
        ("page_bytes", c_uint64),
        ("num_pages", c_uint64),
        ("num_host_pages", c_uint64),
        ("exposed_ns", c_uint64),
        ("exposed_bound_ns", c_uint64),
        ("recompute_ns", c_uint64),
        ("makespan_ns", c_uint64),
        ("static_bytes", c_uint64),
        ("sets_bytes", c_uint64),
        ("pool_bytes", c_uint64),
        ("swap_buffer_bytes", c_uint64),
        ("swapped_bytes", c_uint64),
        ("gpu_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("total_bytes", c_uint64),
        ("link_bytes", c_uint64 * 2),
        ("next_exposed_ns", c_uint64),
        ("next_total_bytes", c_uint64),
        ("missing_gpu_bytes", c_uint64),
        ("missing_host_bytes", c_uint64),
        ("evaluations", c_uint64),
    ]


class pst_swap_shape(Structure):
    _fields_ = [
        ("micro_batch", c_uint64),
        ("sequence_size", c_uint64),
        ("hidden_size", c_uint64),
        ("ffn_size", c_uint64),
        ("tensor_parallel", c_uint32),
        ("context_parallel", c_uint32),
        ("element_bytes", c_uint32),
    ]


class pst_swap_config(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("input_bytes", c_uint64),
        ("attention_bytes", c_uint64),
        ("other_bytes", c_uint64),
        ("num_tokens", c_uint64),
        ("block_tokens", c_uint64),
        ("link_bytes_per_second", c_uint64),
        ("forward_nanoseconds", c_uint64),
        ("host_bytes", c_uint64),
        ("num_layers", c_uint32),
        ("padding", c_uint32),
    ]

PST_SWAP_UNLIMITED = 0
PST_SWAP_BY_TIME = 1
PST_SWAP_BY_MEMORY = 2
PST_SWAP_IMPOSSIBLE = 3


class pst_swap_choice(Structure):
    _fields_ = [
        ("limit", c_int),
        ("num_layers", c_uint32),
        ("num", c_uint64),
        ("den", c_uint64),
        ("layer_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("room_bytes", c_uint64),
        ("buffer_bytes", c_uint64),
        ("missing_link_bytes", c_uint64),
        ("missing_nanoseconds", c_uint64),
        ("missing_host_bytes", c_uint64),
    ]


class pst_swap_tensor(Structure):
    _fields_ = [
        ("bytes", c_uint64),
        ("recompute_nanoseconds", c_uint64),
    ]


class pst_swap_filled(Structure):
    _fields_ = [
        ("bytes", c_uint64),
        ("saved_nanoseconds", c_uint64),
        ("bound_nanoseconds", c_uint64),
        ("num_whole", c_uint32),
        ("fractional", c_uint32),
    ]


# name: result, arguments, their names
FUNCTIONS = {
    "pst_version": (c_int, (), ()),
    "pst_status_name": (c_char_p, (c_int,), ('status',)),
    "pst_status_text": (c_char_p, (c_int,), ('status',)),
    "pst_last_message": (c_char_p, (), ()),
    "pst_struct_count": (c_int, (), ()),
    "pst_struct_get": (c_int, (c_int, POINTER(pst_struct_info)), ('index', 'info_out')),
    "pst_struct_find": (c_int, (c_char_p, POINTER(pst_struct_info)), ('name', 'info_out')),
    "pst_env_check": (c_int, (), ()),
    "pst_env_count": (c_int, (), ()),
    "pst_env_get": (c_int, (c_int, POINTER(pst_env_info)), ('index', 'info_out')),
    "pst_log_set_callback": (None, (c_int, pst_log_callback, c_void_p), ('level', 'callback', 'user')),
    "pst_device_open": (c_int, (c_char_p, c_int, POINTER(c_void_p)), ('name', 'index', 'device_out')),
    "pst_device_close": (c_int, (c_void_p,), ('device',)),
    "pst_device_get_info_sized": (c_int, (c_void_p, POINTER(pst_device_info), c_size_t), ('device', 'info_out', 'info_bytes')),
    "pst_device_alloc": (c_int, (c_void_p, c_size_t, POINTER(c_void_p)), ('device', 'bytes', 'address_out')),
    "pst_device_free": (c_int, (c_void_p, c_void_p), ('device', 'address')),
    "pst_device_alloc_pinned": (c_int, (c_void_p, c_size_t, POINTER(c_void_p)), ('device', 'bytes', 'address_out')),
    "pst_device_free_pinned": (c_int, (c_void_p, c_void_p), ('device', 'address')),
    "pst_device_copy": (c_int, (c_void_p, c_void_p, c_void_p, c_size_t, c_void_p), ('device', 'destination', 'source', 'bytes', 'stream')),
    "pst_device_fill": (c_int, (c_void_p, c_void_p, c_uint8, c_size_t, c_void_p), ('device', 'destination', 'value', 'bytes', 'stream')),
    "pst_device_synchronize": (c_int, (c_void_p,), ('device',)),
    "pst_stream_create": (c_int, (c_void_p, POINTER(c_void_p)), ('device', 'stream_out')),
    "pst_stream_destroy": (c_int, (c_void_p, c_void_p), ('device', 'stream')),
    "pst_stream_synchronize": (c_int, (c_void_p, c_void_p), ('device', 'stream')),
    "pst_event_create": (c_int, (c_void_p, POINTER(c_void_p)), ('device', 'event_out')),
    "pst_event_destroy": (c_int, (c_void_p, c_void_p), ('device', 'event')),
    "pst_event_record": (c_int, (c_void_p, c_void_p, c_void_p), ('device', 'event', 'stream')),
    "pst_event_wait": (c_int, (c_void_p, c_void_p, c_void_p), ('device', 'event', 'stream')),
    "pst_event_record_external": (c_int, (c_void_p, c_void_p, c_void_p), ('device', 'event', 'stream')),
    "pst_event_wait_external": (c_int, (c_void_p, c_void_p, c_void_p), ('device', 'event', 'stream')),
    "pst_event_synchronize": (c_int, (c_void_p, c_void_p), ('device', 'event')),
    "pst_event_elapsed": (c_int, (c_void_p, c_void_p, c_void_p, POINTER(c_double)), ('device', 'begin', 'end', 'seconds_out')),
    "pst_graph_begin": (c_int, (c_void_p, c_void_p), ('device', 'stream')),
    "pst_graph_end": (c_int, (c_void_p, c_void_p, POINTER(c_void_p)), ('device', 'stream', 'graph_out')),
    "pst_graph_launch": (c_int, (c_void_p, c_void_p), ('graph', 'stream')),
    "pst_graph_get_info": (c_int, (c_void_p, POINTER(pst_graph_info)), ('graph', 'info_out')),
    "pst_graph_destroy": (c_int, (c_void_p,), ('graph',)),
    "pst_group_create": (c_int, (POINTER(pst_group_config), POINTER(c_void_p)), ('config', 'group_out')),
    "pst_group_destroy": (c_int, (c_void_p,), ('group',)),
    "pst_group_num_counts": (c_uint32, (c_void_p,), ('group',)),
    "pst_group_measure": (c_int, (c_void_p, POINTER(c_int64), c_uint64, POINTER(pst_group_usage)), ('group', 'counts', 'page_bytes', 'usage_out')),
    "pst_dirty_create": (c_int, (c_void_p, c_void_p, c_bool, POINTER(c_void_p)), ('device', 'group', 'tail_is_zero', 'dirty_out')),
    "pst_dirty_destroy": (c_int, (c_void_p,), ('dirty',)),
    "pst_dirty_mark": (c_int, (c_void_p, c_void_p), ('dirty', 'stream')),
    "pst_pool_bytes": (c_int, (POINTER(pst_pool_config), POINTER(c_uint64)), ('config', 'bytes_out')),
    "pst_pool_create": (c_int, (c_void_p, POINTER(pst_pool_config), POINTER(c_void_p)), ('device', 'config', 'pool_out')),
    "pst_pool_destroy": (c_int, (c_void_p,), ('pool',)),
    "pst_pool_resize": (c_int, (c_void_p, c_uint64, c_uint64), ('pool', 'num_pages', 'num_host_pages')),
    "pst_pool_get_info_sized": (c_int, (c_void_p, POINTER(pst_pool_info), c_size_t), ('pool', 'info_out', 'info_bytes')),
    "pst_pool_reset": (c_int, (c_void_p, c_uint32, c_void_p), ('pool', 'what', 'stream')),
    "pst_pool_step": (c_int, (c_void_p, c_void_p), ('pool', 'stream')),
    "pst_pool_poll": (c_int, (c_void_p, POINTER(pst_pool_status)), ('pool', 'status_out')),
    "pst_pool_recommend_pages": (c_int, (POINTER(pst_pool_status), c_int, POINTER(c_uint64)), ('status', 'share', 'pages_out')),
    "pst_pool_check": (c_int, (c_void_p, c_void_p), ('pool', 'stream')),
    "pst_pool_step_valid": (POINTER(c_int32), (c_void_p,), ('pool',)),
    "pst_fault_text": (c_char_p, (c_int,), ('fault',)),
    "pst_ticket_bytes": (c_int, (c_void_p, c_void_p, POINTER(c_uint64)), ('pool', 'group', 'bytes_out')),
    "pst_ticket_create": (c_int, (c_void_p, c_void_p, POINTER(pst_ticket)), ('pool', 'group', 'ticket_out')),
    "pst_ticket_destroy": (c_int, (pst_ticket,), ('ticket',)),
    "pst_ticket_take": (c_int, (c_void_p, c_void_p, POINTER(pst_ticket)), ('pool', 'stream', 'ticket_out')),
    "pst_ticket_give": (c_int, (pst_ticket, c_void_p), ('ticket', 'stream')),
    "pst_ticket_index": (c_uint32, (pst_ticket,), ('ticket',)),
    "pst_ticket_set_offload": (c_int, (pst_ticket, c_uint32, c_uint32), ('ticket', 'num', 'den')),
    "pst_ticket_stash": (c_int, (pst_ticket, c_void_p, POINTER(pst_buffers), POINTER(pst_stash_options), c_void_p), ('ticket', 'group', 'source', 'options', 'stream')),
    "pst_ticket_restore": (c_int, (pst_ticket, c_void_p, POINTER(pst_buffers), POINTER(pst_restore_options), c_void_p), ('ticket', 'group', 'destination', 'options', 'stream')),
    "pst_ticket_demote": (c_int, (pst_ticket, POINTER(pst_migrate_options), c_void_p), ('ticket', 'options', 'stream')),
    "pst_ticket_promote": (c_int, (pst_ticket, POINTER(pst_migrate_options), c_void_p), ('ticket', 'options', 'stream')),
    "pst_ticket_release": (c_int, (pst_ticket, c_void_p), ('ticket', 'stream')),
    "pst_schedule_create": (c_int, (POINTER(pst_schedule_config), POINTER(c_void_p)), ('config', 'schedule_out')),
    "pst_schedule_destroy": (None, (c_void_p,), ('schedule',)),
    "pst_schedule_get_info_sized": (c_int, (c_void_p, POINTER(pst_schedule_info), c_size_t), ('schedule', 'info_out', 'info_bytes')),
    "pst_schedule_get_pass": (c_int, (c_void_p, c_uint64, POINTER(pst_pass)), ('schedule', 'n', 'pass_out')),
    "pst_schedule_get_slots": (c_int, (c_void_p, c_uint32, POINTER(c_uint32)), ('schedule', 'chunk', 'num_slots_out')),
    "pst_schedule_slot": (c_uint32, (c_void_p, c_uint32, c_uint32), ('schedule', 'chunk', 'micro_batch')),
    "pst_schedule_recognise_sized": (c_int, (POINTER(pst_pass), c_uint64, c_uint32, c_uint32, POINTER(pst_schedule_config), c_size_t), ('passes', 'num_passes', 'num_stages', 'stage', 'config_out', 'config_bytes')),
    "pst_glu_forward": (c_int, (c_void_p, POINTER(pst_glu), pst_ticket, c_void_p, POINTER(pst_buffers), POINTER(pst_glu_operands), POINTER(pst_stash_options), c_void_p), ('device', 'glu', 'ticket', 'group', 'source', 'operands', 'options', 'stream')),
    "pst_glu_backward": (c_int, (c_void_p, POINTER(pst_glu), pst_ticket, c_void_p, POINTER(pst_buffers), POINTER(pst_glu_operands), POINTER(pst_restore_options), c_void_p), ('device', 'glu', 'ticket', 'group', 'buffers', 'operands', 'options', 'stream')),
    "pst_scratch_create": (c_int, (c_void_p, POINTER(pst_scratch_config), POINTER(c_void_p)), ('device', 'config', 'scratch_out')),
    "pst_scratch_destroy": (c_int, (c_void_p,), ('scratch',)),
    "pst_scratch_reserve": (c_int, (c_void_p, c_char_p, c_uint64), ('scratch', 'name', 'bytes')),
    "pst_scratch_trim": (c_int, (c_void_p,), ('scratch',)),
    "pst_scratch_lease": (c_int, (c_void_p, c_char_p, c_uint64, c_char_p, c_void_p, POINTER(pst_lease)), ('scratch', 'name', 'bytes', 'place', 'stream', 'lease_out')),
    "pst_scratch_release": (c_int, (c_void_p, POINTER(pst_lease), c_char_p, c_void_p), ('scratch', 'lease', 'place', 'stream')),
    "pst_scratch_scope_begin": (c_int, (c_void_p, c_char_p), ('scratch', 'place')),
    "pst_scratch_scope_end": (c_int, (c_void_p,), ('scratch',)),
    "pst_scratch_get_info_sized": (c_int, (c_void_p, POINTER(pst_scratch_info), c_size_t), ('scratch', 'info_out', 'info_bytes')),
    "pst_scheduler_bytes": (c_int, (POINTER(pst_scheduler_config), POINTER(c_uint64), POINTER(c_uint64)), ('config', 'device_bytes_out', 'host_bytes_out')),
    "pst_scheduler_create": (c_int, (POINTER(pst_scheduler_config), POINTER(c_void_p)), ('config', 'scheduler_out')),
    "pst_scheduler_destroy": (c_int, (c_void_p,), ('scheduler',)),
    "pst_scheduler_step_begin": (c_int, (c_void_p, POINTER(pst_step_options), c_void_p), ('scheduler', 'options', 'stream')),
    "pst_scheduler_step_end": (c_int, (c_void_p, c_void_p), ('scheduler', 'stream')),
    "pst_scheduler_abort": (c_int, (c_void_p, c_void_p), ('scheduler', 'stream')),
    "pst_scheduler_forward_begin": (c_int, (c_void_p, c_uint32, c_uint32, c_uint32, c_void_p, POINTER(pst_visit)), ('scheduler', 'chunk', 'layer', 'micro_batch', 'stream', 'visit_out')),
    "pst_scheduler_forward_part": (c_int, (c_void_p, c_uint32, c_uint32, c_uint32, c_uint32, POINTER(pst_buffers), c_void_p), ('scheduler', 'chunk', 'layer', 'micro_batch', 'part', 'source', 'stream')),
    "pst_scheduler_forward_end": (c_int, (c_void_p, c_uint32, c_uint32, c_uint32, POINTER(POINTER(pst_buffers)), c_void_p), ('scheduler', 'chunk', 'layer', 'micro_batch', 'sources', 'stream')),
    "pst_scheduler_backward_begin": (c_int, (c_void_p, c_int, c_uint32, c_uint32, c_uint32, c_void_p, POINTER(pst_visit)), ('scheduler', 'kind', 'chunk', 'layer', 'micro_batch', 'stream', 'visit_out')),
    "pst_scheduler_backward_end": (c_int, (c_void_p, c_int, c_uint32, c_uint32, c_uint32, c_void_p), ('scheduler', 'kind', 'chunk', 'layer', 'micro_batch', 'stream')),
    "pst_scheduler_get_ticket": (c_int, (c_void_p, c_int, c_uint32, c_uint32, c_uint32, c_uint32, POINTER(pst_ticket), POINTER(c_int)), ('scheduler', 'kind', 'chunk', 'layer', 'slot', 'part', 'ticket_out', 'pages_out')),
    "pst_scheduler_layer_capture_begin": (c_int, (c_void_p, c_int, c_uint32, c_uint32, c_uint32, POINTER(pst_layer_buffers), c_void_p, POINTER(pst_visit)), ('scheduler', 'kind', 'chunk', 'layer', 'slot', 'own', 'stream', 'visit_out')),
    "pst_scheduler_layer_capture_end": (c_int, (c_void_p, c_int, c_uint32, c_uint32, c_uint32, c_void_p), ('scheduler', 'kind', 'chunk', 'layer', 'slot', 'stream')),
    "pst_scheduler_set_schedule": (c_int, (c_void_p, c_void_p), ('scheduler', 'schedule')),
    "pst_scheduler_get_schedule_sized": (c_int, (c_void_p, POINTER(pst_schedule_config), c_size_t), ('scheduler', 'config_out', 'config_bytes')),
    "pst_scheduler_get_stats_sized": (c_int, (c_void_p, POINTER(pst_scheduler_stats), c_size_t), ('scheduler', 'stats_out', 'stats_bytes')),
    "pst_scheduler_get_digest": (c_int, (c_void_p, POINTER(c_uint64)), ('scheduler', 'digest_out')),
    "pst_simulate_sized": (c_int, (POINTER(pst_simulation_config), POINTER(pst_simulation), c_size_t, POINTER(pst_stage_result), c_size_t), ('config', 'simulation_out', 'simulation_bytes', 'stages_out', 'stage_bytes')),
    "pst_policy_solve_sized": (c_int, (POINTER(pst_policy_config), POINTER(pst_policy), c_size_t, POINTER(pst_layer_choice), POINTER(pst_policy_stage), c_size_t), ('config', 'policy_out', 'policy_bytes', 'choices_out', 'stages_out', 'stage_bytes')),
    "pst_swap_model": (c_int, (POINTER(pst_swap_shape), POINTER(pst_swap_config)), ('shape', 'config')),
    "pst_swap_choose_sized": (c_int, (POINTER(pst_swap_config), POINTER(pst_swap_choice), c_size_t), ('config', 'choice_out', 'choice_bytes')),
    "pst_swap_fill": (c_int, (POINTER(pst_swap_tensor), c_uint32, c_uint64, c_uint64, c_uint64, POINTER(c_uint64), POINTER(pst_swap_filled)), ('tensors', 'num_tensors', 'budget_bytes', 'num_tokens', 'block_tokens', 'tokens', 'filled_out')),
}

STRUCTS = (pst_struct_info, pst_env_info, pst_device_info, pst_graph_info, pst_row_space, pst_tensor, pst_group_config, pst_buffers, pst_group_usage, pst_pool_config, pst_pool_status, pst_pool_info, pst_ticket, pst_launch_options, pst_stash_options, pst_restore_options, pst_migrate_options, pst_pass, pst_schedule_config, pst_schedule_info, pst_layer_policy, pst_glu, pst_glu_rows, pst_glu_operands, pst_scratch_config, pst_lease, pst_scratch_info, pst_part, pst_layer, pst_visit_key, pst_scheduler_config, pst_visit, pst_step_options, pst_scheduler_stats, pst_layer_buffers, pst_times, pst_simulated_layer, pst_simulated_rates, pst_simulated_event, pst_simulation_config, pst_stage_result, pst_simulation, pst_policy_layer, pst_policy_config, pst_layer_choice, pst_policy_stage, pst_policy, pst_swap_shape, pst_swap_config, pst_swap_choice, pst_swap_tensor, pst_swap_filled)
