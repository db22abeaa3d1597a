/* What launch options come to: checks, the table of backends, and what the CUDA launcher asks for. */
#include "tests/harness.h"

#include <stdio.h>

#include <pagestash/pagestash.h>

#include "host/stash/stash.h"
#include "tests/host/base/child.h"
#include "tests/host/stash/scene.h"

#define LDG (1u << PST_BACKEND_LDG)
#define ALL (LDG | 1u << PST_BACKEND_BULK | 1u << PST_BACKEND_SQUEEZE)

/* Looks like a GPU as far as options are concerned. */
static pst_device gpu(int compute_capability, uint32_t backends)
{
    pst_device device = {.info = {.kind = PST_DEVICE_CUDA,
                                  .name = "a GPU",
                                  .num_sms = 132,
                                  .compute_capability = compute_capability,
                                  .backends = backends}};
    return device;
}

/* The backend for what is moved, or something else where it did not work. */
static uint32_t picked_of(const pst_device *device, int num_sms, const psti_move_args *args)
{
    const pst_launch_options options = {.num_sms = num_sms};
    psti_launch launch;
    if (psti_launch_make(device, &options, &launch) != PST_OK)
        return 100;
    return launch.num_sms == (num_sms == 132 ? 0 : (uint32_t)num_sms)
               ? psti_pick_backend(device, &launch, args)
               : 101;
}

/* For so many tensors of one segment, of which those lie at odd addresses. */
static uint32_t picked_for(const pst_device *device, int num_sms, uint32_t num_tensors,
                           uint64_t odd)
{
    const psti_move_args args = {.num_tensors = num_tensors, .apart = odd, .odd = odd};
    return picked_of(device, num_sms, &args);
}

static uint32_t picked(const pst_device *device, int num_sms)
{
    return picked_for(device, num_sms, 2, 0);
}

/* For tensors of 4 segments, the last one with this base, length of a row and strides. */
static uint32_t picked_for_segments(const pst_device *device, uintptr_t base, uint64_t row_bytes,
                                    uint64_t row_stride, uint64_t segment_stride)
{
    psti_move_args args = {.num_tensors = 2, .num_spaces = 1, .apart = 3};
    args.spaces[0].num_segments = 4;
    for (uint32_t t = 0; t < 2; t++)
        args.tensors[t] = (psti_tensor){.base = (unsigned char *)64,
                                        .row_bytes = 2048,
                                        .row_stride = 2048,
                                        .segment_stride = 8192};
    args.tensors[1].base = (unsigned char *)base;
    args.tensors[1].row_bytes = row_bytes;
    args.tensors[1].row_stride = row_stride;
    args.tensors[1].segment_stride = segment_stride;
    return picked_of(device, 0, &args);
}

PST_TEST(Launch, AutoIsLoadsWhereThereAreBackends)
{
    const pst_device hopper = gpu(90, ALL), ampere = gpu(80, LDG), host = gpu(0, 0);
    CHECK_EQ(picked(&hopper, 0), PST_BACKEND_LDG);
    CHECK_EQ(picked(&hopper, 1), PST_BACKEND_LDG);
    CHECK_EQ(picked(&hopper, 132), PST_BACKEND_LDG);
    CHECK_EQ(picked(&ampere, 8), PST_BACKEND_LDG);
    CHECK_EQ(picked(&host, 0), PST_BACKEND_AUTO);
    CHECK_EQ(picked_for(&hopper, 0, 0, 0), PST_BACKEND_LDG);
}

PST_TEST(Launch, AutoIsBulkWhereAllTensorsLieAtOddAddresses)
{
    const pst_device hopper = gpu(90, ALL), ampere = gpu(80, LDG), host = gpu(0, 0);
    CHECK_EQ(picked_for(&hopper, 0, 1, 1), PST_BACKEND_BULK);
    CHECK_EQ(picked_for(&hopper, 132, 3, 7), PST_BACKEND_BULK);
    CHECK_EQ(picked_for(&hopper, 0, 3, 5), PST_BACKEND_LDG);
    CHECK_EQ(picked_for(&hopper, 0, 64, UINT64_MAX), PST_BACKEND_BULK);
    CHECK_EQ(picked_for(&hopper, 0, 64, UINT64_MAX >> 1), PST_BACKEND_LDG);
    CHECK_EQ(picked_for(&ampere, 0, 1, 1), PST_BACKEND_LDG);
    CHECK_EQ(picked_for(&host, 0, 1, 1), PST_BACKEND_AUTO);
}

PST_TEST(Launch, AutoIsBulkWhereAllTensorsAreAlignedSegmentsOfLongRows)
{
    const pst_device hopper = gpu(90, ALL), ampere = gpu(80, LDG);
    CHECK_EQ(picked_for_segments(&hopper, 64, 2050, 2050, 8208), PST_BACKEND_BULK);
    CHECK_EQ(picked_for_segments(&hopper, 64, 2048, 2048, 8192), PST_BACKEND_BULK);
    CHECK_EQ(picked_for_segments(&hopper, 64, 2047, 2047, 8192), PST_BACKEND_LDG);
    CHECK_EQ(picked_for_segments(&hopper, 72, 2048, 2048, 8192), PST_BACKEND_LDG);
    CHECK_EQ(picked_for_segments(&hopper, 64, 2048, 2064, 8256), PST_BACKEND_LDG);
    CHECK_EQ(picked_for_segments(&hopper, 64, 2048, 2048, 8200), PST_BACKEND_LDG);
    CHECK_EQ(picked_for_segments(&ampere, 64, 2048, 2048, 8192), PST_BACKEND_LDG);
}

PST_TEST(Launch, PresetStandsForAuto)
{
    pst_device device = gpu(90, ALL);
    psti_launch launch;
    pst_launch_options options = {0};
    device.preset = PST_BACKEND_SQUEEZE;
    CHECK_EQ(picked(&device, 0), PST_BACKEND_SQUEEZE);
    CHECK_EQ(picked_for(&device, 0, 1, 1), PST_BACKEND_SQUEEZE);
    options.backend = PST_BACKEND_LDG; /* asked for by the call */
    CHECK_OK(psti_launch_make(&device, &options, &launch));
    CHECK_EQ(launch.backend, PST_BACKEND_LDG);
}

PST_TEST(Launch, OptionsBecomeFlags)
{
    static const struct {
        pst_launch_options options;
        uint32_t flags;
    } cases[] = {
        {{.num_sms = 0}, 0},
        {{.priority = PST_PRIORITY_LOW}, PSTI_MOVE_LOW},
        {{.priority = PST_PRIORITY_HIGH}, PSTI_MOVE_HIGH},
        {{.programmatic = true}, PSTI_MOVE_PROGRAMMATIC},
        {{.priority = PST_PRIORITY_LOW, .programmatic = true},
         PSTI_MOVE_LOW | PSTI_MOVE_PROGRAMMATIC},
    };
    const pst_device device = gpu(90, ALL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        psti_launch launch;
        CHECK_OK(psti_launch_make(&device, &cases[i].options, &launch));
        CHECK_EQ(launch.flags, cases[i].flags);
    }
}

PST_TEST(Launch, HostDeviceHasOneWayOnly)
{
    small_scene self;
    pst_stash_options stash = PST_STASH_OPTIONS_INIT;
    small_open(&self);
    CHECK_EQ(self.device->info.backends, 0);
    for (int backend = PST_BACKEND_LDG; backend <= PST_BACKEND_SQUEEZE; backend++) {
        static const char *const messages[] = {"", "backend ldg: host has none",
                                               "backend bulk: host has none",
                                               "backend squeeze: host has none"};
        stash.launch.backend = (pst_backend)backend;
        CHECK_STATUS(pst_ticket_stash(self.ticket, self.group, &self.buffers, &stash, NULL),
                     PST_E_UNSUPPORTED);
        CHECK_SAID(messages[backend]);
    }
    stash.launch.backend = PST_BACKEND_AUTO;
    stash.launch.priority = PST_PRIORITY_HIGH;
    stash.launch.programmatic = true;
    CHECK_OK(pst_ticket_stash(self.ticket, self.group, &self.buffers, &stash, NULL));
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    small_close(&self);
}

PST_TEST(Launch, OptionsOutsideTheirRangesAreRefused)
{
    static const struct {
        pst_launch_options options;
        pst_status status;
        const char *message;
    } bad[] = {
        {{.num_sms = 133}, PST_E_INVALID, "num_sms 133: allowed are 0 to 132 on this device"},
        {{.num_sms = -1}, PST_E_INVALID, "num_sms -1: allowed are 0 to 132 on this device"},
        {{.backend = (pst_backend)4},
         PST_E_INVALID,
         "backend 4: allowed are auto, ldg, bulk and squeeze"},
        {{.backend = PST_BACKEND_BULK}, PST_E_UNSUPPORTED, "backend bulk: a GPU has none"},
        {{.priority = (pst_priority)3},
         PST_E_INVALID,
         "priority 3: allowed are stream, low and high"},
    };
    const pst_device device = gpu(80, LDG);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        psti_launch launch;
        CHECK_STATUS(psti_launch_make(&device, &bad[i].options, &launch), bad[i].status);
        CHECK_SAID(bad[i].message);
    }
}

/* ---- PAGESTASH_BACKEND ---- */

PST_CHILD(sms_preset)
{
    pst_device many = gpu(90, ALL), host = gpu(0, 0);
    CHECK_OK(pst_env_check());
    printf("%s", pst_status_name(psti_backend_preset(&host)));
    printf(" %s\n%s", pst_status_name(psti_backend_preset(&many)), pst_last_message());
}

PST_CHILD(backend_preset)
{
    pst_device hopper = gpu(90, ALL), ampere = gpu(80, LDG), host = gpu(0, 0);
    CHECK_OK(pst_env_check());
    printf("%s", pst_status_name(psti_backend_preset(&hopper)));
    printf(" %s", pst_status_name(psti_backend_preset(&host)));
    printf(" %s", pst_status_name(psti_backend_preset(&ampere)));
    printf(" %s %s\n%s", psti_backend_name(hopper.preset), psti_backend_name(host.preset),
           pst_last_message());
}

PST_TEST(Launch, EnvironmentIsRefusedWhereTheDeviceCannot)
{
    static const char *const bulk[] = {"PAGESTASH_BACKEND=bulk", NULL};
    static const char *const ldg[] = {"PAGESTASH_BACKEND=ldg", NULL};
    child_result child;
    CHECK(child_run("backend_preset", bulk, &child) && child.exited);
    const char *expected = "PST_OK PST_OK PST_E_UNSUPPORTED bulk auto\n"
                           "PAGESTASH_BACKEND=bulk: a GPU, compute capability 8.0, has none";
    CHECK_MSG(strncmp(child.out, expected, strlen(expected)) == 0, "%s", child.out);
    CHECK(child_run("backend_preset", ldg, &child) && child.exited);
    CHECK_STR(child.out, "PST_OK PST_OK PST_OK ldg auto\n");
    static const char *const sms[] = {"PAGESTASH_NUM_SMS=133", NULL};
    CHECK(child_run("sms_preset", sms, &child) && child.exited);
    expected = "PST_OK PST_E_INVALID\nPAGESTASH_NUM_SMS=133: a GPU has 132";
    CHECK_MSG(strncmp(child.out, expected, strlen(expected)) == 0, "%s", child.out);
}

/* ---- PAGESTASH_NUM_SMS ---- */

static void print_launch(int num_sms)
{
    const pst_device hopper = gpu(90, ALL);
    const pst_launch_options options = {.num_sms = num_sms};
    psti_launch launch = {.num_sms = 99};
    CHECK_OK(psti_launch_make(&hopper, &options, &launch));
    printf("%u, ", launch.num_sms);
}

PST_CHILD(sms_of_launches)
{
    CHECK_OK(pst_env_check());
    print_launch(0);
    print_launch(7);
    print_launch(132);
}

PST_TEST(Launch, EnvironmentSaysHowManySms)
{
    static const char *const few[] = {"PAGESTASH_NUM_SMS=32", NULL};
    static const char *const all[] = {"PAGESTASH_NUM_SMS=132", NULL};
    static const char *const none[] = {NULL};
    child_result child;
    CHECK(child_run("sms_of_launches", few, &child) && child.exited);
    CHECK_STR(child.out, "32, 7, 0, ");
    CHECK(child_run("sms_of_launches", all, &child) && child.exited);
    CHECK_STR(child.out, "0, 7, 0, ");
    CHECK(child_run("sms_of_launches", none, &child) && child.exited);
    CHECK_STR(child.out, "0, 7, 0, ");
}

/* ---- a release, which takes no options ---- */

static uint32_t released_on;

static pst_status see_launch(pst_device *device, psti_op op, const void *args, pst_stream stream)
{
    (void)device;
    (void)stream;
    if (op == PSTI_OP_RESTORE)
        released_on = ((const psti_move_args *)args)->num_sms;
    return PST_OK;
}

/* On how many SMs a release runs in a pool that scrubs, or does not. */
static void print_release(bool scrub)
{
    small_scene self;
    small_configs(&self);
    self.pool_config.scrub = scrub;
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    CHECK_OK(pst_group_create(&self.group_config, &self.group));
    CHECK_OK(pst_ticket_create(self.pool, self.group, &self.ticket));
    const psti_device_ops *whole = self.device->ops;
    psti_device_ops seen = *whole;
    seen.launch = see_launch;
    self.device->ops = &seen;
    self.device->info.num_sms = 132;
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    self.device->ops = whole;
    printf("%u ", released_on);
    small_close(&self);
}

PST_CHILD(sms_of_releases)
{
    CHECK_OK(pst_env_check());
    print_release(false);
    print_release(true);
}

PST_TEST(Launch, ReleaseThatScrubsTakesTheSmsOfTheEnvironment)
{
    static const char *const few[] = {"PAGESTASH_NUM_SMS=32", NULL};
    child_result child;
    CHECK(child_run("sms_of_releases", few, &child) && child.exited);
    CHECK_STR(child.out, "1 32 ");
    static const char *const all[] = {"PAGESTASH_NUM_SMS=132", NULL};
    CHECK(child_run("sms_of_releases", all, &child) && child.exited);
    CHECK_STR(child.out, "1 0 ");
}

/* ---- what the CUDA launcher asks for ---- */

#if PSTI_HAVE_CUDA

#include "kernels/cuda/launch.h"

static cudaLaunchConfig_t seen;
static cudaLaunchAttribute seen_attributes[4];
static const void *seen_kernel;

static cudaError_t look(const cudaLaunchConfig_t *config, const void *kernel, void **args)
{
    (void)args;
    seen = *config;
    seen_kernel = kernel;
    for (uint32_t i = 0; i < config->numAttrs && i < 4; i++)
        seen_attributes[i] = config->attrs[i];
    return cudaSuccess;
}

static const psti_cuda_budget budget = {
    .num_sms = 132,
    .is_programmatic = true,
    .low_priority = 0,
    .high_priority = -5,
    .num_domains = 4,
    .blocks_per_sm = {{0, 4, 1, 1}, {0, 4, 1, 1}, {0, 4, 1, 1}}};

static void launch_as(psti_op op, pst_backend backend, uint32_t flags, uint32_t num_sms,
                      uint64_t tiles)
{
    const psti_move_args args = {
        .backend = (uint32_t)backend, .flags = flags, .num_sms = num_sms, .max_tiles = tiles};
    CHECK_EQ(psti_cuda_launch(&budget, look, op, &args, NULL), cudaSuccess);
}

PST_TEST(Launch, GridFollowsBackendBudgetAndSize)
{
    launch_as(PSTI_OP_STASH, PST_BACKEND_LDG, 0, 0, 1u << 20);
    CHECK_EQ(seen.gridDim.x, 4 * 132);
    CHECK_EQ(seen.blockDim.x, 256);
    CHECK_EQ(seen.dynamicSmemBytes, 0);
    CHECK_EQ(seen.numAttrs, 0);
    launch_as(PSTI_OP_STASH, PST_BACKEND_LDG, 0, 8, 1u << 20);
    CHECK_EQ(seen.gridDim.x, 8);
    CHECK_EQ(seen.blockDim.x, 4 * 256);
    launch_as(PSTI_OP_RESTORE, PST_BACKEND_LDG, 0, 8, 3); /* fewer tiles than SMs */
    CHECK_EQ(seen.gridDim.x, 3);
    CHECK_EQ(seen.blockDim.x, 4 * 256);
    launch_as(PSTI_OP_MIGRATE, PST_BACKEND_LDG, 0, 8, 1u << 20);
    CHECK_EQ(seen.gridDim.x, 8);
    CHECK_EQ(seen.blockDim.x, 4 * 256);
    launch_as(PSTI_OP_RESTORE, PST_BACKEND_BULK, 0, 8, 1u << 20);
    CHECK_EQ(seen.gridDim.x, 8);
    CHECK_EQ(seen.blockDim.x, 256);
    CHECK_EQ(seen.dynamicSmemBytes, 128 << 10);
    launch_as(PSTI_OP_RESTORE, PST_BACKEND_SQUEEZE, 0, 0, 1u << 20);
    CHECK_EQ(seen.gridDim.x, 132);
    CHECK_EQ(seen.blockDim.x, 32);
    CHECK_EQ(seen.dynamicSmemBytes, 16 << 10);
    launch_as(PSTI_OP_STASH, PST_BACKEND_BULK, 0, 0, 3);
    CHECK_EQ(seen.gridDim.x, 3);
    launch_as(PSTI_OP_STASH, PST_BACKEND_BULK, 0, 0, 0);
    CHECK_EQ(seen.gridDim.x, 1);
    launch_as(PSTI_OP_RESTORE, PST_BACKEND_LDG, PSTI_MOVE_RELEASE, 1, 1);
    CHECK_EQ(seen.gridDim.x, 1);
    CHECK_EQ(seen.blockDim.x, 256); /* or it would wait for an SM of its own */
}

PST_TEST(Launch, TablesOfSegmentsOnlyWhereThereAreSegments)
{
    psti_move_args args = {
        .backend = PST_BACKEND_SQUEEZE, .max_tiles = 1u << 20, .max_segments = 1};
    CHECK_EQ(psti_cuda_launch(&budget, look, PSTI_OP_STASH, &args, NULL), cudaSuccess);
    CHECK_EQ(seen.dynamicSmemBytes, 16 << 10);
    args.max_segments = 200;
    CHECK_EQ(psti_cuda_launch(&budget, look, PSTI_OP_STASH, &args, NULL), cudaSuccess);
    CHECK_EQ(seen.dynamicSmemBytes, (16 << 10) + 201 * 8);
    args.backend = PST_BACKEND_LDG;
    CHECK_EQ(psti_cuda_launch(&budget, look, PSTI_OP_STASH, &args, NULL), cudaSuccess);
    CHECK_EQ(seen.dynamicSmemBytes, 201 * 8);
    args.num_sms = 8; /* a table for each team */
    CHECK_EQ(psti_cuda_launch(&budget, look, PSTI_OP_STASH, &args, NULL), cudaSuccess);
    CHECK_EQ(seen.dynamicSmemBytes, 4 * 201 * 8);
}

PST_TEST(Launch, EachBackendHasItsOwnKernels)
{
    static const psti_op ops[] = {PSTI_OP_STASH, PSTI_OP_RESTORE, PSTI_OP_MIGRATE};
    const void *kernels[9];
    for (int i = 0; i < 9; i++) {
        launch_as(ops[i / 3], (pst_backend)(1 + i % 3), 0, 0, 1);
        kernels[i] = seen_kernel;
        for (int j = 0; j < i; j++)
            CHECK(kernels[i] != kernels[j]);
    }
}

PST_TEST(Launch, PoolsWithHostPagesHaveAMemorySyncDomain)
{
    psti_cuda_budget old = budget;
    psti_move_args args = {.backend = PST_BACKEND_LDG};
    args.pool.max_pages[PSTI_TIER_HOST] = 1;
    CHECK_EQ(psti_cuda_launch(&budget, look, PSTI_OP_RESTORE, &args, NULL), cudaSuccess);
    CHECK_EQ(seen.numAttrs, 2);
    CHECK_EQ(seen_attributes[0].id, cudaLaunchAttributeMemSyncDomainMap);
    CHECK_EQ(seen_attributes[0].val.memSyncDomainMap.remote, 3);
    CHECK_EQ(seen_attributes[1].id, cudaLaunchAttributeMemSyncDomain);
    CHECK_EQ(seen_attributes[1].val.memSyncDomain, cudaLaunchMemSyncDomainRemote);
    old.num_domains = 2;
    CHECK_EQ(psti_cuda_launch(&old, look, PSTI_OP_RESTORE, &args, NULL), cudaSuccess);
    CHECK_EQ(seen.numAttrs, 0);
}

PST_TEST(Launch, PriorityAndProgrammaticLaunchAreAttributes)
{
    psti_cuda_budget old = budget;
    const psti_move_args args = {.backend = PST_BACKEND_LDG, .flags = PSTI_MOVE_PROGRAMMATIC};
    launch_as(PSTI_OP_STASH, PST_BACKEND_LDG, PSTI_MOVE_LOW, 0, 1);
    CHECK_EQ(seen.numAttrs, 1);
    CHECK_EQ(seen_attributes[0].id, cudaLaunchAttributePriority);
    CHECK_EQ(seen_attributes[0].val.priority, 0);
    launch_as(PSTI_OP_STASH, PST_BACKEND_BULK, PSTI_MOVE_HIGH | PSTI_MOVE_PROGRAMMATIC, 0, 1);
    CHECK_EQ(seen.numAttrs, 2);
    CHECK_EQ(seen_attributes[0].val.priority, -5);
    CHECK_EQ(seen_attributes[1].id, cudaLaunchAttributeProgrammaticStreamSerialization);
    CHECK_EQ(seen_attributes[1].val.programmaticStreamSerializationAllowed, 1);
    old.is_programmatic = false; /* before compute capability 9.0 */
    CHECK_EQ(psti_cuda_launch(&old, look, PSTI_OP_STASH, &args, NULL), cudaSuccess);
    CHECK_EQ(seen.numAttrs, 0);
}

#endif
