/* The weights of a model: how ranks share them, and what they begin with. */
#include <math.h>

#include "tests/host/linear/llama_model.h"

/* A matrix, of one rank and of all: how its rows and columns are shared. */
typedef struct shape {
    uint64_t rows, columns; /* of all ranks */
    uint64_t parts;         /* its rows are so many matrices, of which each rank has a share; 0: its
                             * columns are shared, or nothing of a vector */
} shape;

static shape shape_of_layer(const llama_form *form, int which)
{
    const uint64_t h = form->hidden;
    const shape all[NUM_OF_LAYER] = {{1, h, 0}, {3 * h, h, 3},         {h, h, 0},
                                     {1, h, 0}, {2 * form->ffn, h, 2}, {h, form->ffn, 0}};
    return all[which];
}

static shape shape_of_ends(const llama_form *form, int which)
{
    const uint64_t h = form->hidden;
    const shape all[NUM_OF_ENDS] = {{form->vocab, h, 1}, {1, h, 0}, {form->vocab, h, 1}};
    return all[which];
}

static shape shape_of(const llama_form *form, uint64_t layer, int which)
{
    return layer < form->layers ? shape_of_layer(form, which) : shape_of_ends(form, which);
}

static bool is_vector(shape of)
{
    return of.rows == 1;
}

/* Of a rank. */
static shape share_of(shape of, uint64_t num_ranks)
{
    if (of.parts > 0)
        of.rows /= num_ranks;
    else if (!is_vector(of))
        of.columns /= num_ranks;
    return of;
}

static uint64_t share_floats(shape all, uint64_t num_ranks)
{
    const shape of = share_of(all, num_ranks);
    return of.rows * of.columns;
}

static uint64_t num_floats(const llama_form *form, uint64_t num_ranks, uint64_t layer, int which)
{
    return share_floats(shape_of(form, layer, which), num_ranks);
}

/* The layers' matrices, then those of the ends: layer is `layers` for them. */
static uint64_t offset_of(const llama_form *form, uint64_t num_ranks, uint64_t layer, int which)
{
    uint64_t offset = 0, of_layer = 0;
    for (int i = 0; i < NUM_OF_LAYER; i++)
        of_layer += share_floats(shape_of_layer(form, i), num_ranks);
    offset = layer * of_layer;
    for (int i = 0; i < which; i++)
        offset += num_floats(form, num_ranks, layer, i);
    return offset;
}

uint64_t llama_num_weights(const llama_form *form, uint64_t num_ranks)
{
    return offset_of(form, num_ranks, form->layers, NUM_OF_ENDS);
}

/* Where an element of a rank's share is in the matrix of all ranks. */
static uint64_t place_in_all(shape all, uint64_t num_ranks, uint64_t rank, uint64_t index)
{
    const shape own = share_of(all, num_ranks);
    uint64_t row = index / own.columns, column = index % own.columns;
    if (all.parts > 0) {
        const uint64_t of_part = own.rows / all.parts;
        row = row / of_part * (all.rows / all.parts) + rank * of_part + row % of_part;
    } else if (!is_vector(all)) {
        column += rank * own.columns;
    }
    return row * all.columns + column;
}

uint64_t llama_index_of_all(const llama_form *form, uint64_t num_ranks, uint64_t rank,
                            uint64_t index)
{
    const uint64_t of_layer = offset_of(form, num_ranks, 1, 0);
    const uint64_t layer = index / of_layer < form->layers ? index / of_layer : form->layers;
    int which = 0;
    index -= layer * of_layer;
    while (index >= num_floats(form, num_ranks, layer, which))
        index -= num_floats(form, num_ranks, layer, which++);
    return offset_of(form, 1, layer, which) +
           place_in_all(shape_of(form, layer, which), num_ranks, rank, index);
}

/* From -1 to 1, the same for the same number. */
static float draw(uint64_t number)
{
    uint64_t bits = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return (float)((double)(bits >> 11) / (double)(UINT64_C(1) << 52) - 1);
}

void llama_fill_weights(llama_model *self)
{
    const llama_form *form = &self->form;
    for (uint64_t layer = 0; layer <= form->layers; layer++)
        for (int which = 0; which < (layer < form->layers ? (int)NUM_OF_LAYER : (int)NUM_OF_ENDS);
             which++) {
            const shape all = shape_of(form, layer, which);
            const uint64_t begin = offset_of(form, self->num_ranks, layer, which);
            const uint64_t num = num_floats(form, self->num_ranks, layer, which);
            for (uint64_t i = begin; i < begin + num; i++)
                self->weights[i] = is_vector(all)
                                       ? 1
                                       : draw(llama_index_of_all(form, self->num_ranks,
                                                                 (uint64_t)self->rank->rank, i)) /
                                             sqrtf((float)all.columns);
        }
}

float *llama_weight(const llama_model *self, uint64_t layer, int which)
{
    return self->weights + offset_of(&self->form, self->num_ranks, layer, which);
}

float *llama_gradient(const llama_model *self, uint64_t layer, int which)
{
    return self->gradients + offset_of(&self->form, self->num_ranks, layer, which);
}
