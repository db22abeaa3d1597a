/* Scratch: what is leased, by whom, and what is refused. */
#include <pagestash/scratch.h>

#include <stdio.h>
#include <string.h>

#include "host/base/handle.h"
#include "host/comm/comm.h"
#include "host/device/device.h"
#include "tests/harness.h"

enum { BYTES = 1000 };

typedef struct scene {
    pst_device *device;
    pst_scratch *scratch;
    pst_stream stream;
} scene;

static void open_scene(scene *self, const pst_scratch_config *config)
{
    *self = (scene){.device = NULL};
    CHECK_OK(pst_device_open("host", 0, &self->device));
    CHECK_OK(pst_scratch_create(self->device, config, &self->scratch));
    CHECK_OK(pst_stream_create(self->device, &self->stream));
}

static void close_scene(scene *self)
{
    CHECK_OK(pst_scratch_destroy(self->scratch));
    CHECK_OK(pst_stream_destroy(self->device, self->stream));
    CHECK_EQ(self->device->live, 0);
    CHECK_OK(pst_device_close(self->device));
}

static pst_status lease(const scene *self, const char *name, uint64_t bytes, const char *place,
                        pst_lease *lease_out)
{
    return pst_scratch_lease(self->scratch, name, bytes, place, self->stream, lease_out);
}

static pst_scratch_info info_of(const scene *self)
{
    pst_scratch_info info = {0};
    if (pst_scratch_get_info(self->scratch, &info) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    return info;
}

PST_TEST(Scratch, OneNameOneAddress)
{
    scene self;
    pst_lease a, b, again;
    open_scene(&self, NULL);
    CHECK_OK(lease(&self, "a", BYTES, "first", &a));
    CHECK_OK(lease(&self, "b", 1, "first", &b));
    CHECK_EQ((uintptr_t)a.address % 256, 0);
    CHECK(a.address != b.address && a.id != b.id && a.bytes == BYTES);
    memset(a.address, 1, BYTES);
    CHECK_EQ(info_of(&self).leased_bytes, BYTES + 1);
    const pst_lease before = a;
    CHECK_OK(pst_scratch_release(self.scratch, &a, "first", self.stream));
    CHECK(a.id == 0 && a.bytes == 0 && !a.address);
    CHECK_OK(lease(&self, "a", 3 << 20, "second", &again)); /* grows where it is */
    CHECK(again.address == before.address && again.id != before.id);
    memset(again.address, 2, 3 << 20);
    CHECK_OK(pst_scratch_release(self.scratch, &again, "second", self.stream));
    CHECK_OK(pst_scratch_release(self.scratch, &b, "second", self.stream));
    const pst_scratch_info info = info_of(&self);
    CHECK_EQ(info.num_names, 2);
    CHECK_EQ(info.num_live, 0);
    CHECK_EQ(info.num_leases, 3);
    CHECK_EQ(info.leased_bytes, 0);
    CHECK_EQ(info.peak_leased_bytes, (3 << 20) + 1);
    CHECK_EQ(info.num_waits, 0); /* one stream */
    CHECK(info.mapped_bytes >= (3 << 20) + 1 && info.mapped_bytes == info.peak_mapped_bytes);
    CHECK_OK(pst_scratch_trim(self.scratch));
    CHECK_EQ(info_of(&self).mapped_bytes, 0);
    close_scene(&self);
}

/* The fault of a recycled buffer that a backward still needs: who keeps it is told when the next
 * layer wants it, by both names; who keeps the address alone reads NaN in check mode. */
PST_TEST(Scratch, WhatABackwardStillNeedsIsNotGivenAway)
{
    scene self;
    pst_lease first, second;
    open_scene(&self, NULL);
    CHECK_OK(pst_scratch_scope_begin(self.scratch, "layer 0, forward"));
    CHECK_OK(lease(&self, "allgather", BYTES, "column linear of layer 0", &first));
    memset(first.address, 0, BYTES);
    CHECK_STATUS(pst_scratch_scope_end(self.scratch), PST_E_ORDER);
    CHECK_SAID(
        "the scope 'layer 0, forward' ends, but 'allgather', which 'column linear of layer 0' "
        "has leased in it, was not released");
    CHECK_OK(pst_scratch_scope_begin(self.scratch, "layer 1, forward"));
    CHECK_STATUS(lease(&self, "allgather", BYTES, "column linear of layer 1", &second), PST_E_BUSY);
    CHECK_SAID(
        "'allgather' is wanted by 'column linear of layer 1', but 'column linear of layer 0' "
        "has leased it, in layer 0, forward, and not released it");
    const unsigned char *kept = first.address;
    CHECK_OK(pst_scratch_release(self.scratch, &first, "column linear of layer 0", self.stream));
    for (uint32_t i = 0; i < BYTES; i++)
        CHECK_EQ(kept[i], psti_is_check_mode() ? 0xff : 0);
    CHECK_OK(lease(&self, "allgather", BYTES, "column linear of layer 1", &second));
    CHECK_OK(pst_scratch_release(self.scratch, &second, "column linear of layer 1", self.stream));
    CHECK_OK(pst_scratch_scope_end(self.scratch));
    close_scene(&self);
}

PST_TEST(Scratch, ScopesNest)
{
    scene self;
    pst_lease outer, inner;
    open_scene(&self, NULL);
    CHECK_STATUS(pst_scratch_scope_end(self.scratch), PST_E_ORDER);
    CHECK_SAID("no scope is open");
    CHECK_OK(pst_scratch_scope_begin(self.scratch, "step"));
    CHECK_OK(lease(&self, "a", 1, "of the step", &outer));
    CHECK_OK(pst_scratch_scope_begin(self.scratch, "layer"));
    CHECK_OK(lease(&self, "b", 1, "of the layer", &inner));
    CHECK_STATUS(pst_scratch_scope_end(self.scratch), PST_E_ORDER);
    CHECK_SAID("the scope 'layer' ends, but 'b', which 'of the layer' has leased in it");
    CHECK_STATUS(pst_scratch_scope_end(self.scratch),
                 PST_E_ORDER); /* it counts as the step's now */
    CHECK_SAID("the scope 'step' ends, but 'b', which 'of the layer' has leased in it");
    CHECK_STATUS(pst_scratch_destroy(self.scratch), PST_E_BUSY);
    CHECK_SAID("'a' is leased by 'of the step', in step");
    CHECK_OK(pst_scratch_release(self.scratch, &outer, "end", self.stream));
    CHECK_OK(pst_scratch_release(self.scratch, &inner, "end", self.stream));
    CHECK_OK(pst_scratch_scope_begin(self.scratch, "left open"));
    close_scene(&self);
}

PST_TEST(Scratch, LeasesAreChecked)
{
    scene self, other;
    pst_scratch_config config = PST_SCRATCH_CONFIG_INIT;
    pst_lease a, of_other, copy;
    char name[PST_SCRATCH_MAX_NAME_BYTES + 1];
    config.reserve_bytes = 65536;
    open_scene(&self, &config);
    open_scene(&other, NULL);
    memset(name, 'x', sizeof(name));
    name[PST_SCRATCH_MAX_NAME_BYTES] = '\0';
    CHECK_STATUS(lease(&self, name, 1, "here", &a), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "...': at most 63 bytes are allowed"));
    CHECK_STATUS(lease(&self, "a", 1, name, &a), PST_E_INVALID);
    CHECK_SAID("place 'xxxx");
    CHECK_STATUS(lease(&self, NULL, 1, "here", &a), PST_E_INVALID);
    CHECK_SAID("name is NULL");
    CHECK_STATUS(lease(&self, "a", 1, "", &a), PST_E_INVALID);
    CHECK_SAID("place is empty");
    CHECK_STATUS(lease(&self, "a", 0, "here", &a), PST_E_INVALID);
    CHECK_SAID("'a': 0 bytes: allowed are 1 to reserve_bytes, 65536");
    CHECK_STATUS(lease(&self, "a", 65537, "here", &a), PST_E_INVALID);
    CHECK_STATUS(pst_scratch_reserve(self.scratch, "a", 65537), PST_E_INVALID);
    CHECK_STATUS(pst_scratch_lease(self.scratch, "a", 1, "here", (pst_stream)&self, &a),
                 PST_E_INVALID);
    CHECK_STATUS(pst_scratch_lease(self.scratch, "a", 1, "here", NULL, NULL), PST_E_INVALID);
    CHECK_EQ(info_of(&self).num_names, 0);
    name[PST_SCRATCH_MAX_NAME_BYTES - 1] = '\0';
    CHECK_OK(lease(&self, name, 65536, name, &a));
    copy = a;
    CHECK_OK(lease(&other, "a", 1, "here", &of_other));
    CHECK_STATUS(pst_scratch_release(self.scratch, &of_other, "here", NULL), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "is no live one of this scratch"));
    CHECK_STATUS(pst_scratch_release(self.scratch, &a, "here", (pst_stream)&self), PST_E_INVALID);
    CHECK_OK(pst_scratch_release(self.scratch, &a, "there", NULL));
    CHECK_STATUS(pst_scratch_release(self.scratch, &a, "here", NULL), PST_E_INVALID);
    CHECK_STATUS(pst_scratch_release(self.scratch, &copy, "here", NULL), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "'there' has released it before"));
    CHECK_OK(pst_scratch_release(other.scratch, &of_other, "here", NULL));
    close_scene(&other);
    close_scene(&self);
}

PST_TEST(Scratch, OperandsLieInNoBufferThatNobodyHasLeased)
{
    scene self;
    pst_lease a;
    open_scene(&self, NULL);
    CHECK_OK(lease(&self, "a", BYTES, "first", &a));
    unsigned char *const at = a.address;
    CHECK_OK(psti_scratch_check_operand(self.scratch, "x", at, 8));
    CHECK_OK(pst_scratch_release(self.scratch, &a, "first", self.stream));
    CHECK_STATUS(psti_scratch_check_operand(self.scratch, "x", at, 8), PST_E_INVALID);
    CHECK_STATUS(psti_scratch_check_operand(self.scratch, "x", at + 8, 8), PST_E_INVALID);
    CHECK_OK(psti_scratch_check_operand(self.scratch, "x", at - 8, 8)); /* up to it */
    CHECK_STATUS(psti_scratch_check_operand(self.scratch, "x", at - 8, 9), PST_E_INVALID);
    close_scene(&self);
}

PST_TEST(Scratch, SoManyNames)
{
    scene self;
    char name[16];
    pst_lease a;
    open_scene(&self, NULL);
    for (uint32_t i = 0; i < PST_SCRATCH_MAX_NAMES; i++) {
        snprintf(name, sizeof(name), "name %u", i);
        CHECK_OK(pst_scratch_reserve(self.scratch, name, 1));
    }
    CHECK_STATUS(pst_scratch_reserve(self.scratch, "one more", 1), PST_E_BUSY);
    CHECK_SAID("'one more': the scratch has 64 names already");
    CHECK_OK(lease(&self, "name 63", 1, "here", &a));
    CHECK_OK(pst_scratch_release(self.scratch, &a, "here", NULL));
    close_scene(&self);
}

PST_TEST(Scratch, NothingGrowsInACapture)
{
    scene self;
    pst_lease a;
    pst_graph *graph = NULL;
    open_scene(&self, NULL);
    CHECK_OK(pst_scratch_reserve(self.scratch, "a", 65536));
    CHECK_OK(pst_graph_begin(self.device, self.stream));
    CHECK_STATUS(lease(&self, "a", 65537, "here", &a), PST_E_CAPTURE);
    CHECK_SAID("'a' has 65536 bytes, 65537 are wanted by 'here' in a capture: pst_scratch_reserve");
    CHECK_STATUS(lease(&self, "b", 1, "here", &a), PST_E_CAPTURE);
    CHECK_OK(lease(&self, "a", 65536, "here", &a)); /* the capture is whole */
    CHECK_OK(pst_scratch_release(self.scratch, &a, "here", self.stream));
    CHECK_OK(pst_graph_end(self.device, self.stream, &graph));
    CHECK_EQ(info_of(&self).num_names, 1);
    CHECK_STATUS(pst_scratch_destroy(self.scratch), PST_E_BUSY);
    CHECK_SAID("1 captured graphs lease 'a'");
    CHECK_OK(pst_graph_launch(graph, self.stream));
    CHECK_OK(pst_scratch_trim(self.scratch));
    CHECK_EQ(info_of(&self).mapped_bytes, 65536);
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_STATUS(pst_device_close(self.device), PST_E_BUSY);
    CHECK_SAID("1 scratch");
    close_scene(&self);
}

static pst_status work(const scene *self)
{
    pst_lease a;
    pst_status status = pst_scratch_scope_begin(self->scratch, "work");
    if (status == PST_OK)
        status = pst_scratch_reserve(self->scratch, "a", 70000);
    if (status == PST_OK && (status = lease(self, "b", 300000, "work", &a)) == PST_OK)
        status = pst_scratch_release(self->scratch, &a, "work", NULL);
    return status;
}

PST_TEST(Scratch, WithoutMemory)
{
    scene self;
    pst_status status = PST_E_NOMEM;
    pst_scratch *none = NULL;
    open_scene(&self, NULL);
    psti_fail_allocation_after(0);
    CHECK_STATUS(pst_scratch_create(self.device, NULL, &none), PST_E_NOMEM);
    for (long i = 0; i < 20 && status != PST_OK; i++) {
        psti_fail_allocation_after(i);
        status = work(&self);
        psti_fail_allocation_after(-1);
        CHECK_EQ(info_of(&self).num_live, 0);
        CHECK_OK(pst_scratch_destroy(self.scratch));
        CHECK_OK(pst_scratch_create(self.device, NULL, &self.scratch));
    }
    CHECK_OK(status);
    close_scene(&self);
}

PST_TEST(Scratch, NoScratch)
{
    pst_scratch_info info;
    pst_lease a;
    pst_device *device = NULL;
    pst_scratch *scratch = NULL;
    pst_scratch_config config = PST_SCRATCH_CONFIG_INIT;
    CHECK_OK(pst_device_open("host", 0, &device));
    config.reserve_bytes = UINT64_C(1) << 46;
    CHECK_STATUS(pst_scratch_create(device, &config, &scratch), PST_E_INVALID);
    CHECK_SAID("reserve_bytes 70368744177664: at most");
    CHECK_STATUS(pst_scratch_create(NULL, NULL, &scratch), PST_E_INVALID);
    CHECK_STATUS(pst_scratch_create(device, NULL, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_scratch_lease(NULL, "a", 1, "here", NULL, &a), PST_E_INVALID);
    CHECK_STATUS(pst_scratch_get_info(NULL, &info), PST_E_INVALID);
    CHECK_STATUS(pst_scratch_trim(NULL), PST_E_INVALID);
    CHECK_OK(pst_scratch_destroy(NULL));
    CHECK_OK(pst_device_close(device));
}
