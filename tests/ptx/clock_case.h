/* What a timed launch works on: a real pool, made by the library's public calls. */
#ifndef PSTI_TESTS_PTX_CLOCK_CASE_H
#define PSTI_TESTS_PTX_CLOCK_CASE_H

#include "tests/ptx/clock_run.h"

struct clock_case {
    enum : uint32_t {
        only_last = 1, /* all tensors but the last are empty */
        budget = 2,    /* one SM of many is asked for */
        all_sms = 4,   /* DRAM is shared with all SMs, else with few */
        in_short = 8,  /* in the short selection */
        migrates = 16  /* migrations are timed, too */
    };
    const char *name;
    const char *what; /* in words */
    uint32_t flags;
    uint32_t num_tensors;
    uint32_t num_segments;    /* 0: a prefix */
    uint32_t row_bytes, rows; /* capacity; of one segment */
    uint32_t live;            /* rows; of one segment */
    uint32_t offset;          /* of the first row from 256 bytes */
    uint32_t page_bytes;
};

extern const clock_case clock_cases[];
extern const uint32_t clock_num_cases;

enum class clock_op { stash, restore, migrate };

/* Runs the launch of interest under the clock, everything else by the host's kernels, and checks
 * the bytes. backend: ldg, bulk or squeeze. False: the case has no such launch. */
bool clock_time_case(const clock_table &table, const ptx_program &program, const clock_case &what,
                     clock_op op, const std::string &backend, bool concurrent, int traced,
                     clock_report *report_out);

#endif
