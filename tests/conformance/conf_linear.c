/* Blocks on devices: what is done late, and by the kernels of a GPU, gives the same results with pages and
 * without. On cuda operands are in pinned memory, which the test reads, too; there products are cuBLASLt's,
 * or of the library's kernel, and the host says what is wanted, within some roundings. */
#include "tests/conformance/conf.h"
#include "tests/host/linear/block_checks.h"
#include "tests/host/linear/matrices.h"
#include "tests/host/linear/product_case.h"

#define WITH_PRODUCTS (1u << CONF_HOST | 1u << CONF_LAZY | 1u << CONF_SIMT | 1u << CONF_CUDA)
#define CONFORMANCE_PRODUCTS(suite, name) CONF_DEFINE(suite, name, WITH_PRODUCTS)

static void begin_memory(const conf_run *conf)
{
    if (conf->kind == CONF_CUDA)
        test_memory_of(conf->device);
}

static void check_forms(const conf_run *conf, uint32_t num_experts)
{
    begin_memory(conf);
    for (int i = 0; i < BLOCK_FORMS; i++) {
        conf_vary(conf, (uint64_t)i);
        block_check_form(conf->device, num_experts, i);
    }
    test_memory_of(NULL);
}

CONFORMANCE_PRODUCTS(Linear, DenseBlocks)
{
    check_forms(conf, 0);
}

CONFORMANCE_PRODUCTS(Linear, BlocksOfExperts)
{
    check_forms(conf, BLOCK_EXPERTS);
}

static void check_graph(const conf_run *conf, uint32_t num_experts)
{
    begin_memory(conf);
    block_check_graph(conf->device, num_experts);
    test_memory_of(NULL);
}

CONFORMANCE_PRODUCTS(Linear, GraphsOfBlocks)
{
    check_graph(conf, BLOCK_EXPERTS);
}

CONFORMANCE_PRODUCTS(Linear, GraphsOfDenseBlocks)
{
    check_graph(conf, 0);
}

CONFORMANCE_PRODUCTS(Linear, ProductsOfEveryForm)
{
    uint64_t seed = conf_seed(0);
    const uint32_t cases = conf_cases(conf, 100);
    begin_memory(conf);
    for (uint32_t i = 0; i < cases && !psti_test_failed(); i++) {
        const product_case what = product_draw(&seed);
        CHECK(product_case_is_right(conf->device, &what, i));
    }
    test_memory_of(NULL);
}
