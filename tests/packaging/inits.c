/* A program in C or C++ that uses every _INIT macro. */
#include <pagestash/pagestash.h>

#include <stdio.h>
#include <string.h>

#define EACH_INIT(X)                                     \
    X(pst_arena_config, PST_ARENA_CONFIG_INIT)           \
    X(pst_calibrate_config, PST_CALIBRATE_CONFIG_INIT)   \
    X(pst_estimate_config, PST_ESTIMATE_CONFIG_INIT)     \
    X(pst_group_config, PST_GROUP_CONFIG_INIT)           \
    X(pst_memory_map_config, PST_MEMORY_MAP_CONFIG_INIT) \
    X(pst_migrate_options, PST_MIGRATE_OPTIONS_INIT)     \
    X(pst_plan_config, PST_PLAN_CONFIG_INIT)             \
    X(pst_plan_problem, PST_PLAN_PROBLEM_INIT)           \
    X(pst_pool_config, PST_POOL_CONFIG_INIT)             \
    X(pst_restore_options, PST_RESTORE_OPTIONS_INIT)     \
    X(pst_stash_options, PST_STASH_OPTIONS_INIT)         \
    X(pst_swap_config, PST_SWAP_CONFIG_INIT)             \
    X(pst_trace_config, PST_TRACE_CONFIG_INIT)           \
    X(pst_trace_derivation, PST_TRACE_DERIVATION_INIT)   \
    X(pst_trace_expansion, PST_TRACE_EXPANSION_INIT)

#define GLOBAL(type, init) static const type global_##type = init;
EACH_INIT(GLOBAL)

int main(void)
{
    int num_bad = 0;
    pst_trace *trace = NULL;
    pst_group *group = NULL;
    pst_device *device = NULL;
    pst_pool_config pool = PST_POOL_CONFIG_INIT;
    uint64_t bytes = 0;
#define CHECK(type, init)                                     \
    {                                                         \
        const type local = init;                              \
        num_bad += local.struct_size != sizeof(type);         \
        num_bad += global_##type.struct_size != sizeof(type); \
    }
    EACH_INIT(CHECK)
    pool.num_pages = 1;
    num_bad += pst_pool_bytes(&pool, &bytes) != PST_OK;
    num_bad += pst_trace_derive(&global_pst_trace_derivation, &trace) != PST_OK;
    pst_trace_destroy(trace);
    /* as far as the elements' sizes are right */
    num_bad += pst_device_open("host", 0, &device) != PST_OK;
    num_bad += pst_group_create(device, &global_pst_group_config, &group) != PST_E_INVALID;
    num_bad += strncmp(pst_last_message(), "spaces or tensors is NULL", 25) != 0;
    num_bad += pst_device_close(device) != PST_OK;
    printf("%d bad: %s\n", num_bad, pst_last_message());
    return num_bad != 0;
}
