/* Transfers in a report's tree: those of a GPU of each stage, of all GPUs, and who takes part. */
#include "host/base/arith.h"
#include "tools/estimate/estimate_flags.h"

#include <string.h>

/* By pst_parallel and pst_transfer. */
static const char parallel_names[] =
    "tensor|context|data|data x context|pipeline|expert|expert tensor|"
    "expert data|embedding";
static const char transfer_names[] = "all-reduce|all-gather|reduce-scatter|all-to-all|send|receive";

/* ---- of a GPU of each stage ---- */

static json_t *op_value(uint64_t stage, uint64_t num_micro_batches, const pst_estimate_op *op)
{
    char word[ESTIMATE_WORD];
    const bool is_even = op->count % num_micro_batches == 0;
    json_t *item = ESTIMATE_ITEM("op", op->name, {"stage", stage}, {"group_size", op->group_size},
                                 {"count", op->count}, {"payload_bytes", op->payload_bytes},
                                 {"wire_bytes", op->wire_bytes});
    json_put_text(&item, "transfer", estimate_word(transfer_names, op->transfer, word));
    json_put_text(&item, "group", estimate_word(parallel_names, op->parallel, word));
    json_put(&item, "count_per_micro_batch",
             is_even ? json_integer((json_int_t)(op->count / num_micro_batches)) : json_null());
    return item;
}

/* ---- who takes part ---- */

/* The lists of a kind's ranks; all ranks are gone through. */
static json_t *members_value(const pst_estimate_config *config, pst_parallel parallel)
{
    const bool is_embedding = parallel == PST_PARALLEL_EMBEDDING;
    const uint64_t end = config->world_size / (is_embedding ? config->pipeline_parallel : 1);
    pst_estimate_process_group group;
    json_t *list = json_array();
    for (uint64_t rank = 0; rank < end; rank++) {
        if (pst_estimate_get_process_group(config, parallel, rank, &group) != PST_OK ||
            group.first != rank)
            continue;
        json_t *members = json_array();
        for (uint64_t i = 0; i < group.size; i++)
            json_add(&members, json_integer((json_int_t)(group.first + i * group.stride)));
        json_add(&list, members);
    }
    return list;
}

static json_t *groups_value(const estimate_options *options)
{
    const pst_estimate_config *config = &options->config;
    char word[ESTIMATE_WORD];
    json_t *list = json_array();
    for (pst_parallel parallel = 0; parallel < PST_NUM_PARALLELS; parallel++) {
        pst_estimate_process_group group;
        if (pst_estimate_get_process_group(config, parallel, 0, &group) != PST_OK ||
            group.size == 1)
            continue;
        json_t *item = ESTIMATE_ITEM("group", estimate_word(parallel_names, parallel, word),
                                     {"size", group.size}, {"stride", group.stride});
        json_put(&item, "members",
                 options->lists_members ? members_value(config, parallel) : json_null());
        json_add(&list, item);
    }
    return list;
}

/* ---- of all GPUs ---- */

/* A kind of transfer over all GPUs. */
typedef struct total {
    const pst_estimate_op *op; /* of one stage that has it */
    psti_wide num_transfers;   /* collectives, each counted once; or messages */
    psti_wide wire_bytes;
} total;

/* null where JSON's readers would lose digits; the GiB, rounded down, are there in any case. A GPU's
 * bytes times 2^31 GPUs are below 2^94. */
static void put_wire(json_t **object, psti_wide bytes)
{
    json_put(object, "wire_bytes",
             bytes <= INT64_MAX ? json_integer((json_int_t)bytes) : json_null());
    json_put_whole(object, "wire_gib", (uint64_t)(bytes >> 30));
}

/* Stages are as many GPUs each. A group's GPUs are all of one stage, but those of a tied embedding,
 * which are of two and count it in both. */
static uint32_t add_totals(const pst_estimate_config *config, const estimate_stage *stages,
                           total totals[PST_ESTIMATE_MAX_OPS])
{
    const uint64_t num_stages = config->pipeline_parallel ? config->pipeline_parallel : 1;
    const uint64_t ranks = config->world_size / num_stages;
    uint32_t num = 0;
    for (uint64_t s = 0; s < num_stages; s++)
        for (uint32_t i = 0; i < stages[s].traffic.num_ops; i++) {
            const pst_estimate_op *op = &stages[s].traffic.ops[i];
            uint32_t at = 0;
            while (at < num && strcmp(totals[at].op->name, op->name) != 0)
                at++;
            if (at == num)
                totals[num++] = (total){.op = op};
            totals[at].num_transfers += (psti_wide)op->count * ranks;
            totals[at].wire_bytes += (psti_wide)op->wire_bytes * ranks;
        }
    return num;
}

static json_t *totals_value(const total *totals, uint32_t num, psti_wide *sent)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < num; i++) {
        const pst_estimate_op *op = totals[i].op;
        /* who take part count it; a message its sender, and who receives it has another entry */
        const bool is_message =
            op->transfer == PST_TRANSFER_SEND || op->transfer == PST_TRANSFER_RECEIVE;
        const psti_wide transfers = totals[i].num_transfers / (is_message ? 1 : op->group_size);
        json_t *item =
            ESTIMATE_ITEM("op", op->name,
                          {"transfers", transfers > INT64_MAX ? UINT64_MAX : (uint64_t)transfers});
        put_wire(&item, totals[i].wire_bytes);
        json_add(&list, item);
        if (op->transfer != PST_TRANSFER_RECEIVE)
            *sent += totals[i].wire_bytes;
    }
    return list;
}

void estimate_put_traffic(const estimate_options *options, const estimate_stage *stages,
                          uint64_t heaviest, json_t **tree)
{
    const pst_estimate_config *config = &options->config;
    const uint64_t num_micro_batches = stages[0].memory.num_micro_batches;
    total totals[PST_ESTIMATE_MAX_OPS];
    psti_wide sent = 0;
    json_t *list = json_array();
    for (uint64_t s = 0; s < config->pipeline_parallel; s++)
        for (uint32_t i = 0; i < stages[s].traffic.num_ops; i++)
            json_add(&list, op_value(s, num_micro_batches, &stages[s].traffic.ops[i]));
    json_put(tree, "comm", list);
    json_put(tree, "groups", groups_value(options));
    const uint32_t num = add_totals(config, stages, totals);
    json_t *cluster = ESTIMATE_OBJECT(
        {"world_size", config->world_size}, {"num_stages", config->pipeline_parallel},
        {"num_micro_batches", num_micro_batches}, {"heaviest_stage", heaviest},
        {"gpu_memory_bytes", options->memory_bytes});
    json_put(&cluster, "fits", json_boolean(stages[heaviest].peak_bytes <= options->memory_bytes));
    json_put(&cluster, "ops", totals_value(totals, num, &sent));
    put_wire(&cluster, sent);
    json_put(tree, "cluster", cluster);
}
