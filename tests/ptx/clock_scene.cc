#include "tests/ptx/clock_scene.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

pst_tensor clock_tensor(uint32_t row_bytes)
{
    pst_tensor tensor;
    memset(&tensor, 0, sizeof(tensor));
    tensor.row_bytes = row_bytes;
    return tensor;
}

void *clock_alloc(clock_scene &scene, uint64_t bytes)
{
    void *at = nullptr;
    CLOCK_CHECK(pst_device_alloc(scene.device, bytes, &at));
    scene.memory.push_back(at);
    return at;
}

static void make_rows(clock_scene &scene, const clock_form &form)
{
    const uint32_t segments = form.num_segments ? form.num_segments : 1;
    for (uint32_t space = 0; space < 2; space++) {
        int32_t *counts = (int32_t *)clock_alloc(scene, segments * sizeof(int32_t));
        for (uint32_t n = 0; n < segments; n++)
            counts[n] = space == 0 ? (int32_t)form.live : 0;
        scene.counts[space] = counts;
    }
    for (const pst_tensor &tensor : form.tensors) {
        const uint64_t stride = tensor.row_stride ? tensor.row_stride : tensor.row_bytes;
        scene.bytes.push_back(segments * form.rows * stride);
        char *at = (char *)clock_alloc(scene, scene.bytes.back() + form.offset);
        scene.bases.push_back(at + form.offset);
    }
    scene.buffers.bases = scene.bases.data();
    scene.buffers.counts = scene.counts;
}

static void make_group(clock_scene &scene, const clock_form &form)
{
    pst_row_space spaces[2];
    memset(spaces, 0, sizeof(spaces));
    for (pst_row_space &space : spaces) {
        space.kind = form.num_segments ? PST_ROWS_SEGMENTS : PST_ROWS_PREFIX;
        space.num_segments = form.num_segments;
        space.capacity = form.rows;
    }
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = spaces;
    config.num_spaces = 1;
    for (const pst_tensor &tensor : form.tensors)
        config.num_spaces = tensor.space ? 2 : config.num_spaces;
    config.tensors = form.tensors.data();
    config.num_tensors = (uint32_t)form.tensors.size();
    CLOCK_CHECK(pst_group_create(&config, &scene.group));
}

void clock_open_scene(clock_scene &scene, const clock_setting &setting, const clock_wanted &wanted,
                      const clock_form &form)
{
    scene.device = clock_open(setting, wanted);
    CLOCK_CHECK(pst_stream_create(scene.device, &scene.stream));
    scene.mismatches = (uint64_t *)clock_alloc(scene, sizeof(uint64_t));
    *scene.mismatches = 0;
    if (form.tensors.empty())
        return;
    make_rows(scene, form);
    make_group(scene, form);
}

void clock_make_pool(clock_scene &scene, pst_pool_config config, bool has_host)
{
    pst_group_usage usage;
    CLOCK_CHECK(pst_group_measure(scene.group, nullptr, config.page_bytes, &usage));
    if (config.num_pages == 0)
        config.num_pages = usage.pages + 4;
    config.num_host_pages = has_host ? config.num_pages : 0;
    CLOCK_CHECK(pst_pool_create(scene.device, &config, &scene.pool));
    CLOCK_CHECK(pst_ticket_create(scene.pool, scene.group, &scene.ticket));
}

static void close_pool(clock_scene &scene, const clock_wanted &wanted, uint64_t wrong)
{
    pst_pool_status status;
    CLOCK_CHECK(pst_pool_check(scene.pool, scene.stream));
    CLOCK_CHECK(pst_pool_step(scene.pool, scene.stream));
    CLOCK_CHECK(pst_pool_poll(scene.pool, &status));
    if (wrong || status.num_faults || status.in_use[0] || status.in_use[1]) {
        fprintf(stderr, "clock: %s in %s under the clock: %llu bytes differ, %u faults, first %s\n",
                wanted.kernel, wanted.summary, (unsigned long long)wrong, status.num_faults,
                pst_fault_text((pst_fault)status.fault));
        exit(1);
    }
    CLOCK_CHECK(pst_ticket_destroy(scene.ticket));
    CLOCK_CHECK(pst_pool_destroy(scene.pool));
}

clock_report clock_close_scene(clock_scene &scene, const clock_wanted &wanted, uint64_t wrong)
{
    clock_arm(false);
    if (scene.pool) {
        close_pool(scene, wanted, wrong);
    } else if (wrong) {
        fprintf(stderr, "clock: %s in %s under the clock: %llu elements differ\n", wanted.kernel,
                wanted.summary, (unsigned long long)wrong);
        exit(1);
    }
    if (scene.group)
        CLOCK_CHECK(pst_group_destroy(scene.group));
    for (void *at : scene.memory)
        CLOCK_CHECK(pst_device_free(scene.device, at));
    CLOCK_CHECK(pst_stream_destroy(scene.device, scene.stream));
    return clock_close(scene.device);
}
