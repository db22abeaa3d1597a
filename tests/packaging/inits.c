/* A program in C or C++ that uses every _INIT macro. */
#include <pagestash/pagestash.h>

#include <stdio.h>
#include <string.h>

#define EACH_INIT(X)                                     \
    X(pst_arena_config, PST_ARENA_CONFIG_INIT)           \
    X(pst_buffers, PST_BUFFERS_INIT)                     \
    X(pst_calibrate_config, PST_CALIBRATE_CONFIG_INIT)   \
    X(pst_comm_config, PST_COMM_CONFIG_INIT)             \
    X(pst_estimate_config, PST_ESTIMATE_CONFIG_INIT)     \
    X(pst_exchange, PST_EXCHANGE_INIT)                   \
    X(pst_layer_buffers, PST_LAYER_BUFFERS_INIT)         \
    X(pst_linear_config, PST_LINEAR_CONFIG_INIT)         \
    X(pst_linear_operands, PST_LINEAR_OPERANDS_INIT)     \
    X(pst_mlp_config, PST_MLP_CONFIG_INIT)               \
    X(pst_mlp_operands, PST_MLP_OPERANDS_INIT)           \
    X(pst_memory_map_config, PST_MEMORY_MAP_CONFIG_INIT) \
    X(pst_glu, PST_GLU_INIT)                             \
    X(pst_glu_operands, PST_GLU_OPERANDS_INIT)           \
    X(pst_gpu, PST_GPU_INIT)                             \
    X(pst_migrate_options, PST_MIGRATE_OPTIONS_INIT)     \
    X(pst_plan_config, PST_PLAN_CONFIG_INIT)             \
    X(pst_policy_layer, PST_POLICY_LAYER_INIT)           \
    X(pst_pool_config, PST_POOL_CONFIG_INIT)             \
    X(pst_product, PST_PRODUCT_INIT)                     \
    X(pst_restore_options, PST_RESTORE_OPTIONS_INIT)     \
    X(pst_schedule_config, PST_SCHEDULE_CONFIG_INIT)     \
    X(pst_scratch_config, PST_SCRATCH_CONFIG_INIT)       \
    X(pst_simulated_layer, PST_SIMULATED_LAYER_INIT)     \
    X(pst_stash_options, PST_STASH_OPTIONS_INIT)         \
    X(pst_step_config, PST_STEP_CONFIG_INIT)             \
    X(pst_step_options, PST_STEP_OPTIONS_INIT)           \
    X(pst_swap_config, PST_SWAP_CONFIG_INIT)             \
    X(pst_trace_config, PST_TRACE_CONFIG_INIT)           \
    X(pst_trace_derivation, PST_TRACE_DERIVATION_INIT)   \
    X(pst_trace_expansion, PST_TRACE_EXPANSION_INIT)

/* Of structs with the sizes of one, and of two element types. */
#define EACH_INIT_1(X) \
    X(pst_simulation_config, PST_SIMULATION_CONFIG_INIT, layer_bytes, pst_simulated_layer)
#define EACH_INIT_2(X)                                                                         \
    X(pst_group_config, PST_GROUP_CONFIG_INIT, space_bytes, pst_row_space, tensor_bytes,       \
      pst_tensor)                                                                              \
    X(pst_plan_problem, PST_PLAN_PROBLEM_INIT, tensor_bytes, pst_plan_tensor, block_bytes,     \
      pst_plan_block)                                                                          \
    X(pst_policy_config, PST_POLICY_CONFIG_INIT, layer_bytes, pst_policy_layer, routing_bytes, \
      pst_simulated_layer)                                                                     \
    X(pst_scheduler_config, PST_SCHEDULER_CONFIG_INIT, layer_bytes, pst_layer, part_bytes, pst_part)

#define GLOBAL(type, init) static const type global_##type = init;
#define GLOBAL_2(type, init, ...) static const type global_##type = init;
EACH_INIT(GLOBAL)
EACH_INIT_1(GLOBAL_2)
EACH_INIT_2(GLOBAL_2)

/* Whether nothing but the sizes is set. */
static int is_right(const void *made, const void *wanted, size_t bytes, const char *type)
{
    if (memcmp(made, wanted, bytes) != 0)
        printf("%s is not what it should be\n", type);
    return memcmp(made, wanted, bytes) == 0;
}

int main(void)
{
    int num_bad = 0;
    pst_trace *trace = NULL;
    pst_group *group = NULL;
    pst_pool_config pool = PST_POOL_CONFIG_INIT;
    uint64_t bytes = 0;
#define WANT(type, set)                                           \
    type wanted;                                                  \
    memset(&wanted, 0, sizeof(type));                             \
    wanted.struct_size = sizeof(type);                            \
    set;                                                          \
    num_bad += !is_right(&local, &wanted, sizeof(type), #type) || \
               !is_right(&global_##type, &wanted, sizeof(type), #type);
#define CHECK(type, init)        \
    {                            \
        const type local = init; \
        WANT(type, (void)0)      \
    }
#define CHECK_1(type, init, a, of_a)        \
    {                                       \
        const type local = init;            \
        WANT(type, wanted.a = sizeof(of_a)) \
    }
#define CHECK_2(type, init, a, of_a, b, of_b)                        \
    {                                                                \
        const type local = init;                                     \
        WANT(type, wanted.a = sizeof(of_a); wanted.b = sizeof(of_b)) \
    }
    EACH_INIT(CHECK)
    EACH_INIT_1(CHECK_1)
    EACH_INIT_2(CHECK_2)
    const pst_plan_tensor tensor = PST_PLAN_TENSOR_INIT;
    num_bad += tensor.bytes != 0 || tensor.begin != 0 || tensor.end != 0 || tensor.stream != 0;
    num_bad += tensor.pin != PST_PLAN_FREE || tensor.block != PST_PLAN_NO_BLOCK;
    pst_status (*const check)(const pst_swap_config *, pst_swap_choice *) = pst_swap_choose;
    num_bad += check(NULL, NULL) != PST_E_INVALID; /* also of inline functions */
    pool.num_pages = 1;
    num_bad += pst_pool_bytes(&pool, &bytes) != PST_OK;
    num_bad += pst_trace_derive(&global_pst_trace_derivation, &trace) != PST_OK;
    pst_trace_destroy(trace);
    /* as far as the elements' sizes are right */
    num_bad += pst_group_create(&global_pst_group_config, &group) != PST_E_INVALID;
    num_bad += strncmp(pst_last_message(), "spaces or tensors is NULL", 25) != 0;
    printf("%d bad: %s\n", num_bad, pst_last_message());
    return num_bad != 0;
}
