/* Shared by the callers that hand the library every struct that can grow. */
#ifndef PAGESTASH_TESTS_CALLER_H
#define PAGESTASH_TESTS_CALLER_H

#include <pagestash/pagestash.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

extern int num_bad;

void *put_at_end(const void *from, size_t bytes);
void say(const char *name, pst_status status);
void need(const char *what, pst_status status);
void also(const char *what, pst_status status);

#define AT_END(value) ((__typeof__(&(value)[0]))put_at_end(value, sizeof(value)))
#define END(value) ((__typeof__(&(value)))put_at_end(&(value), sizeof(value)))

/* An output, and room behind it that must stay as it is. */
#define GET(type, call)                                \
    do {                                               \
        struct {                                       \
            type out;                                  \
            unsigned char behind[64];                  \
        } it;                                          \
        memset(&it, 0xa5, sizeof(it));                 \
        type *out = &it.out;                           \
        say(#type, call);                              \
        for (size_t i = 0; i < sizeof(it.behind); i++) \
            num_bad += it.behind[i] != 0xa5;           \
    } while (0)

/* ---- caller_schedule.c ---- */

void check_schedules(void);
void check_schedulers(pst_device *device, pst_pool *pool, const pst_group *group,
                      const pst_buffers *buffers);
void check_simulations(void);

#endif
