/* Layers of several ranks on cuda: exchanges by a pretended NCCL, products by a pretended cuBLASLt, results
 * near those of double, and the same bits from graphs. */
#include "tests/host/comm/nccl_scene.h"
#include "tests/host/linear/cublaslt_scene.h"
#include "tests/host/linear/layer.h"

#include <stdio.h>

enum { NUM_FORMS = 32, WORKSPACE = 1 << 20 };

/* Both kinds, whole and in rings, with sequence parallelism and without, fp32 and bf16, new and added to. */
static layer_form form_of(int i, int num_ranks)
{
    layer_form form = {.num_ranks = num_ranks, .kind = (pst_linear_kind)(i & 1)};
    form.sequence_parallel = (i & 2) != 0;
    form.pieces = (uint32_t)(i >> 2) & 1;
    form.dtype = (i & 8) ? PST_DTYPE_BF16 : PST_DTYPE_FP32;
    form.of_gradient = PST_DTYPE_FP32;
    form.accumulates = (i & 16) != 0;
    form.tokens = 4;
    form.in = 16 * (uint64_t)num_ranks;
    form.out = 8 * (uint64_t)num_ranks;
    return form;
}

/* Both ways in one graph, launched twice: the bits of the calls. All ranks launch theirs. */
static void replay(const nccl_rank *self, layer *of, pst_linear *linear)
{
    pst_device *const device = self->at.device;
    layer_tensor *const results[] = {&of->output, &of->input_gradient, &of->weight_gradient};
    layer_tensor called[3];
    pst_graph *graph = NULL;
    const pst_linear_operands operands = layer_operands(of);
    for (int i = 0; i < 3; i++)
        called[i] = tensor_copy(results[i]);
    layer_clear(of);
    WANT_OK(pst_graph_begin(device, self->stream));
    WANT_OK(pst_linear_forward(linear, &operands, self->stream));
    WANT_OK(pst_linear_backward(linear, &operands, self->stream));
    WANT_OK(pst_graph_end(device, self->stream, &graph));
    for (int i = 0; i < 3; i++)
        WANT(!tensor_is(results[i], &called[i])); /* nothing was done in the capture */
    for (int launch = 0; launch < 2; launch++) {
        layer_clear(of);
        WANT_OK(pst_graph_launch(graph, self->stream));
        WANT_OK(pst_stream_synchronize(device, self->stream));
        for (int i = 0; i < 3; i++)
            WANT(tensor_is(results[i], &called[i]));
    }
    WANT_OK(pst_graph_destroy(graph));
    for (int i = 0; i < 3; i++)
        tensor_free(&called[i]);
}

static void run_form(const nccl_rank *self, pst_device *host, const layer_form *form)
{
    layer of;
    pst_scratch *scratch = NULL;
    pst_linear *linear = NULL;
    pst_scratch_info info;
    layer_open(&of, form, self->rank, host);
    WANT_OK(pst_scratch_create(self->at.device, NULL, &scratch));
    pst_linear_config config = layer_config(&of, self->comm, scratch);
    const pst_linear_operands operands = layer_operands(&of);
    config.workspace_bytes = WORKSPACE;
    WANT_OK(pst_linear_create(&config, &linear));
    WANT_OK(pst_linear_forward(linear, &operands, self->stream));
    WANT_OK(pst_linear_backward(linear, &operands, self->stream));
    WANT_OK(pst_stream_synchronize(self->at.device, self->stream));
    WANT(layer_is_near(&of));
    replay(self, &of, linear);
    WANT_OK(pst_scratch_get_info(scratch, &info));
    WANT(info.num_live == 0 && info.peak_leased_bytes >= WORKSPACE);
    WANT_OK(pst_linear_destroy(linear));
    WANT_OK(pst_scratch_destroy(scratch));
    layer_close(&of);
}

static void run_forms(nccl_rank *self)
{
    pst_device *host = NULL;
    WANT_OK(pst_device_open("host", 0, &host));
    lt_enqueue_on(self->at.device);
    nccl_enqueue_on(self->at.device);
    for (int i = 0; i < NUM_FORMS; i++) {
        const layer_form form = form_of(i, self->num_ranks);
        run_form(self, host, &form);
    }
    WANT(lt_fake()->matmuls >= 3 * NUM_FORMS);
    WANT_OK(pst_device_close(host));
}

PST_CHILD(lt_ranks)
{
    for (int num_ranks = 1; num_ranks <= FAKE_RANKS; num_ranks *= 2)
        nccl_run(num_ranks, false, 200000, run_forms);
    puts("done");
}

PST_TEST(CublasLt, LayersOfSeveralRanksAreThoseOfDouble)
{
    const char *const variables[] = {"PAGESTASH_CUBLASLT_LIBRARY=" PSTI_FAKE_CUBLASLT,
                                     "PAGESTASH_NCCL_LIBRARY=" PSTI_FAKE_NCCL,
                                     "FAKE_NCCL_VERSION=21400", NULL};
    child_result child;
    CHECK(child_run("lt_ranks", variables, &child) && child.exited);
    CHECK_STR(child.out, "done\n");
    CHECK_STR(child.err, "");
}
