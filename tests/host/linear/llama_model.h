/* Shared by llama.c (layers and steps), llama_weights.c, llama_ends.c (embedding and loss) and
 * llama_ways.c (how matrices are multiplied). */
#ifndef PAGESTASH_TESTS_LLAMA_MODEL_H
#define PAGESTASH_TESTS_LLAMA_MODEL_H

#include "tests/host/linear/llama.h"

typedef enum llama_matrix { UP, QKV, OUTPUT, PROJ, DOWN, NUM_MATRICES } llama_matrix;

typedef enum llama_use { OF_STATES, SAVED, TRANSIENT, NUM_USES } llama_use;

typedef struct llama_model {
    rank_of_test *rank;
    llama_form form;
    llama_result *result;
    uint64_t num_ranks, local; /* local: tokens of a rank between the layers */
    uint64_t bytes[NUM_USES];  /* now */
    float *weights, *gradients, *first, *second;
    /* llama_ways.c */
    pst_linear_config configs[NUM_MATRICES];
    pst_scratch *scratch;
    pst_linear *linears[NUM_MATRICES]; /* NULL: of the block */
    pst_glu glu;
    pst_group *group;
    pst_mlp *mlp;
    pst_pool *pool;
    pst_ticket *tickets; /* of each layer */
    float *recycled;     /* of LLAMA_ALIASED: where its last lease was */
} llama_model;

#define OK(call)                                                                                  \
    do {                                                                                          \
        const pst_status ok_status = (call);                                                      \
        if (ok_status != PST_OK)                                                                  \
            psti_test_fail(__FILE__, __LINE__, "%s is %s: %s", #call, pst_status_name(ok_status), \
                           pst_last_message());                                                   \
    } while (0)

/* ---- llama.c ---- */

/* NaN; counted. */
float *llama_take(llama_model *self, llama_use use, uint64_t num_floats);
void llama_give(llama_model *self, llama_use use, float *floats, uint64_t num_floats);
void llama_reduce(llama_model *self, pst_exchange_kind kind, pst_reduction reduction,
                  const float *from, float *to, uint64_t count);
/* A sum where the kind reduces. */
void llama_exchange(llama_model *self, pst_exchange_kind kind, const float *from, float *to,
                    uint64_t count);

/* ---- llama_weights.c ---- */

/* Of a layer; of the ends, which are layer number `layers`. */
enum { NORM1, OF_QKV, OF_PROJ, NORM2, OF_UP, OF_DOWN, NUM_OF_LAYER };
enum { EMBEDDING, FINAL_NORM, OF_OUTPUT, NUM_OF_ENDS };

uint64_t llama_num_weights(const llama_form *form, uint64_t num_ranks);
void llama_fill_weights(llama_model *self);
float *llama_weight(const llama_model *self, uint64_t layer, int which);
float *llama_gradient(const llama_model *self, uint64_t layer, int which);

/* ---- llama_ends.c ---- */

/* Tokens of a micro-batch from `first` on, 8 bytes each, as embedding and loss save them. */
uint64_t *llama_take_tokens(llama_model *self, uint64_t step, uint64_t batch, uint64_t first);
void llama_give_tokens(llama_model *self, uint64_t *tokens);
float *llama_embed(llama_model *self, const uint64_t *tokens);
void llama_embed_back(llama_model *self, const uint64_t *tokens, const float *dx);
/* Forward and backward of all behind the layers. dx: of x, written. Returns the loss. */
double llama_head(llama_model *self, const float *x, uint64_t *labels, float *dx);

/* ---- llama_ways.c ---- */

/* Of forward what backward does not need again, and the other way round. */
typedef struct llama_call {
    const float *input, *weight;
    float *output;
    float *gathered; /* what the way keeps; NULL: nothing */
    const float *output_gradient;
    float *input_gradient, *weight_gradient;
} llama_call;

typedef struct llama_mlp_call {
    uint64_t layer;
    const float *input, *up, *down;
    float *output, *gathered;
    float *hidden; /* NULL: in pages */
    const float *output_gradient;
    float *input_gradient, *up_gradient, *down_gradient;
} llama_mlp_call;

void llama_open_way(llama_model *self);
void llama_close_way(llama_model *self);
/* Whether the way keeps what it gathers, and has hidden tensors in pages. */
bool llama_keeps(const llama_model *self);
bool llama_has_pages(const llama_model *self);
void llama_multiply(llama_model *self, llama_matrix matrix, const llama_call *call);
void llama_multiply_back(llama_model *self, llama_matrix matrix, const llama_call *call);
void llama_mlp(llama_model *self, const llama_mlp_call *call);
void llama_mlp_back(llama_model *self, const llama_mlp_call *call);

#endif
