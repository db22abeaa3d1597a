/* A0, the ceiling; main.c has it sampled between the others. */
#ifndef PAGESTASH_BENCH_CEILING_H
#define PAGESTASH_BENCH_CEILING_H

#include "bench/stash/flat.h"

typedef struct bench_ceiling {
    bench_timer timer;
    bench_flat flat; /* the candidates */
} bench_ceiling;

int bench_ceiling_open(bench_ceiling *ceiling, pst_device *device, const bench_machine *machine,
                       bool quick);
/* Takes num samples of each candidate. */
int bench_ceiling_sample(bench_ceiling *ceiling, uint32_t num);
/* Adds the candidates and says which is A0. */
int bench_ceiling_report(const bench_ceiling *ceiling, bench_report *report);
/* Does nothing but return code after a failure. */
int bench_ceiling_close(bench_ceiling *ceiling, int code);

#endif
