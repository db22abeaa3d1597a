/* Structs whose size the caller says (api.h): what is taken from older callers, what they get. */
#ifndef PSTI_HOST_STRUCTS_H
#define PSTI_HOST_STRUCTS_H

#include <pagestash/pagestash.h>

#include "host/base/base.h"

/* All public structs stand in one of two lists; tests/packaging/abi.xml has their fields.
 * X(struct, bytes it had in version 0.1): those that can grow. New fields go to the end of a struct,
 * at or after this many bytes: older callers have only padding before that. */
#define PSTI_GROWING_STRUCTS(X)   \
    X(pst_arena_config, 88)       \
    X(pst_arena_stats, 432)       \
    X(pst_buffers, 48)            \
    X(pst_calibrate_config, 32)   \
    X(pst_comm_config, 152)       \
    X(pst_comm_info, 24)          \
    X(pst_device_info, 168)       \
    X(pst_estimate_config, 496)   \
    X(pst_estimate_gaps, 200)     \
    X(pst_estimate_ledger, 984)   \
    X(pst_estimate_linears, 504)  \
    X(pst_estimate_memory, 216)   \
    X(pst_estimate_modules, 3624) \
    X(pst_estimate_moe, 136)      \
    X(pst_estimate_params, 88)    \
    X(pst_estimate_traffic, 1544) \
    X(pst_exchange, 80)           \
    X(pst_glu, 32)                \
    X(pst_glu_operands, 128)      \
    X(pst_gpu, 144)               \
    X(pst_group_config, 40)       \
    X(pst_layer, 96)              \
    X(pst_layer_buffers, 24)      \
    X(pst_linear_config, 96)      \
    X(pst_linear_operands, 72)    \
    X(pst_memory_map, 232)        \
    X(pst_memory_map_config, 144) \
    X(pst_migrate_options, 40)    \
    X(pst_mlp_config, 40)         \
    X(pst_mlp_operands, 192)      \
    X(pst_part, 40)               \
    X(pst_plan, 96)               \
    X(pst_plan_block, 24)         \
    X(pst_plan_config, 64)        \
    X(pst_plan_problem, 88)       \
    X(pst_plan_tensor, 40)        \
    X(pst_policy, 208)            \
    X(pst_policy_config, 144)     \
    X(pst_policy_layer, 64)       \
    X(pst_policy_stage, 112)      \
    X(pst_pool_config, 112)       \
    X(pst_pool_info, 136)         \
    X(pst_product, 200)           \
    X(pst_restore_options, 48)    \
    X(pst_row_space, 24)          \
    X(pst_schedule_config, 56)    \
    X(pst_schedule_info, 120)     \
    X(pst_scheduler_config, 184)  \
    X(pst_scheduler_stats, 208)   \
    X(pst_scratch_config, 16)     \
    X(pst_scratch_info, 56)       \
    X(pst_simulated_layer, 256)   \
    X(pst_simulation, 272)        \
    X(pst_simulation_config, 200) \
    X(pst_stage_result, 376)      \
    X(pst_stash_options, 24)      \
    X(pst_step_config, 32)        \
    X(pst_step_options, 16)       \
    X(pst_step_prediction, 128)   \
    X(pst_step_times, 200)        \
    X(pst_step_work, 4128)        \
    X(pst_swap_choice, 80)        \
    X(pst_swap_config, 80)        \
    X(pst_tensor, 48)             \
    X(pst_trace_config, 48)       \
    X(pst_trace_derivation, 96)   \
    X(pst_trace_expansion, 64)    \
    X(pst_trace_summary, 88)

/* X(struct): those that are frozen. */
#define PSTI_FROZEN_STRUCTS(X)    \
    X(pst_comm_id)                \
    X(pst_copy_choice)            \
    X(pst_copy_rate)              \
    X(pst_copy_rates)             \
    X(pst_env_info)               \
    X(pst_estimate_buffer)        \
    X(pst_estimate_entry)         \
    X(pst_estimate_gap)           \
    X(pst_estimate_event)         \
    X(pst_estimate_fault)         \
    X(pst_estimate_linear)        \
    X(pst_estimate_module)        \
    X(pst_estimate_op)            \
    X(pst_estimate_process_group) \
    X(pst_estimate_states)        \
    X(pst_glu_rows)               \
    X(pst_graph_info)             \
    X(pst_group_usage)            \
    X(pst_launch_options)         \
    X(pst_layer_choice)           \
    X(pst_layer_policy)           \
    X(pst_lease)                  \
    X(pst_linear_bytes)           \
    X(pst_matrix)                 \
    X(pst_pass)                   \
    X(pst_pattern)                \
    X(pst_plan_fault)             \
    X(pst_plan_range)             \
    X(pst_plan_row)               \
    X(pst_pool_status)            \
    X(pst_region)                 \
    X(pst_simulated_event)        \
    X(pst_simulated_rates)        \
    X(pst_step_amount)            \
    X(pst_step_op)                \
    X(pst_step_pass)              \
    X(pst_step_stage)             \
    X(pst_struct_info)            \
    X(pst_swap_filled)            \
    X(pst_swap_shape)             \
    X(pst_swap_tensor)            \
    X(pst_ticket)                 \
    X(pst_times)                  \
    X(pst_trace_pass)             \
    X(pst_trace_request)          \
    X(pst_trace_tensor)           \
    X(pst_visit)                  \
    X(pst_visit_key)

enum {
#define PSTI_FIRST_BYTES(type, bytes) psti_first_bytes_##type = (bytes),
    PSTI_GROWING_STRUCTS(PSTI_FIRST_BYTES)
#undef PSTI_FIRST_BYTES
};

/* Whether first <= bytes <= known. what: "struct_size", or the name of the field or argument. */
pst_status psti_check_size(const char *what, uint64_t bytes, const char *type, size_t first,
                           size_t known);

/* Copies a struct that begins with struct_size into a zeroed one of `known` bytes. */
pst_status psti_take_struct(void *to, const void *from, const char *type, size_t first,
                            size_t known);

/* Element i of an array whose elements have `bytes` each, into a zeroed whole one. */
void psti_take_element(void *to, const void *array, uint64_t i, size_t bytes);

/* Declares `name`, a whole struct with what the caller's has. */
#define PSTI_TAKE(type, name, from) \
    type name = {0};                \
    PSTI_TRY(psti_take_struct(&(name), from, #type, psti_first_bytes_##type, sizeof(type)))

/* The same of options, which may be NULL. */
#define PSTI_TAKE_OPTIONS(type, name, from)    \
    type name = {.struct_size = sizeof(type)}; \
    if (from)                                  \
    PSTI_TRY(psti_take_struct(&(name), from, #type, psti_first_bytes_##type, sizeof(type)))

/* Of an argument; of a field. */
#define PSTI_CHECK_SIZE(type, bytes) \
    psti_check_size(#bytes, bytes, #type, psti_first_bytes_##type, sizeof(type))
#define PSTI_CHECK_SIZE_IN(type, config, field) \
    psti_check_size(#field, (config)->field, #type, psti_first_bytes_##type, sizeof(type))

#endif
