/* SM budgets: how few SMs copy so many bytes within so much time.
 *
 * A stash that hides behind other work should leave that work as many SMs as it can. Which budget
 * suffices depends on the GPU and the backend, so it is measured once, and computed from then on:
 *
 *   pst_copy_rates rates;
 *   pst_copy_choice choice;
 *   pst_device_calibrate(device, NULL, &rates);              at start-up
 *   pst_copy_rates_choose_sms(&rates, live_bytes, window, &choice);  per layer; pure arithmetic
 *   options.launch.num_sms = choice.num_sms;                 choice.fits: whether it should do
 *   options.launch.backend = rates.backend;
 *
 * The model is Hockney's, time = fixed + bytes / rate ("The communication challenge for MPP",
 * Parallel Computing 20, 1994). It is that of a device with nothing else to do: kernels that run at
 * the same time take bandwidth and SMs away, so leave a margin in the window.
 *
 * Threads: any.
 */
#ifndef PAGESTASH_BUDGET_H
#define PAGESTASH_BUDGET_H

#include <pagestash/device.h>

#define PST_MAX_COPY_RATES 16 /* never changes */

/* Which of the two copies is measured. */
typedef enum pst_copy_op {
    PST_COPY_STASH = 0,  /* from tensors into pages */
    PST_COPY_RESTORE = 1 /* from pages into tensors */
} pst_copy_op;

/* Frozen. */
typedef struct pst_copy_rate {
    int num_sms;             /* at least 1 */
    double bytes_per_second; /* live bytes, each read once and written once; at least 1 */
} pst_copy_rate;

/* What was measured of one operation of one backend. A plain value: keep it, store it, or fill it
 * in from measurements of your own. Frozen. */
typedef struct pst_copy_rates {
    pst_copy_op op;                           /* what was measured */
    pst_backend backend;                      /* auto: by what auto is for aligned rows */
    double fixed_seconds;                     /* of an operation without live rows */
    uint32_t num_points;                      /* 1..PST_MAX_COPY_RATES */
    pst_copy_rate points[PST_MAX_COPY_RATES]; /* num_sms ascending */
} pst_copy_rates;

/* What pst_device_calibrate measures, and how often. */
typedef struct pst_calibrate_config {
    size_t struct_size;
    pst_copy_op op;       /* default: stash */
    pst_backend backend;  /* one of pst_device_info.backends, or auto (default) */
    uint64_t bytes;       /* live bytes of a measurement, a multiple of 1 MiB, at most 1 TiB;
                           * 0: 256 MiB on cuda, 16 MiB on host */
    uint32_t repetitions; /* of each measurement, whose median counts; at most 100; 0: 9 */
    uint32_t padding;     /* 0 */
} pst_calibrate_config;

#define PST_CALIBRATE_CONFIG_INIT PST_INIT(pst_calibrate_config)

/* Frozen. */
typedef struct pst_copy_choice {
    int num_sms;    /* for pst_launch_options */
    double seconds; /* predicted for num_sms */
    bool fits;      /* seconds is within the window */
} pst_copy_choice;

PST_BEGIN_DECLS

/* Measures the operation with 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96 and all SMs, as far as the
 * device has them: one tensor, pages of 256 KiB, on cuda nothing in the cache. With t(n) the median
 * time between two events with n SMs, and fixed_seconds that with all SMs and no live rows,
 *   bytes_per_second(n) = bytes / (t(n) - fixed_seconds)
 * as measured: it may fall from one point to the next.
 * config:  NULL for the defaults.
 * Owns:    nothing after it has returned; meanwhile device memory for twice `bytes`, on cuda 256
 *          MiB more, and what a pool takes beside its pages.
 * pre:     the device has no other work, which would make the figures wrong.
 * Stream:  one of its own. Synchronous; not while capturing.
 * Fails:   INVALID (config; `bytes` too few to tell their time from none), UNSUPPORTED (a backend
 *          that the device lacks), NOMEM, DEVICE_NOMEM, CUDA (also if the pool recorded a fault).
 */
PST_API pst_status pst_device_calibrate(pst_device *device, const pst_calibrate_config *config,
                                        pst_copy_rates *rates_out);

/* The fewest SMs whose predicted time
 *   fixed_seconds + bytes / rate(num_sms)
 * is at most `seconds`. rate is that of the points, where a point slower than one of fewer SMs
 * counts as fast as that one (running maximum); linear between points, and from no rate at 0 SMs to
 * the first; never beyond the last point. If no budget suffices, fits is false and num_sms the
 * fewest SMs with the shortest predicted time. 0 bytes are predicted to take fixed_seconds with 1
 * SM. Pure arithmetic.
 * Fails: INVALID (a field of rates, seconds not finite and above 0). */
PST_API pst_status pst_copy_rates_choose_sms(const pst_copy_rates *rates, uint64_t bytes,
                                             double seconds, pst_copy_choice *choice_out);

PST_END_DECLS

#endif
