/* Budgets from rates, worked out by hand; and the calibration, on the host device and on devices
 * whose clock and failures are the test's. */
#include "tests/host/stash/scene.h"

#include <float.h>
#include <math.h>

#define GB 1e9

/* ---- choose ---- */

/* A millisecond at 1 GB/s is 10^6 bytes. The point at 8 is slower than that at 4. */
static pst_copy_rates some_rates(void)
{
    const pst_copy_rates rates = {
        .op = PST_COPY_STASH,
        .backend = PST_BACKEND_LDG,
        .fixed_seconds = 0.001,
        .num_points = 5,
        .points = {{1, 1 * GB}, {2, 2 * GB}, {4, 3 * GB}, {8, 2 * GB}, {12, 5 * GB}}};
    return rates;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

static void expect_plan(const pst_copy_rates *rates, uint64_t bytes, double window, int num_sms,
                        double seconds, bool fits)
{
    pst_copy_choice choice = {.num_sms = -1};
    CHECK_OK(pst_copy_rates_choose_sms(rates, bytes, window, &choice));
    CHECK_MSG(choice.num_sms == num_sms && near(choice.seconds, seconds) && choice.fits == fits,
              "%llu bytes in %g s: %d SMs, %.17g s, fits %d; not %d, %.17g, %d",
              (unsigned long long)bytes, window, choice.num_sms, choice.seconds, choice.fits,
              num_sms, seconds, fits);
    CHECK_EQ(choice.fits, choice.seconds <= window);
}

PST_TEST(Budget, AtThePointsTheTimeIsExact)
{
    pst_copy_rates rates = some_rates();
    rates.fixed_seconds = 0x1p-10;
    for (uint32_t i = 0; i < rates.num_points; i++)
        rates.points[i].bytes_per_second = (double)(1u << (20 + i));
    for (uint32_t i = 0; i < rates.num_points; i++) {
        pst_copy_choice choice;
        const double seconds = 0x1p-10 + 1.0 / (double)(1u << i);
        CHECK_OK(pst_copy_rates_choose_sms(&rates, 1u << 20, seconds, &choice));
        CHECK(choice.num_sms == rates.points[i].num_sms && choice.seconds == seconds &&
              choice.fits);
        CHECK_OK(pst_copy_rates_choose_sms(&rates, 1u << 20, nextafter(seconds, 0), &choice));
        CHECK_EQ(choice.num_sms, i + 1 < rates.num_points ? rates.points[i].num_sms + 1 : 12);
        CHECK_EQ(choice.fits, i + 1 < rates.num_points);
    }
}

PST_TEST(Budget, BetweenThePointsTheRateIsLinear)
{
    const pst_copy_rates rates = some_rates();
    /* 3 SMs: 2.5 GB/s; 9, 10, 11: 3.5, 4, 4.5 GB/s */
    expect_plan(&rates, 5000000, 0.0030001, 3, 0.003, true);
    expect_plan(&rates, 5000000, 0.0029999, 4, 0.001 + 5e6 / 3e9, true);
    expect_plan(&rates, 7000000, 0.0030001, 9, 0.003, true);
    expect_plan(&rates, 7000000, 0.0029999, 10, 0.00275, true);
    expect_plan(&rates, 9000000, 0.0030001, 11, 0.003, true);
}

PST_TEST(Budget, ASlowerPointCountsAsFastAsTheOneBefore)
{
    const pst_copy_rates rates = some_rates();
    /* 5 to 8 SMs are predicted as 4: what 4 do not reach takes 9 */
    expect_plan(&rates, 3000000, 0.0020001, 4, 0.002, true);
    expect_plan(&rates, 3000000, 0.0019999, 9, 0.001 + 3e6 / 3.5e9, true);
    /* the best rate need not be the last point's */
    pst_copy_rates falling = some_rates();
    falling.points[4].bytes_per_second = 1 * GB;
    expect_plan(&falling, 3000000, 0.0019, 4, 0.002, false);
}

PST_TEST(Budget, WhatDoesNotFitGetsTheFewestOfTheBestRate)
{
    const pst_copy_rates rates = some_rates();
    expect_plan(&rates, 5000000, 0.0019999, 12, 0.002, false);
    expect_plan(&rates, 5000000, 1e-300, 12, 0.002, false);
    expect_plan(&rates, 5000000, DBL_TRUE_MIN, 12, 0.002, false);
}

PST_TEST(Budget, NoBytesTakeTheFixedTimeWithOneSm)
{
    const pst_copy_rates rates = some_rates();
    expect_plan(&rates, 0, 1, 1, 0.001, true);
    expect_plan(&rates, 0, 0.0005, 1, 0.001, false);
    pst_copy_rates late = some_rates();
    late.num_points = 1;
    late.points[0] = (pst_copy_rate){8, 8 * GB};
    expect_plan(&late, 0, 1, 1, 0.001, true);
}

PST_TEST(Budget, BelowTheFirstPointTheRateIsProportional)
{
    pst_copy_rates rates = {.num_points = 1, .points = {{8, 8 * GB}}};
    expect_plan(&rates, 3000000, 0.0010001, 3, 0.001, true);
    expect_plan(&rates, 3000000, 0.0009999, 4, 0.00075, true);
    expect_plan(&rates, 3000000, DBL_MAX, 1, 0.003, true);
    rates.points[0] = (pst_copy_rate){INT32_MAX, 1};
    expect_plan(&rates, 2, 4, INT32_MAX / 2 + 1, 2.0 * INT32_MAX / (INT32_MAX / 2 + 1), true);
}

PST_TEST(Budget, ManyBytes)
{
    const pst_copy_rates rates = some_rates();
    expect_plan(&rates, (uint64_t)1 << 32, 10, 1, 4.295967296, true);
    expect_plan(&rates, (uint64_t)1 << 32, 1, 11, 0.001 + 4294967296 / 4.5e9, true);
    expect_plan(&rates, (uint64_t)1 << 62, 1e9, 12, 0.001 + 0x1p62 / 5e9, true);
    expect_plan(&rates, (uint64_t)1 << 62, 1, 12, 0.001 + 0x1p62 / 5e9, false);
    expect_plan(&rates, UINT64_MAX, DBL_MAX, 1, 0.001 + 0x1p64 / 1e9, true);
    pst_copy_rates slow = some_rates(); /* the largest time is a finite one */
    slow.num_points = 1;
    slow.fixed_seconds = DBL_MAX;
    slow.points[0] = (pst_copy_rate){INT32_MAX, 1};
    expect_plan(&slow, UINT64_MAX, 1, 1, DBL_MAX, false);
}

/* Every window from too short to ample, against a search that tries all budgets. */
PST_TEST(Budget, TheFewestOfAllBudgets)
{
    const pst_copy_rates rates = some_rates();
    static const double rate[] = {1, 2, 2.5, 3, 3, 3, 3, 3, 3.5, 4, 4.5, 5};
    int previous = 12;
    for (int i = 120; i < 620; i++) {
        const double window = i * 1e-5;
        pst_copy_choice choice;
        int wanted = 12;
        for (int n = 12; n >= 1; n--)
            if (0.001 + 5e6 / (rate[n - 1] * GB) <= window)
                wanted = n;
        CHECK_OK(pst_copy_rates_choose_sms(&rates, 5000000, window, &choice));
        CHECK_EQ(choice.num_sms, wanted);
        CHECK(choice.num_sms <= previous);
        previous = choice.num_sms;
    }
    CHECK_EQ(previous, 1);
}

static void refuses(const pst_copy_rates *rates, double seconds, const char *text)
{
    pst_copy_choice choice = {.num_sms = -7};
    CHECK_STATUS(pst_copy_rates_choose_sms(rates, 1000, seconds, &choice), PST_E_INVALID);
    CHECK_SAID(text);
    CHECK_EQ(choice.num_sms, -7);
}

PST_TEST(Budget, BadWindowsAndPointers)
{
    const pst_copy_rates rates = some_rates();
    refuses(&rates, 0, "seconds 0: must be finite and above 0 [");
    refuses(&rates, -1, "seconds -1: must be finite and above 0 [");
    refuses(&rates, (double)NAN, "seconds nan: must be finite and above 0 [");
    refuses(&rates, (double)INFINITY, "seconds inf: must be finite and above 0 [");
    refuses(NULL, 1, "rates or choice_out is NULL [");
    CHECK_STATUS(pst_copy_rates_choose_sms(&rates, 0, 1, NULL), PST_E_INVALID);
}

/* After this change to good rates. */
#define REFUSES(change, text)              \
    do {                                   \
        pst_copy_rates bad = some_rates(); \
        bad.change;                        \
        refuses(&bad, 1, text);            \
        if (psti_test_failed())            \
            return;                        \
    } while (0)

PST_TEST(Budget, BadRates)
{
    REFUSES(op = (pst_copy_op)2, "op 2: allowed are stash and restore [");
    REFUSES(backend = (pst_backend)4, "backend 4: allowed are auto, ldg, bulk and squeeze [");
    REFUSES(backend = (pst_backend)-1, "backend -1: allowed are auto, ldg, bulk and squeeze [");
    REFUSES(fixed_seconds = -1e-9, "fixed_seconds -1e-09: must be finite and not negative [");
    REFUSES(fixed_seconds = (double)NAN, "fixed_seconds nan: must be finite and not negative [");
    REFUSES(fixed_seconds = (double)INFINITY, "fixed_seconds inf: must be finite and not neg");
    REFUSES(num_points = 0, "num_points 0: allowed are 1 to 16 [");
    REFUSES(num_points = 17, "num_points 17: allowed are 1 to 16 [");
    REFUSES(points[0].num_sms = 0, "point 0: num_sms 0: must be above 0 [");
    REFUSES(points[0].num_sms = -1, "point 0: num_sms -1: must be above 0 [");
    REFUSES(points[2].num_sms = 2,
            "point 2: num_sms 2: must be above 2, that of the point before [");
    REFUSES(points[4].num_sms = 7,
            "point 4: num_sms 7: must be above 8, that of the point before [");
    REFUSES(points[1].bytes_per_second = 0.5,
            "point 1: bytes_per_second 0.5: must be finite and at least 1 [");
    REFUSES(points[1].bytes_per_second = (double)NAN, "point 1: bytes_per_second nan: must be fin");
    REFUSES(points[4].bytes_per_second = (double)INFINITY, "point 4: bytes_per_second inf: must b");
    pst_copy_rates unused = some_rates(); /* what lies behind the last point is not looked at */
    unused.points[5].bytes_per_second = (double)NAN;
    expect_plan(&unused, 0, 1, 1, 0.001, true);
}

/* ---- calibrate, on the host device ---- */

#define MIB ((uint64_t)1 << 20)

static const pst_copy_rates untouched = {.num_points = 77};

static pst_calibrate_config quick(pst_copy_op op)
{
    pst_calibrate_config config = PST_CALIBRATE_CONFIG_INIT;
    config.op = op;
    config.bytes = MIB;
    config.repetitions = 1;
    return config;
}

/* With so many samples that a stall does not decide the median. */
static pst_calibrate_config steady(pst_copy_op op)
{
    pst_calibrate_config config = quick(op);
    config.repetitions = 31;
    return config;
}

static void check_host_rates(const pst_copy_rates *rates, pst_copy_op op)
{
    pst_copy_choice choice;
    CHECK_EQ(rates->op, op);
    CHECK_EQ(rates->backend, PST_BACKEND_AUTO);
    CHECK_EQ(rates->num_points, 1);
    CHECK_EQ(rates->points[0].num_sms, 1);
    CHECK_OK(pst_copy_rates_choose_sms(rates, MIB, 3600, &choice));
    CHECK_EQ(choice.num_sms, 1);
    CHECK(choice.fits);
}

PST_TEST(Calibrate, TheHostDevice)
{
    pst_device *device = NULL;
    CHECK_OK(pst_device_open("host", 0, &device));
    for (int op = PST_COPY_STASH; op <= PST_COPY_RESTORE; op++) {
        const pst_calibrate_config config = steady((pst_copy_op)op);
        pst_copy_rates rates = untouched;
        CHECK_OK(pst_device_calibrate(device, &config, &rates));
        check_host_rates(&rates, (pst_copy_op)op);
    }
    pst_copy_rates rates = untouched;
    CHECK_OK(pst_device_calibrate(device, NULL, &rates));
    check_host_rates(&rates, PST_COPY_STASH);
    CHECK_OK(pst_device_close(device));
}

static void refuses_config(pst_device *device, const pst_calibrate_config *config,
                           pst_status status, const char *text)
{
    pst_copy_rates rates = untouched;
    CHECK_STATUS(pst_device_calibrate(device, config, &rates), status);
    CHECK_SAID(text);
    CHECK_EQ(rates.num_points, 77);
    CHECK_EQ(device->live, 0);
}

PST_TEST(Calibrate, BadConfigs)
{
    pst_device *device = NULL;
    pst_copy_rates rates;
    pst_calibrate_config config = quick(PST_COPY_STASH);
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_STATUS(pst_device_calibrate(NULL, NULL, &rates), PST_E_INVALID);
    CHECK_STATUS(pst_device_calibrate(device, NULL, NULL), PST_E_INVALID);
    config.struct_size--;
    refuses_config(device, &config, PST_E_INVALID, "struct_size ");
    config = quick((pst_copy_op)7);
    refuses_config(device, &config, PST_E_INVALID, "op 7: allowed are stash and restore [");
    config = quick(PST_COPY_STASH);
    config.backend = (pst_backend)9;
    refuses_config(device, &config, PST_E_INVALID, "backend 9: allowed are auto, ldg, bulk and ");
    config.backend = PST_BACKEND_LDG;
    psti_fail_allocation_after(0); /* nothing is taken before the config is known to be good */
    refuses_config(device, &config, PST_E_UNSUPPORTED, "backend ldg: host has none [");
    psti_fail_allocation_after(-1);
    config = quick(PST_COPY_STASH);
    config.bytes = MIB + 1;
    refuses_config(device, &config, PST_E_INVALID,
                   "bytes 1048577: allowed are multiples of 1 MiB, up to 1 TiB [");
    config.bytes = (MIB << 20) + MIB;
    refuses_config(device, &config, PST_E_INVALID, "bytes 1099512676352: allowed are multiples");
    config.bytes = MIB << 20; /* allowed, but there is no memory */
    psti_fail_allocation_after(0);
    refuses_config(device, &config, PST_E_DEVICE_NOMEM, "1099511627776 bytes wanted, ");
    psti_fail_allocation_after(-1);
    config = quick(PST_COPY_STASH);
    config.repetitions = 101;
    refuses_config(device, &config, PST_E_INVALID, "repetitions 101: allowed are up to 100 [");
    CHECK_OK(pst_device_close(device));
}

PST_TEST(Calibrate, SurvivesEveryFailedAllocation)
{
    const pst_calibrate_config config = steady(PST_COPY_STASH);
    pst_device *device = NULL;
    CHECK_OK(pst_device_open("host", 0, &device));
    for (int n = 0;; n++) {
        pst_copy_rates rates = untouched;
        psti_fail_allocation_after(n);
        const pst_status status = pst_device_calibrate(device, &config, &rates);
        psti_fail_allocation_after(-1);
        CHECK_MSG(device->live == 0, "%d: %u objects are left", n, device->live);
        if (status == PST_OK) {
            CHECK_MSG(n >= 10, "succeeded with %d allocations", n);
            break;
        }
        CHECK_MSG(status == PST_E_NOMEM || status == PST_E_DEVICE_NOMEM, "%d: %s", n,
                  pst_status_name(status));
        CHECK_EQ(rates.num_points, 77);
        CHECK(n < 100);
    }
    CHECK_OK(pst_device_close(device));
}

/* ---- calibrate, on a device whose clock and failures are the test's ---- */

#define FLUSH_BYTES ((size_t)256 << 20)
#define FIXED 0x1p-20

static const psti_device_ops *real;

static struct {
    char trace[64]; /* the first of: S stash, R restore, P pattern, F flush, e event */
    int num_sms;    /* of the last launch */
    int before;     /* of the one before it */
    uint32_t backend;
    int64_t *count; /* of the last stash */
    int64_t rows;
    double measured;    /* num_sms + rows of the measurement that runs */
    int sample;         /* of it */
    double factors[4];  /* by which its samples are too long */
    int calls, fail_at; /* the call that fails; 0: none */
    bool sticky;        /* and all later ones */
    bool corrupts;      /* a stash sees a count below 0 */
    bool no_rate;       /* every operation takes the same time */
    int resets;         /* of the pool */
    int fails_reset;    /* the one that fails; 0: none */
} fake;

static void note(char what)
{
    const size_t length = strlen(fake.trace);
    if (length + 1 < sizeof(fake.trace))
        fake.trace[length] = what;
}

static bool fails(void)
{
    fake.calls++;
    return fake.fail_at && (fake.sticky ? fake.calls >= fake.fail_at : fake.calls == fake.fail_at);
}

#define FAKE(name, parameters, arguments)                   \
    static pst_status fake_##name parameters                \
    {                                                       \
        return fails() ? PST_E_CUDA : real->name arguments; \
    }
FAKE(copy, (pst_device * device, void *to, const void *from, size_t bytes, pst_stream stream),
     (device, to, from, bytes, stream))
FAKE(synchronize, (pst_device * device), (device))
FAKE(stream_synchronize, (pst_device * device, pst_stream stream), (device, stream))
FAKE(event_synchronize, (pst_device * device, pst_event event), (device, event))

static pst_status fake_alloc(pst_device *device, size_t bytes, void **address_out)
{
    return real->alloc(device, bytes == FLUSH_BYTES ? 1 : bytes, address_out);
}

static pst_status fake_fill(pst_device *device, void *to, uint8_t value, size_t bytes,
                            pst_stream stream)
{
    if (bytes == FLUSH_BYTES)
        note('F');
    return fails() ? PST_E_CUDA
                   : real->fill(device, to, value, bytes == FLUSH_BYTES ? 1 : bytes, stream);
}

static pst_status fake_event_record(pst_device *device, pst_event event, pst_stream stream,
                                    bool external)
{
    note('e');
    return fails() ? PST_E_CUDA : real->event_record(device, event, stream, external);
}

static pst_status fake_launch(pst_device *device, psti_op op, const void *args, pst_stream stream)
{
    if (op == PSTI_OP_STASH || op == PSTI_OP_RESTORE) {
        const psti_move_args *move = args;
        if (op == PSTI_OP_STASH) /* a restore is told of none */
            fake.count = (int64_t *)(uintptr_t)move->spaces[0].counts;
        note(op == PSTI_OP_STASH ? 'S' : 'R');
        fake.before = fake.num_sms;
        fake.num_sms = move->num_sms ? (int)move->num_sms : device->info.num_sms;
        fake.backend = move->backend;
        fake.rows = *fake.count;
        if (fake.corrupts && op == PSTI_OP_STASH)
            *fake.count = -1;
    } else if (op == PSTI_OP_FILL) {
        note('P');
    } else if (op == PSTI_OP_RESET && ++fake.resets == fake.fails_reset) {
        return PST_E_CUDA;
    }
    return fails() ? PST_E_CUDA : real->launch(device, op, args, stream);
}

/* n SMs copy n GiB/s; the first sample of a measurement is far too long. */
static pst_status fake_event_elapsed(pst_device *device, pst_event begin, pst_event end,
                                     double *seconds_out)
{
    const double measured = fake.num_sms + (double)fake.rows;
    const double bytes = fake.no_rate ? 0 : (double)fake.rows * 4096;
    fake.sample = measured == fake.measured ? fake.sample + 1 : 0;
    fake.measured = measured;
    *seconds_out = (fake.sample ? fake.factors[(fake.sample - 1) % 4] : 1000) *
                   (FIXED + bytes / (0x1p30 * fake.num_sms));
    (void)begin;
    (void)end;
    if (fake.before != device->info.num_sms)
        psti_test_fail(__FILE__, __LINE__, "undone with %d SMs only", fake.before);
    return fails() ? PST_E_CUDA : real->synchronize(device);
}

/* As large a GPU as is said, with the memory and the copies of host. */
static void open_fake(int num_sms, pst_device **device_out)
{
    static psti_device_ops ops;
    pst_device *device = NULL;
    memset(&fake, 0, sizeof(fake));
    for (int i = 0; i < 4; i++)
        fake.factors[i] = 1;
    CHECK_OK(pst_device_open("host", 0, &device));
    real = device->ops;
    ops = *real;
    ops.alloc = fake_alloc;
    ops.copy = fake_copy;
    ops.fill = fake_fill;
    ops.synchronize = fake_synchronize;
    ops.stream_synchronize = fake_stream_synchronize;
    ops.event_record = fake_event_record;
    ops.event_synchronize = fake_event_synchronize;
    ops.event_elapsed = fake_event_elapsed;
    ops.launch = fake_launch;
    device->ops = &ops;
    device->info.kind = PST_DEVICE_CUDA;
    device->info.num_sms = num_sms;
    device->info.backends = 1u << PST_BACKEND_LDG | 1u << PST_BACKEND_BULK;
    *device_out = device;
}

static void check_budgets(int num_sms, const int *budgets, uint32_t num_budgets)
{
    pst_device *device = NULL;
    pst_calibrate_config config = quick(PST_COPY_RESTORE);
    pst_copy_rates rates;
    open_fake(num_sms, &device);
    config.backend = PST_BACKEND_BULK;
    CHECK_OK(pst_device_calibrate(device, &config, &rates));
    CHECK_OK(pst_device_close(device));
    CHECK_EQ(fake.backend, PST_BACKEND_BULK);
    CHECK_EQ(rates.op, PST_COPY_RESTORE);
    CHECK_EQ(rates.backend, PST_BACKEND_BULK);
    CHECK(near(rates.fixed_seconds, FIXED));
    CHECK_EQ(rates.num_points, num_budgets);
    for (uint32_t i = 0; i < num_budgets; i++) {
        CHECK_EQ(rates.points[i].num_sms, budgets[i]);
        CHECK(near(rates.points[i].bytes_per_second, budgets[i] * 0x1p30));
    }
}

PST_TEST(Calibrate, TheBudgetsThatTheDeviceHas)
{
    static const int large[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 132};
    static const int even[] = {1, 2, 4, 8, 12, 16};
    static const int odd[] = {1, 2, 3};
    check_budgets(132, large, 12);
    check_budgets(16, even, 6);
    check_budgets(3, odd, 3);
}

static void check_trace(pst_device_kind kind, pst_copy_op op, const char *trace)
{
    const pst_calibrate_config config = quick(op);
    pst_device *device = NULL;
    pst_copy_rates rates;
    open_fake(1, &device);
    device->info.kind = kind;
    CHECK_OK(pst_device_calibrate(device, &config, &rates));
    CHECK_OK(pst_device_close(device));
    CHECK_STR(fake.trace, trace);
}

PST_TEST(Calibrate, EverySampleUndoesTheLastAndIsCold)
{
    check_trace(PST_DEVICE_CUDA, PST_COPY_STASH, "SRFeSeRFeSePRFeSeRFeSeR");
    check_trace(PST_DEVICE_CUDA, PST_COPY_RESTORE, "SFeReSFeRePSFeReSFeRe");
    check_trace(PST_DEVICE_HOST, PST_COPY_STASH, "SReSeReSePReSeReSeR");
}

/* Samples are off by these factors; the median is off by `median`. */
static void check_median(uint32_t repetitions, const double *factors, double median)
{
    pst_device *device = NULL;
    pst_calibrate_config config = quick(PST_COPY_STASH);
    pst_copy_rates rates;
    open_fake(2, &device);
    memcpy(fake.factors, factors, sizeof(fake.factors));
    config.repetitions = repetitions;
    CHECK_OK(pst_device_calibrate(device, &config, &rates));
    CHECK_OK(pst_device_close(device));
    CHECK(near(rates.fixed_seconds, median * FIXED));
    CHECK(near(rates.points[0].bytes_per_second, 0x1p30 / median));
    CHECK(near(rates.points[1].bytes_per_second, 0x1p31 / median));
}

PST_TEST(Calibrate, TheMedianCounts)
{
    static const double factors[4] = {5, 1, 3, 0.5};
    check_median(1, factors, 5);
    check_median(2, factors, 3);
    check_median(3, factors, 3);
    check_median(4, factors, 2);
    check_median(0, factors, 3); /* 9: 5 three times, 3, 1 and 0.5 twice */
}

static void check_refusal(bool corrupts, pst_status status, const char *text)
{
    pst_device *device = NULL;
    const pst_calibrate_config config = quick(PST_COPY_STASH);
    open_fake(1, &device);
    fake.corrupts = corrupts;
    fake.no_rate = !corrupts;
    refuses_config(device, &config, status, text);
    CHECK_OK(pst_device_close(device));
}

PST_TEST(Calibrate, TimesThatSayNothing)
{
    check_refusal(false, PST_E_INVALID,
                  "bytes 1048576: 9.53674e-07 s with num_sms 1, 9.53674e-07 s with none live: "
                  "measure more [");
    check_refusal(true, PST_E_CUDA, "5 faults while measuring, the first: stash read a row count ");
}

static void survives_every_failure(pst_copy_op op, bool sticky)
{
    const pst_calibrate_config config = quick(op);
    for (int n = 1;; n++) {
        pst_device *device = NULL;
        pst_copy_rates rates = untouched;
        open_fake(1, &device);
        fake.fail_at = n;
        fake.sticky = sticky;
        const pst_status status = pst_device_calibrate(device, &config, &rates);
        CHECK_MSG(device->live == 0, "%d: %u objects are left", n, device->live);
        CHECK_OK(pst_device_close(device));
        if (status == PST_OK && fake.calls < n) {
            CHECK_MSG(n > 40, "only %d calls", n);
            return;
        }
        if (status == PST_OK) /* of what destroy calls do, some need not succeed */
            continue;
        CHECK_MSG(status == PST_E_CUDA, "%d: %s", n, pst_status_name(status));
        CHECK_EQ(rates.num_points, 77);
        CHECK(n < 1000);
    }
}

PST_TEST(Calibrate, SaysWhatFailsAtTheEnd)
{
    const pst_calibrate_config config = quick(PST_COPY_STASH);
    pst_device *device = NULL;
    pst_copy_rates rates = untouched;
    open_fake(1, &device);
    fake.fails_reset = 2; /* the first is that of a new pool */
    CHECK_STATUS(pst_device_calibrate(device, &config, &rates), PST_E_CUDA);
    CHECK_EQ(fake.resets, 2);
    CHECK_EQ(rates.num_points, 77);
    CHECK_OK(pst_device_close(device));
}

PST_TEST(Calibrate, SurvivesEveryFailedCall)
{
    for (int op = PST_COPY_STASH; op <= PST_COPY_RESTORE; op++) {
        survives_every_failure((pst_copy_op)op, false);
        survives_every_failure((pst_copy_op)op, true);
    }
}
