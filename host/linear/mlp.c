/* Blocks of a column layer, a gated activation and a row layer: creation, and what a call must
 * hold. */
#include "host/linear/mlp.h"

#include <inttypes.h>

#include "host/base/arith.h"
#include "host/base/nvtx.h"
#include "host/base/structs.h"

/* ---- creation ---- */

static pst_status check_fit(const pst_linear_config *up, const pst_linear_config *down)
{
    PSTI_CHECK(up->kind == PST_LINEAR_COLUMN && down->kind == PST_LINEAR_ROW, PST_E_INVALID,
               "up, down: kinds %d and %d: must be column (0) and row (1)", (int)up->kind,
               (int)down->kind);
    PSTI_CHECK(up->dtype == down->dtype, PST_E_INVALID, "up, down: dtypes %d and %d: must be one",
               (int)up->dtype, (int)down->dtype);
    PSTI_CHECK(up->tokens == down->tokens, PST_E_INVALID,
               "up, down: tokens %" PRIu64 " and %" PRIu64 ": must be as many", up->tokens,
               down->tokens);
    PSTI_CHECK(down->in_features <= UINT64_MAX / 2 && up->out_features == 2 * down->in_features,
               PST_E_INVALID,
               "up.out_features %" PRIu64 ": must be twice down.in_features %" PRIu64,
               up->out_features, down->in_features);
    PSTI_CHECK(up->sequence_parallel == down->sequence_parallel, PST_E_INVALID,
               "up, down: sequence_parallel %d and %d: must be the same", up->sequence_parallel,
               down->sequence_parallel);
    PSTI_CHECK(up->comm == down->comm, PST_E_INVALID, "up, down: comm: must be the same");
    PSTI_CHECK(up->scratch == down->scratch, PST_E_INVALID, "up, down: scratch: must be the same");
    PSTI_CHECK(up->workspace_bytes == down->workspace_bytes, PST_E_INVALID,
               "up, down: workspace_bytes %" PRIu64 " and %" PRIu64 ": must be as many",
               up->workspace_bytes, down->workspace_bytes);
    return PST_OK;
}

static pst_status check_experts(const pst_mlp *mlp)
{
    if (mlp->num_experts == 0)
        return PST_OK;
    PSTI_CHECK(mlp->num_experts <= PST_MAX_SEGMENTS, PST_E_INVALID,
               "num_experts %u: allowed are 0 to %d", mlp->num_experts, PST_MAX_SEGMENTS);
    PSTI_CHECK(mlp->count_type == PST_COUNT_INT32 || mlp->count_type == PST_COUNT_INT64,
               PST_E_INVALID, "count_type %d: allowed are int32 and int64", (int)mlp->count_type);
    PSTI_CHECK(mlp->up->num_ranks == 1 && !mlp->up->config.sequence_parallel, PST_E_INVALID,
               "experts are of one rank without sequence parallelism: these are %u ranks",
               mlp->up->num_ranks);
    return PST_OK;
}

/* Of calls without a ticket: the tensor between the layers alone. */
static pst_status make_group(pst_mlp *mlp)
{
    const bool has_experts = mlp->num_experts > 0;
    const pst_row_space space = {.kind = has_experts ? PST_ROWS_SEGMENTS : PST_ROWS_PREFIX,
                                 .count_type = has_experts ? mlp->count_type : PST_COUNT_HOST,
                                 .capacity = (int64_t)mlp->up->config.tokens,
                                 .num_segments = mlp->num_experts};
    const pst_tensor tensor = {.row_bytes = mlp->up->rows * mlp->up->size,
                               .written_by = PST_WRITTEN_BY_GLU};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = &tensor;
    config.num_tensors = 1;
    return pst_group_create(&config, &mlp->group);
}

/* Returns what must be there for all calls. */
static psti_lent_moment count_bytes(pst_mlp *mlp)
{
    const uint64_t rows = mlp->up->num_experts * mlp->up->config.tokens;
    psti_lent_moment all = {{0}};
    mlp->activation_bytes = rows * mlp->down->columns * mlp->down->size;
    mlp->hidden_bytes = 2 * mlp->activation_bytes;
    const psti_mlp_lends lends =
        psti_mlp_lends_of(&mlp->up->shape, &mlp->down->shape, mlp->hidden_bytes, false, true);
    mlp->bytes =
        (pst_linear_bytes){.forward_scratch = psti_lent_most(lends.forward, PSTI_MLP_MOMENTS),
                           .backward_scratch = psti_lent_most(lends.backward, PSTI_MLP_MOMENTS),
                           .gathered = mlp->up->bytes.gathered};
    for (int i = 0; i < PSTI_MLP_MOMENTS; i++) {
        psti_lent_widen(&all, &lends.forward[i]);
        psti_lent_widen(&all, &lends.backward[i]);
    }
    return all;
}

static pst_status make(pst_mlp *mlp, const pst_mlp_config *config)
{
    PSTI_TAKE(pst_glu, glu, config->glu);
    mlp->glu = glu;
    mlp->glu.struct_size = sizeof(glu);
    mlp->num_experts = config->num_experts;
    mlp->count_type = config->count_type;
    PSTI_TRY(psti_linear_make(config->up, config->num_experts, config->count_type, &mlp->up));
    PSTI_TRY(psti_linear_make(config->down, config->num_experts, config->count_type, &mlp->down));
    PSTI_TRY(check_fit(&mlp->up->config, &mlp->down->config));
    PSTI_TRY(check_experts(mlp));
    PSTI_CHECK((pst_dtype)mlp->glu.dtype == mlp->up->config.dtype, PST_E_INVALID,
               "glu: dtype %d: the layers have %d", (int)mlp->glu.dtype,
               (int)mlp->up->config.dtype);
    PSTI_TRY(psti_glu_check_form(&mlp->glu, mlp->down->columns));
    const psti_lent_moment all = count_bytes(mlp);
    PSTI_TRY(make_group(mlp));
    return psti_lent_reserve(mlp->up->config.scratch, &all);
}

static void free_mlp(pst_mlp *mlp)
{
    psti_linear_free(mlp->up);
    psti_linear_free(mlp->down);
    pst_group_destroy(mlp->group);
    psti_handle_free(mlp);
}

pst_status pst_mlp_create(const pst_mlp_config *config, pst_mlp **mlp_out)
{
    PSTI_CHECK(config && mlp_out, PST_E_INVALID, "config or mlp_out is NULL");
    PSTI_TAKE(pst_mlp_config, own, config);
    PSTI_CHECK(own.up && own.down && own.glu, PST_E_INVALID, "up, down or glu is NULL");
    pst_mlp *mlp = psti_handle_new(sizeof(*mlp), PSTI_KIND_MLP);
    PSTI_CHECK(mlp, PST_E_NOMEM, "no memory for a block");
    const pst_status status = make(mlp, &own);
    if (status != PST_OK) {
        free_mlp(mlp);
        return status;
    }
    *mlp_out = mlp;
    return PST_OK;
}

pst_status pst_mlp_destroy(pst_mlp *mlp)
{
    if (!mlp)
        return PST_OK;
    PSTI_CHECK_HANDLE(mlp, MLP);
    free_mlp(mlp);
    return PST_OK;
}

pst_status pst_mlp_get_bytes(const pst_mlp *mlp, pst_linear_bytes *bytes_out)
{
    PSTI_CHECK_HANDLE(mlp, MLP);
    PSTI_CHECK(bytes_out, PST_E_INVALID, "bytes_out is NULL");
    *bytes_out = mlp->bytes;
    return PST_OK;
}

/* ---- operands ---- */

/* That the GLU's tensor of the caller's group is the packed one between the layers. */
static pst_status check_group(const pst_mlp *mlp, const pst_mlp_operands *operands)
{
    psti_space spaces[PSTI_MAX_SPACES];
    psti_tensor tensors[PSTI_MAX_TENSORS];
    psti_placing placing = {.spaces = spaces, .tensors = tensors, .may_skip = true};
    const pst_group *group = operands->group;
    const uint64_t tokens = mlp->up->config.tokens, row_bytes = mlp->up->rows * mlp->up->size;
    PSTI_CHECK_HANDLE(group, GROUP);
    const uint32_t t = group->glu_tensor;
    PSTI_CHECK(t != PSTI_NO_TENSOR, PST_E_INVALID,
               "group: no tensor is written by a GLU (written_by)");
    PSTI_TRY(psti_place(mlp->up->device, group, operands->buffers, "buffers", &placing));
    const psti_space *space = &spaces[tensors[t].space];
    const uint32_t num_experts = mlp->num_experts ? mlp->num_experts : 1;
    PSTI_CHECK(!tensors[t].base, PST_E_INVALID,
               "buffers: bases[%u] at %p: the GLU's is in scratch, it must be NULL", t,
               (void *)tensors[t].base);
    PSTI_CHECK(tensors[t].row_bytes == row_bytes && tensors[t].row_stride == row_bytes,
               PST_E_INVALID,
               "tensor %u: row_bytes %" PRIu64 ", row stride %" PRIu64
               ": a row between the layers has %" PRIu64 " bytes, packed",
               t, tensors[t].row_bytes, tensors[t].row_stride, row_bytes);
    PSTI_CHECK((uint64_t)space->capacity == tokens && space->num_segments == num_experts &&
                   (num_experts == 1 || tensors[t].segment_stride == tokens * row_bytes),
               PST_E_INVALID,
               "tensor %u: %u segments of %" PRId64 " rows: must be %u of %" PRIu64 ", packed", t,
               space->num_segments, space->capacity, num_experts, tokens);
    return PST_OK;
}

static pst_status check_ticket(const pst_mlp *mlp, const pst_mlp_operands *operands)
{
    if (operands->ticket.id) {
        PSTI_CHECK(!operands->hidden, PST_E_INVALID,
                   "hidden at %p: with a ticket it is in scratch and pages, it must be NULL",
                   operands->hidden);
        PSTI_CHECK(operands->buffers, PST_E_INVALID, "buffers is NULL");
        return check_group(mlp, operands);
    }
    PSTI_CHECK(!operands->group && !operands->buffers && !operands->stash && !operands->restore,
               PST_E_INVALID,
               "group, buffers, stash and restore: must be NULL where there is no ticket");
    return PST_OK;
}

pst_status psti_mlp_check(const pst_mlp *mlp, const pst_mlp_operands *operands, bool is_backward)
{
    const bool has_experts = mlp->num_experts > 0;
    PSTI_TRY(psti_padding_check("", operands->padding, sizeof(operands->padding)));
    PSTI_CHECK(!operands->gathered || mlp->bytes.gathered > 0, PST_E_INVALID,
               "gathered at %p: of blocks with sequence parallelism only", operands->gathered);
    PSTI_CHECK(!has_experts == !operands->counts, PST_E_INVALID, "counts at %p: %s",
               operands->counts, has_experts ? "experts need them" : "of experts only");
    PSTI_CHECK(is_backward || !operands->probability_gradient.base, PST_E_INVALID,
               "probability_gradient: must be NULL in forward");
    PSTI_TRY(check_ticket(mlp, operands));
    const bool has_ticket = operands->ticket.id != 0;
    const bool has_input = operands->input_gradient, has_up = operands->up_weight_gradient;
    const pst_linear *up = mlp->up, *down = mlp->down;
    const psti_matrix_bytes of_up = psti_linear_bytes_of(up), of_down = psti_linear_bytes_of(down);
    const void *own =
        operands->gathered ? (const char *)operands->gathered + up->rank * of_up.input : NULL;
    const bool is_in_place = own && own == operands->input;
    const psti_operand forward[] = {
        {"up_weight", operands->up_weight, of_up.weight, true, false},
        {"down_weight", operands->down_weight, of_down.weight, true, false},
        {"output", operands->output, of_down.output, true, true},
        {"hidden", operands->hidden, mlp->hidden_bytes, !has_ticket, true},
        {"gathered", operands->gathered, up->bytes.gathered, false, true},
        {"input", operands->input, of_up.input, true, false},
    };
    const psti_operand backward[] = {
        {"up_weight", operands->up_weight, of_up.weight, has_input, false},
        {"down_weight", operands->down_weight, of_down.weight, true, false},
        {"output_gradient", operands->output_gradient, of_down.output, true, false},
        {"hidden", operands->hidden, mlp->hidden_bytes, !has_ticket, false},
        {"gathered", operands->gathered, up->bytes.gathered, false, false},
        {"input", operands->input, of_up.input, has_up && !operands->gathered, false},
        {"input_gradient", operands->input_gradient, of_up.input, false, true},
        {"up_weight_gradient", operands->up_weight_gradient, of_up.weight_gradient, false, true},
        {"down_weight_gradient", operands->down_weight_gradient, of_down.weight_gradient, false,
         true},
    };
    if (is_backward)
        return psti_operands_check(up->config.scratch, backward, 9);
    return psti_operands_check(up->config.scratch, forward, is_in_place ? 5 : 6);
}
