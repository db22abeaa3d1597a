/* Linear layers: what they must hold, what they take of scratch, and their calls. */
#include <inttypes.h>

#include "host/base/arith.h"
#include "host/base/nvtx.h"
#include "host/base/structs.h"
#include "host/linear/linear.h"

#define MOST INT32_MAX
#define MOST_BYTES (UINT64_C(1) << 45) /* of a matrix, of all experts */
enum { ALIGNMENT = 16 };

/* ---- creation ---- */

static pst_status check_kinds(const pst_linear_config *config)
{
    const pst_dtype dtype = config->dtype, of_gradient = config->weight_gradient_dtype;
    PSTI_TRY(psti_padding_check("", config->padding, sizeof(config->padding)));
    PSTI_CHECK(config->kind == PST_LINEAR_COLUMN || config->kind == PST_LINEAR_ROW, PST_E_INVALID,
               "kind %d: allowed are column (0) and row (1)", (int)config->kind);
    PSTI_CHECK(dtype >= PST_DTYPE_BF16 && dtype <= PST_DTYPE_FP32, PST_E_INVALID,
               "dtype %d: allowed are bf16, fp16 and fp32", (int)dtype);
    PSTI_CHECK(of_gradient == dtype || of_gradient == PST_DTYPE_FP32, PST_E_INVALID,
               "weight_gradient_dtype %d: allowed are dtype, %d, and fp32", (int)of_gradient,
               (int)dtype);
    PSTI_CHECK(config->pieces <= 1, PST_E_INVALID,
               "pieces %u: allowed are 0, one per rank, and 1, whole", config->pieces);
    return PST_OK;
}

static pst_status check_sizes(const pst_linear_config *config, uint32_t num_experts,
                              uint32_t num_ranks)
{
    const bool is_column = config->kind == PST_LINEAR_COLUMN;
    const uint64_t tokens = config->tokens, in = config->in_features, out = config->out_features;
    const uint64_t most = psti_times(4 * (uint64_t)num_experts,
                                     psti_plus(psti_times(in, out), psti_times(tokens, in + out)));
    PSTI_CHECK(tokens >= 1 && tokens <= MOST && in >= 1 && in <= MOST && out >= 1 && out <= MOST,
               PST_E_INVALID,
               "tokens %" PRIu64 ", in_features %" PRIu64 ", out_features %" PRIu64
               ": each is 1 to %d",
               tokens, in, out, MOST);
    PSTI_CHECK(most <= MOST_BYTES, PST_E_INVALID,
               "tokens %" PRIu64 ", in_features %" PRIu64 ", out_features %" PRIu64
               ": the matrices have more than 2^45 bytes",
               tokens, in, out);
    PSTI_CHECK(!config->sequence_parallel || tokens % num_ranks == 0, PST_E_INVALID,
               "tokens %" PRIu64 ": must be a multiple of the %u ranks with sequence parallelism",
               tokens, num_ranks);
    PSTI_CHECK((is_column ? out : in) % num_ranks == 0, PST_E_INVALID,
               "%s %" PRIu64 ": must be a multiple of the %u ranks",
               is_column ? "out_features" : "in_features", is_column ? out : in, num_ranks);
    return PST_OK;
}

static pst_status find_ranks(pst_linear *linear)
{
    pst_comm *comm = linear->config.comm;
    pst_comm_info info;
    linear->num_ranks = 1;
    linear->rank = 0;
    if (!comm)
        return PST_OK;
    PSTI_CHECK_HANDLE(comm, COMM);
    PSTI_TRY(pst_comm_get_info(comm, &info));
    PSTI_CHECK(comm->device == linear->device, PST_E_INVALID,
               "comm is of device %s, scratch of device %s: they must be of one device",
               comm->device->info.name, linear->device->info.name);
    linear->num_ranks = (uint32_t)info.num_ranks;
    linear->rank = (uint32_t)info.rank;
    return PST_OK;
}

static void count_bytes(pst_linear *linear)
{
    const pst_linear_config *config = &linear->config;
    linear->shape = (psti_linear_shape){.kind = config->kind,
                                        .pieces = config->pieces,
                                        .sequence_parallel = config->sequence_parallel,
                                        .num_ranks = linear->num_ranks,
                                        .tokens = config->tokens,
                                        .in_features = config->in_features,
                                        .out_features = config->out_features,
                                        .element_bytes = linear->size,
                                        .workspace_bytes = config->workspace_bytes};
    const psti_lent_moment forward = psti_linear_forward_lends(&linear->shape, false);
    const psti_lent_moment backward = psti_linear_backward_lends(&linear->shape, false);
    linear->bytes = (pst_linear_bytes){.forward_scratch = psti_lent_sum(&forward),
                                       .backward_scratch = psti_lent_sum(&backward),
                                       .gathered = psti_linear_gathered_bytes(&linear->shape)};
}

pst_status psti_lent_reserve(pst_scratch *scratch, const psti_lent_moment *most)
{
    for (int i = 0; i < PSTI_NUM_LENT; i++)
        if (most->bytes[i] > 0)
            PSTI_TRY(pst_scratch_reserve(scratch, psti_lent_name((psti_lent)i), most->bytes[i]));
    return PST_OK;
}

static pst_status reserve(const pst_linear *linear)
{
    psti_lent_moment most = psti_linear_forward_lends(&linear->shape, false);
    const psti_lent_moment backward = psti_linear_backward_lends(&linear->shape, false);
    psti_lent_widen(&most, &backward);
    return psti_lent_reserve(linear->config.scratch, &most);
}

static pst_status make(pst_linear *linear)
{
    const pst_linear_config *config = &linear->config;
    const bool is_column = config->kind == PST_LINEAR_COLUMN;
    PSTI_TRY(find_ranks(linear));
    PSTI_TRY(psti_linear_compare(linear)); /* first: who is refused does not come to it */
    PSTI_TRY(check_kinds(config));
    PSTI_TRY(check_sizes(config, linear->num_experts, linear->num_ranks));
    linear->size = psti_dtype_bytes(config->dtype);
    linear->rows = config->out_features / (is_column ? linear->num_ranks : 1);
    linear->columns = config->in_features / (is_column ? 1 : linear->num_ranks);
    count_bytes(linear);
    if (linear->device->info.kind == PST_DEVICE_CUDA && !config->product && !linear->has_counts)
        PSTI_TRY(psti_cublaslt_prepare(linear->device));
    return reserve(linear);
}

pst_status psti_linear_make(const pst_linear_config *config, uint32_t num_experts,
                            pst_count_type count_type, pst_linear **linear_out)
{
    PSTI_CHECK(config, PST_E_INVALID, "config is NULL");
    PSTI_TAKE(pst_linear_config, own, config);
    pst_scratch *scratch = own.scratch;
    PSTI_CHECK_HANDLE(scratch, SCRATCH);
    pst_linear *linear = psti_handle_new(sizeof(*linear), PSTI_KIND_LINEAR);
    PSTI_CHECK(linear, PST_E_NOMEM, "no memory for a linear layer");
    linear->device = psti_scratch_device(scratch);
    linear->config = own;
    linear->config.struct_size = sizeof(own);
    linear->num_experts = num_experts ? num_experts : 1;
    linear->has_counts = num_experts > 0;
    linear->count_type = count_type;
    const pst_status status = make(linear);
    if (status != PST_OK) {
        psti_linear_free(linear);
        return status;
    }
    *linear_out = linear;
    return PST_OK;
}

void psti_linear_free(pst_linear *linear)
{
    psti_handle_free(linear);
}

pst_status pst_linear_create(const pst_linear_config *config, pst_linear **linear_out)
{
    PSTI_CHECK(linear_out, PST_E_INVALID, "linear_out is NULL");
    return psti_linear_make(config, 0, PST_COUNT_INT32, linear_out);
}

pst_status pst_linear_destroy(pst_linear *linear)
{
    if (!linear)
        return PST_OK;
    PSTI_CHECK_HANDLE(linear, LINEAR);
    psti_linear_free(linear);
    return PST_OK;
}

pst_status pst_linear_get_bytes(const pst_linear *linear, pst_linear_bytes *bytes_out)
{
    PSTI_CHECK_HANDLE(linear, LINEAR);
    PSTI_CHECK(bytes_out, PST_E_INVALID, "bytes_out is NULL");
    *bytes_out = linear->bytes;
    return PST_OK;
}

/* ---- operands ---- */

pst_status psti_padding_check(const char *name, const uint8_t *padding, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        PSTI_CHECK(padding[i] == 0, PST_E_INVALID, "%spadding[%zu] %u: must be 0", name, i,
                   padding[i]);
    return PST_OK;
}

static pst_status check_operand(const pst_scratch *scratch, const psti_operand *operand)
{
    pst_device *device = psti_scratch_device(scratch);
    PSTI_CHECK(operand->address || !operand->is_wanted, PST_E_INVALID, "%s is NULL", operand->name);
    PSTI_CHECK((uintptr_t)operand->address % ALIGNMENT == 0, PST_E_INVALID,
               "%s at %p: must be aligned to %d", operand->name, operand->address, ALIGNMENT);
    if (!operand->address)
        return PST_OK;
    PSTI_TRY(psti_scratch_check_operand(scratch, operand->name, operand->address, operand->bytes));
    if (!psti_is_check_mode())
        return PST_OK;
    return device->ops->check_address(device, operand->address, operand->bytes);
}

static bool overlap(const psti_operand *a, const psti_operand *b)
{
    const uintptr_t at = (uintptr_t)a->address, other = (uintptr_t)b->address;
    return a->address && b->address && (at - other < b->bytes || other - at < a->bytes);
}

pst_status psti_operands_check(const pst_scratch *scratch, const psti_operand *operands,
                               int num_operands)
{
    for (int i = 0; i < num_operands; i++)
        PSTI_TRY(check_operand(scratch, &operands[i]));
    for (int i = 0; i < num_operands; i++)
        for (int j = 0; j < i; j++) {
            const bool matters = operands[i].is_written || operands[j].is_written;
            PSTI_CHECK(!matters || !overlap(&operands[i], &operands[j]), PST_E_INVALID,
                       "%s at %p overlaps %s at %p", operands[i].name, operands[i].address,
                       operands[j].name, operands[j].address);
        }
    return PST_OK;
}

psti_matrix_bytes psti_linear_bytes_of(const pst_linear *linear)
{
    const pst_linear_config *config = &linear->config;
    const bool is_column = config->kind == PST_LINEAR_COLUMN;
    const uint64_t tokens = linear->num_experts * config->tokens;
    const uint64_t piece = tokens / (config->sequence_parallel ? linear->num_ranks : 1);
    const uint64_t elements = linear->num_experts * linear->rows * linear->columns;
    return (psti_matrix_bytes){
        .input = (is_column ? piece : tokens) * linear->columns * linear->size,
        .weight = elements * linear->size,
        .output = (is_column ? tokens : piece) * linear->rows * linear->size,
        .weight_gradient = elements * psti_dtype_bytes(config->weight_gradient_dtype)};
}

static pst_status check_gathered(const pst_linear *linear, const pst_linear_operands *operands)
{
    PSTI_CHECK(!operands->gathered || linear->bytes.gathered > 0, PST_E_INVALID,
               "gathered at %p: of column linears with sequence parallelism only",
               operands->gathered);
    return PST_OK;
}

static pst_status check_forward(const pst_linear *linear, const pst_linear_operands *operands)
{
    const psti_matrix_bytes bytes = psti_linear_bytes_of(linear);
    const void *own =
        operands->gathered ? (const char *)operands->gathered + linear->rank * bytes.input : NULL;
    const bool is_in_place = own && own == operands->input;
    const psti_operand all[] = {
        {"weight", operands->weight, bytes.weight, true, false},
        {"output", operands->output, bytes.output, true, true},
        {"gathered", operands->gathered, linear->bytes.gathered, false, true},
        {"input", operands->input, bytes.input, true, false},
    };
    PSTI_TRY(check_gathered(linear, operands));
    return psti_operands_check(linear->config.scratch, all, is_in_place ? 3 : 4);
}

static pst_status check_backward(const pst_linear *linear, const pst_linear_operands *operands)
{
    const psti_matrix_bytes bytes = psti_linear_bytes_of(linear);
    const bool has_weight = operands->weight_gradient, has_input = operands->input_gradient;
    const psti_operand all[] = {
        {"output_gradient", operands->output_gradient, bytes.output, has_weight || has_input,
         false},
        {"weight", operands->weight, bytes.weight, has_input, false},
        {"gathered", operands->gathered, linear->bytes.gathered, false, false},
        {"input", operands->input, bytes.input, has_weight && !operands->gathered, false},
        {"input_gradient", operands->input_gradient, bytes.input, false, true},
        {"weight_gradient", operands->weight_gradient, bytes.weight_gradient, false, true},
    };
    PSTI_TRY(check_gathered(linear, operands));
    return psti_operands_check(linear->config.scratch, all, 6);
}

/* ---- calls ---- */

pst_status pst_linear_forward(pst_linear *linear, const pst_linear_operands *operands,
                              pst_stream stream)
{
    psti_stage stage;
    PSTI_CHECK_HANDLE(linear, LINEAR);
    PSTI_CHECK(operands, PST_E_INVALID, "operands is NULL");
    PSTI_TAKE(pst_linear_operands, own, operands);
    PSTI_TRY(psti_padding_check("", own.padding, sizeof(own.padding)));
    PSTI_TRY(check_forward(linear, &own));
    PSTI_RANGE("pst_linear_forward");
    const bool is_column = linear->config.kind == PST_LINEAR_COLUMN;
    PSTI_TRY(psti_stage_begin(&stage, linear,
                              is_column ? "pst_linear_forward of a column linear"
                                        : "pst_linear_forward of a row linear",
                              stream));
    return psti_stage_end(&stage, is_column ? psti_column_forward(linear, &stage, &own)
                                            : psti_row_forward(linear, &stage, &own));
}

static pst_status row_backward(const pst_linear *linear, psti_stage *stage,
                               const pst_linear_operands *operands)
{
    const void *gradient = NULL;
    PSTI_TRY(psti_row_backward_input(linear, stage, operands, &gradient));
    return psti_row_backward_weight(linear, stage, operands, gradient);
}

pst_status pst_linear_backward(pst_linear *linear, const pst_linear_operands *operands,
                               pst_stream stream)
{
    psti_stage stage;
    PSTI_CHECK_HANDLE(linear, LINEAR);
    PSTI_CHECK(operands, PST_E_INVALID, "operands is NULL");
    PSTI_TAKE(pst_linear_operands, own, operands);
    PSTI_TRY(psti_padding_check("", own.padding, sizeof(own.padding)));
    PSTI_TRY(check_backward(linear, &own));
    if (!own.input_gradient && !own.weight_gradient)
        return PST_OK;
    PSTI_RANGE("pst_linear_backward");
    const bool is_column = linear->config.kind == PST_LINEAR_COLUMN;
    PSTI_TRY(psti_stage_begin(&stage, linear,
                              is_column ? "pst_linear_backward of a column linear"
                                        : "pst_linear_backward of a row linear",
                              stream));
    return psti_stage_end(&stage, is_column ? psti_column_backward(linear, &stage, &own)
                                            : row_backward(linear, &stage, &own));
}
