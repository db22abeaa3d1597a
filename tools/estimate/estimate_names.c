/* Words for transfers and for who takes part in them. */
#include "tools/estimate/estimate_report.h"

const char *estimate_parallel_name(pst_parallel parallel)
{
    static const char *const names[PST_NUM_PARALLELS] = {
        [PST_PARALLEL_TENSOR] = "tensor",
        [PST_PARALLEL_CONTEXT] = "context",
        [PST_PARALLEL_DATA] = "data",
        [PST_PARALLEL_REPLICA] = "data x context",
        [PST_PARALLEL_PIPELINE] = "pipeline",
        [PST_PARALLEL_EXPERT] = "expert",
        [PST_PARALLEL_EXPERT_TENSOR] = "expert tensor",
        [PST_PARALLEL_EXPERT_REPLICA] = "expert data",
        [PST_PARALLEL_EMBEDDING] = "embedding",
    };
    return names[parallel];
}

const char *estimate_transfer_name(pst_transfer transfer)
{
    static const char *const names[] = {
        [PST_TRANSFER_ALL_REDUCE] = "all-reduce",
        [PST_TRANSFER_ALL_GATHER] = "all-gather",
        [PST_TRANSFER_REDUCE_SCATTER] = "reduce-scatter",
        [PST_TRANSFER_ALL_TO_ALL] = "all-to-all",
        [PST_TRANSFER_SEND] = "send",
        [PST_TRANSFER_RECEIVE] = "receive",
    };
    return names[transfer];
}
