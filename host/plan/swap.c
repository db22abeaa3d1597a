/* How much of what a layer keeps goes to the host: one fraction for all, or tensor by tensor. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <pagestash/swap.h>

#include "host/base/arith.h"
#include "host/base/base.h"
#include "host/base/structs.h"
#include "host/model/ledger.h"

#define NANOSECONDS 1000000000u

/* The most tokens, in whole blocks, whose part of `bytes` fits in `room`. The last block may be a
 * short one. */
static uint64_t most_tokens(uint64_t bytes, uint64_t room, uint64_t num_tokens,
                            uint64_t block_tokens)
{
    if (room >= bytes)
        return num_tokens;
    const uint64_t tokens = (uint64_t)((psti_wide)room * num_tokens / bytes);
    return tokens - tokens % block_tokens;
}

/* ---- shape ---- */

static pst_status check_shape(const pst_swap_shape *shape, uint64_t shards)
{
    PSTI_CHECK(shape->micro_batch >= 1, PST_E_INVALID, "micro_batch 0: must be at least 1");
    PSTI_CHECK(shape->hidden_size >= 1, PST_E_INVALID, "hidden_size 0: must be at least 1");
    PSTI_CHECK(shape->sequence_size >= 1 && shape->sequence_size % shards == 0, PST_E_INVALID,
               "sequence_size %" PRIu64
               ": must be a multiple of tensor_parallel * context_parallel, %" PRIu64,
               shape->sequence_size, shards);
    return PST_OK;
}

/* The ledger's elements have two bytes. */
static uint64_t in_elements_of(uint64_t element_bytes, uint64_t bytes)
{
    return psti_times(psti_div_down(bytes, 2), element_bytes);
}

pst_status pst_swap_model(const pst_swap_shape *shape, pst_swap_config *config)
{
    PSTI_CHECK(shape && config, PST_E_INVALID, "shape or config is NULL");
    PSTI_TAKE(pst_swap_config, unused, config); /* its size */
    (void)unused;
    const uint64_t shards = (uint64_t)(shape->tensor_parallel ? shape->tensor_parallel : 1) *
                            (shape->context_parallel ? shape->context_parallel : 1);
    const uint64_t element = shape->element_bytes ? shape->element_bytes : 2;
    PSTI_TRY(check_shape(shape, shards));
    const uint64_t ffn = shape->ffn_size ? shape->ffn_size : psti_times(4, shape->hidden_size);
    const uint64_t tokens = psti_times(shape->micro_batch, shape->sequence_size / shards);
    const psti_ledger layer = psti_ledger_of_gpt(tokens, shape->hidden_size, ffn);
    const uint64_t all = in_elements_of(element, psti_ledger_sum_swapped(&layer));
    PSTI_CHECK(all <= PST_SWAP_MAX_BYTES, PST_E_INVALID,
               "micro_batch %" PRIu64 ", sequence_size %" PRIu64 ", hidden_size %" PRIu64
               ", ffn_size %" PRIu64 ": more than 2^62 bytes per layer and GPU",
               shape->micro_batch, shape->sequence_size, shape->hidden_size, ffn);
    config->input_bytes = in_elements_of(element, psti_ledger_bytes(&layer, "norm1.in"));
    config->attention_bytes = in_elements_of(element, psti_ledger_bytes(&layer, "proj.in"));
    config->other_bytes = all - config->input_bytes - config->attention_bytes;
    config->num_tokens = tokens;
    return PST_OK;
}

/* ---- one fraction for all ---- */

static pst_status check_config(const pst_swap_config *config)
{
    const psti_wide all =
        (psti_wide)config->input_bytes + config->attention_bytes + config->other_bytes;
    PSTI_CHECK(all <= PST_SWAP_MAX_BYTES, PST_E_INVALID,
               "input_bytes %" PRIu64 ", attention_bytes %" PRIu64 ", other_bytes %" PRIu64
               ": together at most 2^62",
               config->input_bytes, config->attention_bytes, config->other_bytes);
    PSTI_CHECK(config->num_tokens >= 1, PST_E_INVALID, "num_tokens 0: must be at least 1");
    PSTI_CHECK(config->block_tokens <= config->num_tokens, PST_E_INVALID,
               "block_tokens %" PRIu64 ": allowed are up to num_tokens, %" PRIu64,
               config->block_tokens, config->num_tokens);
    PSTI_CHECK(config->link_bytes_per_second >= 1, PST_E_INVALID,
               "link_bytes_per_second 0: must be at least 1");
    return PST_OK;
}

static void set_missing(const pst_swap_config *config, uint64_t whole, uint64_t link,
                        pst_swap_choice *choice)
{
    choice->limit = PST_SWAP_IMPOSSIBLE;
    if (whole > link) {
        const uint64_t rate = config->link_bytes_per_second;
        const psti_wide needed = ((psti_wide)whole * NANOSECONDS + rate - 1) / rate;
        choice->missing_link_bytes = whole - link;
        choice->missing_nanoseconds = psti_saturate(needed - config->forward_nanoseconds);
    }
    const psti_wide host = (psti_wide)whole * choice->num_layers;
    if (host > config->host_bytes)
        choice->missing_host_bytes = psti_saturate(host - config->host_bytes);
}

pst_status pst_swap_choose_sized(const pst_swap_config *given, pst_swap_choice *choice_out,
                                 size_t choice_bytes)
{
    PSTI_CHECK(given && choice_out, PST_E_INVALID, "config or choice_out is NULL");
    PSTI_TAKE(pst_swap_config, own, given);
    const pst_swap_config *config = &own;
    PSTI_TRY(PSTI_CHECK_SIZE(pst_swap_choice, choice_bytes));
    PSTI_TRY(check_config(config));
    const uint64_t whole = config->input_bytes + config->attention_bytes;
    const uint64_t other = config->other_bytes;
    pst_swap_choice choice = {.den = config->num_tokens, .buffer_bytes = whole + other};
    if (config->num_layers <= 2) { /* both rounding buffers hold what they keep */
        memcpy(choice_out, &choice, choice_bytes);
        return PST_OK;
    }
    choice.num_layers = config->num_layers - 2;
    const uint64_t link = psti_saturate((psti_wide)config->link_bytes_per_second *
                                        config->forward_nanoseconds / NANOSECONDS);
    const uint64_t host = config->host_bytes / choice.num_layers;
    const uint64_t most = link <= host ? link : host;
    if (whole > most) {
        set_missing(config, whole, link, &choice);
        memcpy(choice_out, &choice, choice_bytes);
        return PST_OK;
    }
    choice.room_bytes = most - whole < other ? most - whole : other;
    choice.num = most_tokens(other, choice.room_bytes, config->num_tokens,
                             config->block_tokens ? config->block_tokens : 1);
    if (choice.num < config->num_tokens)
        choice.limit = link <= host ? PST_SWAP_BY_TIME : PST_SWAP_BY_MEMORY;
    choice.layer_bytes = whole + psti_fraction(other, choice.num, config->num_tokens);
    choice.host_bytes = choice.layer_bytes * choice.num_layers;
    memcpy(choice_out, &choice, choice_bytes);
    return PST_OK;
}

/* ---- by tensor ---- */

typedef struct entry {
    uint64_t bytes, nanoseconds;
    uint32_t index;
} entry;

/* More time per byte first. */
static int compare(const void *left, const void *right)
{
    const entry *a = left;
    const entry *b = right;
    const psti_wide of_a = (psti_wide)a->nanoseconds * b->bytes;
    const psti_wide of_b = (psti_wide)b->nanoseconds * a->bytes;
    if (of_a != of_b)
        return of_a > of_b ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static pst_status check_tensors(const pst_swap_tensor *tensors, uint32_t num_tensors)
{
    uint64_t bytes = 0;
    uint64_t nanoseconds = 0;
    for (uint32_t i = 0; i < num_tensors; i++) {
        const pst_swap_tensor *tensor = &tensors[i];
        PSTI_CHECK(tensor->bytes >= 1, PST_E_INVALID, "tensor %u: bytes 0: must be at least 1", i);
        PSTI_CHECK(tensor->bytes <= PST_SWAP_MAX_BYTES - bytes, PST_E_INVALID,
                   "tensor %u: bytes %" PRIu64 ": more than 2^62 with those before", i,
                   tensor->bytes);
        PSTI_CHECK(tensor->recompute_nanoseconds <= PST_SWAP_MAX_BYTES - nanoseconds, PST_E_INVALID,
                   "tensor %u: recompute_nanoseconds %" PRIu64 ": more than 2^62 with those before",
                   i, tensor->recompute_nanoseconds);
        bytes += tensor->bytes;
        nanoseconds += tensor->recompute_nanoseconds;
    }
    return PST_OK;
}

static void fill(const entry *order, uint32_t num_tensors, uint64_t budget, uint64_t num_tokens,
                 uint64_t block_tokens, uint64_t *tokens, pst_swap_filled *filled)
{
    for (uint32_t i = 0; i < num_tensors; i++)
        tokens[i] = 0;
    for (uint32_t i = 0; i < num_tensors && order[i].nanoseconds > 0; i++) {
        const entry *next = &order[i];
        const uint64_t room = budget - filled->bytes;
        const uint64_t part = most_tokens(next->bytes, room, num_tokens, block_tokens);
        if (part == num_tokens) {
            filled->bytes += next->bytes;
            filled->saved_nanoseconds += next->nanoseconds;
            filled->num_whole++;
            tokens[next->index] = num_tokens;
            continue;
        }
        const psti_wide bound = (psti_wide)room * next->nanoseconds + next->bytes - 1;
        filled->bound_nanoseconds = (uint64_t)(bound / next->bytes);
        filled->bytes += psti_fraction(next->bytes, part, num_tokens);
        tokens[next->index] = part;
        filled->fractional = part ? next->index : UINT32_MAX;
        const uint64_t saved = (uint64_t)((psti_wide)next->nanoseconds * part / num_tokens);
        filled->bound_nanoseconds += filled->saved_nanoseconds;
        filled->saved_nanoseconds += saved;
        return;
    }
    filled->bound_nanoseconds = filled->saved_nanoseconds;
}

pst_status pst_swap_fill(const pst_swap_tensor *tensors, uint32_t num_tensors,
                         uint64_t budget_bytes, uint64_t num_tokens, uint64_t block_tokens,
                         uint64_t *tokens, pst_swap_filled *filled_out)
{
    PSTI_CHECK(filled_out && (num_tensors == 0 || (tensors && tokens)), PST_E_INVALID,
               "tensors, tokens or filled_out is NULL");
    PSTI_CHECK(num_tokens >= 1, PST_E_INVALID, "num_tokens 0: must be at least 1");
    PSTI_CHECK(block_tokens <= num_tokens, PST_E_INVALID,
               "block_tokens %" PRIu64 ": allowed are up to num_tokens, %" PRIu64, block_tokens,
               num_tokens);
    PSTI_TRY(check_tensors(tensors, num_tensors));
    entry *order = psti_calloc((size_t)num_tensors + 1, sizeof(*order));
    PSTI_CHECK(order, PST_E_NOMEM, "out of memory for %u tensors", num_tensors);
    for (uint32_t i = 0; i < num_tensors; i++)
        order[i] = (entry){tensors[i].bytes, tensors[i].recompute_nanoseconds, i};
    qsort(order, num_tensors, sizeof(*order), compare);
    pst_swap_filled filled = {.fractional = UINT32_MAX};
    fill(order, num_tensors, budget_bytes, num_tokens, block_tokens ? block_tokens : 1, tokens,
         &filled);
    psti_free(order);
    *filled_out = filled;
    return PST_OK;
}
