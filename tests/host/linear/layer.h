/* Layers for tests: the matrices of all ranks, the results of plain products, and each rank's
 * share. */
#ifndef PAGESTASH_TESTS_LAYER_H
#define PAGESTASH_TESTS_LAYER_H

#include <pagestash/linear.h>

#include "tests/host/comm/comm_scene.h"

/* A layer's form; tokens of each rank. */
typedef struct layer_form {
    int num_ranks;
    pst_linear_kind kind;
    pst_dtype dtype, of_gradient;
    uint32_t pieces;
    bool sequence_parallel, accumulates;
    uint64_t tokens, in, out;
} layer_form;

/* One matrix. */
typedef struct layer_tensor {
    void *base;
    uint64_t rows, columns;
    pst_dtype dtype;
} layer_tensor;

/* What a rank has, and what it shall get. */
typedef struct layer {
    layer_form form;
    int rank;
    pst_device *device;
    layer_tensor all_input, all_weight, all_gradient; /* of all ranks */
    layer_tensor input, weight, output_gradient;
    layer_tensor output, input_gradient, weight_gradient, gathered;    /* written by the layer */
    layer_tensor wanted, wanted_input, wanted_weight, wanted_gathered; /* by plain products */
} layer;

PST_BEGIN_DECLS

layer_tensor tensor_make(uint64_t rows, uint64_t columns, pst_dtype dtype);
layer_tensor tensor_draw(uint64_t rows, uint64_t columns, pst_dtype dtype, uint64_t seed);
layer_tensor tensor_copy(const layer_tensor *tensor);
void tensor_free(layer_tensor *tensor);
double tensor_get(const layer_tensor *tensor, uint64_t row, uint64_t column);
bool tensor_is(const layer_tensor *tensor, const layer_tensor *wanted);
/* Whether the elements differ by at most that share of the largest; NaN is where it is wanted. */
bool tensor_is_near(const layer_tensor *tensor, const layer_tensor *wanted, double share);

void layer_open(layer *self, const layer_form *form, int rank, pst_device *device);
void layer_close(layer *self);
pst_linear_config layer_config(const layer *self, pst_comm *comm, pst_scratch *scratch);
/* Of forward and backward at once; `gathered` is none of them. */
pst_linear_operands layer_operands(const layer *self);
/* What the layer writes becomes 0xff, but for the weight's gradient, which becomes what was there. */
void layer_clear(layer *self);
/* Whether results are those of sums in double over all ranks, within what rounding allows. */
bool layer_is_near(const layer *self);

PST_END_DECLS

#endif
