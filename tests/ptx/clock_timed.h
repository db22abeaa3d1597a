/* A device on which the launches of one operation are timed; all others run on the CPU. */
#ifndef PSTI_TESTS_PTX_CLOCK_TIMED_H
#define PSTI_TESTS_PTX_CLOCK_TIMED_H

#include <pagestash/pagestash.h>

#include "kernels/kernels.h"
#include "tests/ptx/clock_run.h"

/* What all launches of a PTX file have in common. */
struct clock_setting {
    const clock_table &table;
    const ptx_program &program;
    int traced; /* warp, as in clock_launch */
};

struct clock_wanted {
    psti_op op;
    const char *kernel;  /* its name in the PTX */
    bool is_all_sms;     /* that share DRAM; else few */
    const char *summary; /* for messages: which case */
};

/* One at a time. */
pst_device *clock_open(const clock_setting &setting, const clock_wanted &wanted);
/* From here on the operation is timed, or not. */
void clock_arm(bool on);
/* Closes the device; of the launch that was timed, of several the last. None ends the program. */
clock_report clock_close(pst_device *device);

/* Ends the program where a call of the library failed. */
void clock_check(pst_status status, const char *what);
#define CLOCK_CHECK(call) clock_check(call, #call)

#endif
