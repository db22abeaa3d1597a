/* What pst_glu_forward and pst_glu_backward accept. */
#include "tests/host/stash/scene.h"

enum { FEATURES = SMALL_ROW / 4 }; /* of bf16 */

/* The scene's group with a second tensor, and calls that are right until a field is spoiled. */
typedef struct glu_scene {
    small_scene base;
    pst_tensor tensors[2];
    void *bases[2];
    pst_glu glu;
    pst_glu_operands forward, backward;
    pst_ticket ticket; /* of the calls */
    pst_stash_options stash;
    pst_restore_options restore;
    pst_device *device;
    pst_group *group;
    pst_buffers buffers;
} glu_scene;

static unsigned char other_rows[SMALL_CAPACITY * 64] __attribute__((aligned(16)));
static unsigned char output[SMALL_BYTES] __attribute__((aligned(16)));
static unsigned char gradient[SMALL_BYTES] __attribute__((aligned(16)));
static unsigned char input_gradient[SMALL_BYTES] __attribute__((aligned(16)));
static float probability[SMALL_CAPACITY], probability_gradient[SMALL_CAPACITY];

static void open_scene(glu_scene *self)
{
    memset(self, 0, sizeof(*self));
    small_scene *base = &self->base;
    small_configs(base);
    self->tensors[0] = (pst_tensor){.row_bytes = SMALL_ROW, .written_by = PST_WRITTEN_BY_GLU};
    self->tensors[1] = (pst_tensor){.row_bytes = 64};
    base->group_config.tensors = self->tensors;
    base->group_config.num_tensors = 2;
    self->bases[0] = base->rows;
    self->bases[1] = other_rows;
    base->buffers.bases = self->bases;
    CHECK_OK(pst_pool_create(base->device, &base->pool_config, &base->pool));
    CHECK_OK(pst_group_create(&base->group_config, &base->group));
    CHECK_OK(pst_ticket_create(base->pool, base->group, &base->ticket));
    self->device = base->device;
    self->group = base->group;
    self->ticket = base->ticket;
    self->buffers = base->buffers;
    self->glu = (pst_glu)PST_GLU_INIT;
    self->stash = (pst_stash_options)PST_STASH_OPTIONS_INIT;
    self->restore = (pst_restore_options)PST_RESTORE_OPTIONS_INIT;
    self->forward = self->backward = (pst_glu_operands)PST_GLU_OPERANDS_INIT;
    self->forward.output.base = output;
    self->forward.probability.base = probability;
    self->backward = self->forward;
    self->backward.gradient.base = gradient;
    self->backward.input_gradient.base = input_gradient;
    self->backward.probability_gradient.base = probability_gradient;
    memset(base->rows, 0, SMALL_BYTES);
}

static pst_status call_forward(const glu_scene *self)
{
    return pst_glu_forward(self->device, &self->glu, self->ticket, self->group, &self->buffers,
                           &self->forward, &self->stash, NULL);
}

static pst_status call_backward(glu_scene *self)
{
    void *const bases[2] = {self->ticket.id ? NULL : self->bases[0], self->bases[1]};
    pst_buffers buffers = self->buffers;
    buffers.bases = buffers.bases ? bases : NULL;
    return pst_glu_backward(self->device, &self->glu, self->ticket, self->group, &buffers,
                            &self->backward, &self->restore, NULL);
}

/* Both calls, with a ticket and without, are right as they are. */
static void check_accepted(glu_scene *self)
{
    CHECK_OK(call_forward(self));
    CHECK_OK(call_backward(self));
    const pst_ticket ticket = self->ticket;
    self->ticket.id = 0;
    CHECK_OK(call_forward(self));
    CHECK_OK(call_backward(self));
    self->ticket = ticket;
    CHECK_EQ(small_status(self->base.pool).num_faults, 0);
}

/* With `field` at `value` that call is refused with this message, and again accepted without. */
#define CHECK_REFUSED(self, call, field, value, message) \
    do {                                                 \
        const glu_scene before = *(self);                \
        (self)->field = (value);                         \
        CHECK_STATUS(call(self), PST_E_INVALID);         \
        CHECK_SAID(message);                             \
        *(self) = before;                                \
    } while (0)
#define CHECK_BOTH_REFUSED(self, field, value, message)            \
    do {                                                           \
        CHECK_REFUSED(self, call_forward, field, value, message);  \
        CHECK_REFUSED(self, call_backward, field, value, message); \
    } while (0)

static void close_scene(glu_scene *self)
{
    self->base.ticket = self->ticket;
    check_accepted(self);
    small_close(&self->base);
}

PST_TEST(Glu, EveryFieldOfTheDescriptionIsChecked)
{
    glu_scene self;
    open_scene(&self);
    CHECK_BOTH_REFUSED(&self, device, NULL, "device is NULL");
    CHECK_BOTH_REFUSED(&self, group, NULL, "group is NULL");
    CHECK_BOTH_REFUSED(&self, ticket.id, 12345, "ticket 0x3039: destroyed, given back or never");
    CHECK_BOTH_REFUSED(&self, glu.struct_size, 8, "struct_size 8: pst_glu has 32");
    CHECK_BOTH_REFUSED(&self, glu.kind, (pst_glu_kind)6, "glu: kind 6: allowed are 0 to 5");
    CHECK_BOTH_REFUSED(&self, glu.kind, (pst_glu_kind)-1, "glu: kind -1: allowed are 0 to 5");
    CHECK_BOTH_REFUSED(&self, glu.dtype, (pst_glu_dtype)3,
                       "glu: dtype 3: allowed are bf16, fp16 and fp32");
    CHECK_BOTH_REFUSED(&self, glu.interleave, 2, "glu: interleave 2: allowed are 0, 1 and 32");
    CHECK_BOTH_REFUSED(&self, glu.limit, 1.0f, "glu: limit 1: must be 0 but for clamped");
    CHECK_BOTH_REFUSED(&self, glu.alpha, 1.0f, "glu: alpha 1: must be 0 but for clamped");
    CHECK_BOTH_REFUSED(&self, glu.bias, 1.0f, "glu: bias 1: must be 0 but for clamped");
    self.glu.kind = PST_GLU_CLAMPED;
    CHECK_BOTH_REFUSED(&self, glu.bias, 1.0f, "glu: limit 0: must be above 0");
    self.glu.limit = 7;
    CHECK_BOTH_REFUSED(&self, glu.limit, -1.0f, "glu: limit -1: must be above 0");
    CHECK_BOTH_REFUSED(&self, glu.limit, __builtin_nanf(""), "glu: limit nan: must be above 0");
    CHECK_BOTH_REFUSED(&self, glu.alpha, 1.0f / 0.0f, "glu: alpha inf: must be finite");
    CHECK_BOTH_REFUSED(&self, glu.bias, -1.0f / 0.0f, "glu: bias -inf: must be finite");
    self.glu.interleave = 32;
    close_scene(&self);
}

PST_TEST(Glu, EveryOperandIsChecked)
{
    glu_scene self;
    open_scene(&self);
    CHECK_REFUSED(&self, call_forward, buffers.bases, NULL, "source: bases is NULL");
    CHECK_REFUSED(&self, call_backward, buffers.bases, NULL, "buffers: bases is NULL");
    CHECK_REFUSED(&self, call_forward, forward.struct_size, 8, "struct_size 8: pst_glu_operands");
    CHECK_REFUSED(&self, call_forward, forward.output.base, NULL, "output is NULL");
    CHECK_REFUSED(&self, call_forward, forward.output.base, output + 1, "output at ");
    CHECK_REFUSED(&self, call_forward, forward.output.row_stride, 2 * FEATURES - 2,
                  "output: row_stride 2046: a row has 2048 bytes");
    CHECK_REFUSED(&self, call_forward, forward.output.row_stride, 2 * FEATURES + 1, "output at ");
    CHECK_REFUSED(&self, call_forward, forward.output.segment_stride, 2,
                  "output: segment_stride 2: a segment at capacity has 16384 bytes");
    CHECK_REFUSED(&self, call_forward, forward.probability.base, (char *)probability + 2,
                  "probability at ");
    CHECK_REFUSED(&self, call_forward, forward.gradient.base, gradient,
                  "gradients: must be NULL in forward");
    CHECK_REFUSED(&self, call_forward, forward.probability_gradient.base, probability,
                  "gradients: must be NULL in forward");
    CHECK_REFUSED(&self, call_forward, bases[0], self.base.rows + 1, "input at ");
    CHECK_REFUSED(&self, call_forward, bases[0], NULL, "source: bases[0] is NULL");
    CHECK_REFUSED(&self, call_forward, bases[1], NULL, "source: bases[1] is NULL");
    CHECK_REFUSED(&self, call_backward, backward.gradient.base, NULL, "gradient or input_gradient");
    CHECK_REFUSED(&self, call_backward, backward.input_gradient.base, NULL,
                  "gradient or input_gradient is NULL");
    CHECK_REFUSED(&self, call_backward, backward.input_gradient.row_stride, SMALL_ROW - 2,
                  "input_gradient: row_stride 4094: a row has 4096 bytes");
    CHECK_REFUSED(&self, call_backward, bases[1], NULL, "buffers: bases[1] is NULL");
    CHECK_REFUSED(&self, call_backward, restore.tail, PST_TAIL_ZERO_ALL, "tail 2: in pst_glu_back");
    CHECK_REFUSED(&self, call_backward, restore.failed, (pst_restore_failed)2, "failed 2: allowed");
    self.restore.pages = PST_RESTORE_KEEP;
    self.bases[1] = NULL;
    CHECK_STATUS(call_forward(&self), PST_E_INVALID);
    self.bases[1] = other_rows;
    CHECK_OK(call_forward(&self));
    self.bases[1] = NULL;
    CHECK_OK(call_backward(&self));
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    self.bases[1] = other_rows;
    self.restore.pages = PST_RESTORE_CONSUME;
    close_scene(&self);
}

/* Addresses within the pool's pages, and an input that is named although it is read in the pages. */
PST_TEST(Glu, AddressesAreChecked)
{
    glu_scene self;
    pst_pool_info info;
    open_scene(&self);
    CHECK_OK(pst_pool_get_info(self.base.pool, &info));
    unsigned char *page = (unsigned char *)(uintptr_t)info.pages[0];
    CHECK_REFUSED(&self, call_forward, forward.output.base, page, "output at ");
    CHECK_REFUSED(&self, call_backward, backward.gradient.base, page + 16384, "gradient at ");
    CHECK_STATUS(pst_glu_backward(self.device, &self.glu, self.ticket, self.group, &self.buffers,
                                  &self.backward, NULL, NULL),
                 PST_E_INVALID);
    CHECK_SAID("buffers: bases[0] at ");
    self.ticket.id = 0; /* then nobody else's bases are looked at, and the input's is needed */
    self.bases[1] = NULL;
    CHECK_OK(call_forward(&self));
    CHECK_OK(call_backward(&self));
    CHECK_REFUSED(&self, call_forward, bases[0], NULL, "input: bases[0] is NULL, and there is no");
    CHECK_REFUSED(&self, call_backward, bases[0], NULL, "input: bases[0] is NULL, and there is no");
    self.ticket = self.base.ticket;
    self.bases[1] = other_rows;
    close_scene(&self);
}

static void check_group_refused(glu_scene *self, const char *message)
{
    pst_group *group = NULL;
    CHECK_STATUS(pst_group_create(&self->base.group_config, &group), PST_E_INVALID);
    CHECK_SAID(message);
}

/* Of groups that can be made: the input does not suit the GLU. */
static void check_input_refused(glu_scene *self, const char *message)
{
    pst_group *const good = self->group;
    CHECK_OK(pst_group_create(&self->base.group_config, &self->group));
    CHECK_STATUS(call_forward(self), PST_E_INVALID);
    CHECK_SAID(message);
    CHECK_STATUS(call_backward(self), PST_E_INVALID);
    CHECK_SAID(message);
    CHECK_OK(pst_group_destroy(self->group));
    self->group = good;
}

PST_TEST(Glu, TheInputIsChecked)
{
    glu_scene self;
    open_scene(&self);
    self.tensors[1].written_by = PST_WRITTEN_BY_GLU;
    check_group_refused(&self, "tensor 1: written by a GLU, as is tensor 0: allowed is one");
    self.tensors[1].num = 1;
    self.tensors[1].den = 2;
    check_group_refused(&self, "tensor 1: ratio 1/2: of what a GLU writes it must be 1/1");
    self.tensors[1] = (pst_tensor){.row_bytes = 64};
    self.tensors[0].written_by = PST_WRITTEN_BY_STASH;
    check_input_refused(&self, "group: no tensor is written by a GLU");
    self.tensors[0].written_by = PST_WRITTEN_BY_GLU;
    self.tensors[0].row_bytes = SMALL_ROW - 2;
    check_input_refused(&self, "tensor 0: row_bytes 4094: must be 2 F elements of 2 bytes");
    self.tensors[0].row_bytes = (uint64_t)1 << 34;
    self.base.space.capacity = 1;
    check_input_refused(&self,
                        "tensor 0: row_bytes 17179869184: must be 2 F elements of 2 bytes, F up");
    self.base.space.capacity = SMALL_CAPACITY;
    self.tensors[0].row_bytes = SMALL_ROW - 4;
    self.glu.interleave = 32;
    check_input_refused(&self, "tensor 0: F 1023: must be a multiple of interleave 32");
    self.glu.interleave = 0;
    close_scene(&self);
}

/* What a backward restores it cannot read, and what a forward stashes it cannot write. */
PST_TEST(Glu, OperandsAreNotTheGroupsTensors)
{
    glu_scene self;
    open_scene(&self);
    CHECK_REFUSED(&self, call_forward, forward.output.base, self.base.rows, "output at ");
    CHECK_REFUSED(&self, call_forward, forward.output.base, self.base.rows + SMALL_BYTES - 16,
                  "output at ");
    CHECK_REFUSED(&self, call_backward, backward.probability.base, other_rows + 508,
                  "probability at ");
    CHECK_REFUSED(&self, call_backward, backward.gradient.base, other_rows + 496, "gradient at ");
    CHECK_REFUSED(&self, call_backward, backward.probability_gradient.base, other_rows,
                  "probability_gradient at ");
    self.forward.probability.base = other_rows; /* both only read it */
    CHECK_OK(call_forward(&self));
    CHECK_OK(call_backward(&self));
    self.forward.probability.base = probability;
    close_scene(&self);
}

PST_TEST(Glu, ResultsAreTheirOwn)
{
    glu_scene self;
    static unsigned char room[2 * SMALL_BYTES] __attribute__((aligned(16)));
    unsigned char *const last = room + SMALL_BYTES / 2 - 2;
    open_scene(&self);
    self.backward.output.base = room;
    CHECK_REFUSED(&self, call_forward, forward.probability.base, output, "probability at ");
    CHECK(strstr(pst_last_message(), "overlap output at "));
    CHECK_REFUSED(&self, call_backward, backward.output.base, gradient, "gradient at ");
    CHECK_REFUSED(&self, call_backward, backward.input_gradient.base, last, "input_gradient at ");
    CHECK(strstr(pst_last_message(), "overlap output at "));
    CHECK_REFUSED(&self, call_backward, backward.probability_gradient.base, probability,
                  "probability_gradient at ");
    CHECK_REFUSED(&self, call_backward, backward.input_gradient.base, gradient,
                  "input_gradient at ");
    self.backward.gradient.base = last + 2; /* both ends touch */
    CHECK_OK(call_forward(&self));
    CHECK_OK(call_backward(&self));
    self.backward.gradient.base = gradient;
    self.backward.output.base = output;
    self.ticket.id = 0;
    CHECK_REFUSED(&self, call_forward, forward.output.base, self.base.rows, "output at ");
    CHECK_REFUSED(&self, call_backward, backward.input_gradient.base, self.base.rows,
                  "input_gradient at ");
    CHECK(strstr(pst_last_message(), "overlap tensor 0"));
    self.bases[1] = output; /* another tensor, which nobody looks at here */
    CHECK_OK(call_forward(&self));
    self.bases[1] = other_rows;
    self.ticket = self.base.ticket;
    close_scene(&self);
}

PST_TEST(Glu, OtherBackendsAreUnsupported)
{
    glu_scene self;
    open_scene(&self);
    self.stash.launch.backend = self.restore.launch.backend = PST_BACKEND_BULK;
    CHECK_STATUS(call_forward(&self), PST_E_UNSUPPORTED);
    CHECK_STATUS(call_backward(&self), PST_E_UNSUPPORTED);
    self.stash.launch.backend = self.restore.launch.backend = PST_BACKEND_AUTO;
    close_scene(&self);
}
