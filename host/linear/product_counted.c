/* Products of cuda that are counted on the device, by the library's own kernel. */
#include "host/linear/linear.h"

static psti_product_matrix place(const pst_matrix *matrix)
{
    const uint64_t size = psti_dtype_bytes(matrix->dtype);
    return (psti_product_matrix){.base = matrix->base,
                                 .row_stride = matrix->is_transposed ? size : matrix->row_stride,
                                 .column_stride = matrix->is_transposed ? matrix->row_stride : size,
                                 .expert_stride = matrix->expert_stride};
}

pst_status psti_product_enqueue_counted(pst_device *device, const pst_product *product,
                                        pst_stream stream)
{
    const psti_product_args args = {.a = place(&product->a),
                                    .b = place(&product->b),
                                    .c = place(&product->c),
                                    .d = place(&product->d),
                                    .counts = product->counts,
                                    .m = (uint32_t)product->m,
                                    .n = (uint32_t)product->n,
                                    .k = (uint32_t)product->k,
                                    .num_experts = product->num_experts,
                                    .dtype = product->a.dtype,
                                    .of_d = product->d.dtype,
                                    .live = product->live,
                                    .count_type = product->count_type};
    return device->ops->launch(device, PSTI_OP_PRODUCT, &args, stream);
}
