/* Who belongs to whom: every group is an arithmetic progression of ranks. */
#include "host/estimate/estimate.h"

#include <inttypes.h>

/* GPUs `stride` apart, `size` of them, of which rank is one. */
static pst_estimate_process_group group_at(uint64_t rank, uint64_t stride, uint64_t size)
{
    const uint64_t index = rank / stride % size;
    return (pst_estimate_process_group){
        .first = rank - index * stride, .stride = stride, .size = size};
}

pst_estimate_process_group psti_group_of(const pst_estimate_config *config, pst_parallel parallel,
                                         uint64_t rank)
{
    const uint64_t tensor = config->tensor_parallel, context = config->context_parallel;
    const uint64_t expert_tensor = config->expert_tensor_parallel;
    const uint64_t replicas = psti_estimate_dense_group(config);
    const uint64_t stage_size = config->world_size / config->pipeline_parallel;
    switch (parallel) {
    case PST_PARALLEL_TENSOR:
        return group_at(rank, 1, tensor);
    case PST_PARALLEL_CONTEXT:
        return group_at(rank, tensor, context);
    case PST_PARALLEL_DATA:
        return group_at(rank, tensor * context, replicas / context);
    case PST_PARALLEL_REPLICA:
        return group_at(rank, tensor, replicas);
    case PST_PARALLEL_PIPELINE:
        return group_at(rank, stage_size, config->pipeline_parallel);
    case PST_PARALLEL_EXPERT:
        return group_at(rank, expert_tensor, config->expert_parallel);
    case PST_PARALLEL_EXPERT_TENSOR:
        return group_at(rank, 1, expert_tensor);
    case PST_PARALLEL_EXPERT_REPLICA:
        return group_at(rank, expert_tensor * config->expert_parallel,
                        psti_estimate_expert_group(config));
    default: /* the embedding: checked to be of the first or last stage */
        return (pst_estimate_process_group){.first = rank % stage_size,
                                            .stride = stage_size * (config->pipeline_parallel - 1),
                                            .size = 2};
    }
}

static bool is_of_experts(pst_parallel parallel)
{
    return parallel == PST_PARALLEL_EXPERT || parallel == PST_PARALLEL_EXPERT_TENSOR ||
           parallel == PST_PARALLEL_EXPERT_REPLICA;
}

static pst_status check_embedding(const pst_estimate_config *config, uint64_t rank)
{
    const uint64_t stage = rank / (config->world_size / config->pipeline_parallel);
    PSTI_CHECK(psti_copies_embedding(config), PST_E_INVALID,
               "embedding group: is_tied is %d, mtp_layers %" PRIu64 ", pipeline_parallel %" PRIu64,
               config->is_tied, config->mtp_layers, config->pipeline_parallel);
    PSTI_CHECK(stage == 0 || stage == config->pipeline_parallel - 1, PST_E_INVALID,
               "rank %" PRIu64 ": is of stage %" PRIu64 ", neither the first nor the last", rank,
               stage);
    return PST_OK;
}

pst_status pst_estimate_get_process_group(const pst_estimate_config *given, pst_parallel parallel,
                                          uint64_t rank, pst_estimate_process_group *group_out)
{
    pst_estimate_config config;
    PSTI_TRY(psti_estimate_open(given, &config));
    PSTI_CHECK(group_out, PST_E_INVALID, "group_out is NULL");
    PSTI_CHECK(parallel >= PST_PARALLEL_TENSOR && parallel < PST_NUM_PARALLELS, PST_E_INVALID,
               "parallel %d: allowed are 0 to %d", (int)parallel, PST_NUM_PARALLELS - 1);
    PSTI_CHECK(rank < config.world_size, PST_E_INVALID, "rank %" PRIu64 ": world_size is %" PRIu64,
               rank, config.world_size);
    PSTI_CHECK(!is_of_experts(parallel) || config.num_experts != 0, PST_E_INVALID,
               "parallel %d: num_experts is 0", (int)parallel);
    if (parallel == PST_PARALLEL_EMBEDDING)
        PSTI_TRY(check_embedding(&config, rank));
    *group_out = psti_group_of(&config, parallel, rank);
    return PST_OK;
}
