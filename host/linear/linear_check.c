/* With PAGESTASH_CHECK=1: whether all ranks have made the same layer. */
#include <inttypes.h>
#include <string.h>

#include "host/linear/linear.h"

/* X(member of the config) */
#define COMPARED(X)          \
    X(kind)                  \
    X(dtype)                 \
    X(weight_gradient_dtype) \
    X(pieces)                \
    X(sequence_parallel)     \
    X(tokens)                \
    X(in_features)           \
    X(out_features)

enum {
#define ONE(member) +1
    NUM_COMPARED = 0 COMPARED(ONE)
#undef ONE
};

typedef struct layer_words {
    uint64_t words[NUM_COMPARED];
} layer_words;

/* Every rank finds the same: the first member that is another on some rank than on rank 0. */
static pst_status compare(const layer_words *all, uint32_t num_ranks)
{
    static const char *const names[] = {
#define NAME(member) #member,
        COMPARED(NAME)
#undef NAME
    };
    for (int i = 0; i < NUM_COMPARED; i++)
        for (uint32_t rank = 1; rank < num_ranks; rank++)
            PSTI_CHECK(all[rank].words[i] == all[0].words[i], PST_E_INVALID,
                       "%s: rank 0 has %" PRIu64 ", rank %u has %" PRIu64
                       ": the ranks must make the same layers in the same order",
                       names[i], all[0].words[i], rank, all[rank].words[i]);
    return PST_OK;
}

/* `own` goes to the others by device memory at `all`, and theirs come to `to`. */
static pst_status exchange(const pst_linear *linear, const layer_words *own, layer_words *all,
                           layer_words *to, pst_stream stream)
{
    const size_t bytes = sizeof(*own);
    pst_device *device = linear->device;
    layer_words *here = all + linear->rank;
    PSTI_TRY(device->ops->copy(device, here, own, bytes, stream));
    PSTI_TRY(pst_comm_all_gather(linear->config.comm, here, all, bytes, PST_DTYPE_BYTE, stream));
    PSTI_TRY(device->ops->copy(device, to, all, linear->num_ranks * bytes, stream));
    PSTI_TRY(device->ops->stream_synchronize(device, stream));
    return compare(to, linear->num_ranks);
}

pst_status psti_linear_compare(const pst_linear *linear)
{
    const size_t bytes = linear->num_ranks * sizeof(layer_words);
    const layer_words own = {{
#define WORD(member) (uint64_t) linear->config.member,
        COMPARED(WORD)
#undef WORD
    }};
    void *all = NULL;
    pst_stream stream = NULL;
    if (linear->num_ranks == 1 || !psti_is_check_mode())
        return PST_OK;
    layer_words *to = psti_calloc(1, bytes);
    PSTI_CHECK(to, PST_E_NOMEM, "no memory to compare %u ranks", linear->num_ranks);
    pst_status status = psti_part_alloc(linear->device, bytes, &all);
    if (status == PST_OK)
        status = psti_part_stream_create(linear->device, &stream);
    if (status == PST_OK)
        status = exchange(linear, &own, all, to, stream);
    psti_part_stream_destroy(linear->device, stream);
    psti_part_free(linear->device, all);
    psti_free(to);
    return status;
}
