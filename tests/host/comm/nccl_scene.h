/* Ranks of NCCL for tests, in a child process: PAGESTASH_NCCL_LIBRARY is read once in a process.
 * Their devices are the host's and say that they are cuda's; tests/host/comm/fake_nccl.c plays
 * NCCL. */
#ifndef PAGESTASH_TESTS_NCCL_SCENE_H
#define PAGESTASH_TESTS_NCCL_SCENE_H

#include "tests/harness.h"
#include "tests/host/base/child.h"
#include "tests/host/comm/fake_nccl.h"

#include "host/device/device.h"

/* ---- in a child ---- */

#define WANT(condition) nccl_want(__LINE__, condition, #condition)
#define WANT_OK(call) nccl_want(__LINE__, (call) == PST_OK, #call)
/* What a call answered, and how its message begins. */
#define WANT_FAILURE(call, status, message) \
    nccl_want(__LINE__, (call) == (status) && nccl_said(message), #call " is " #status)

void nccl_want(int line, bool right, const char *text);
bool nccl_said(const char *message);

/* The program that uses the library has loaded NCCL. */
void nccl_load(void);
fake_counts *nccl_counts(void);
/* This thread's exchanges are put on streams of that device, and captured there. */
void nccl_enqueue_on(pst_device *device);

/* A device that says that it is CUDA's of that index. */
typedef struct nccl_device {
    pst_device *device;
    psti_device_ops ops;
    const psti_device_ops *real;
    bool is_busy;    /* what stream_query says */
    pst_stream idle; /* but of that one */
} nccl_device;

void nccl_open_device(nccl_device *self, int index);
void nccl_close_device(nccl_device *self);

typedef struct nccl_rank {
    int rank, num_ranks;
    nccl_device at;
    pst_stream stream;
    pst_comm *comm;      /* NULL: it was destroyed by the body */
    pst_comm *host_comm; /* the same of the host */
    uint64_t random;
    void (*body)(struct nccl_rank *self);
} nccl_rank;

/* Runs the body once for each rank, in a thread; is_given: the program has made the
 * communicators. timeout_ms 0: the library's. */
void nccl_run(int num_ranks, bool is_given, uint32_t timeout_ms, void (*body)(nccl_rank *self));

/* ---- in the test ---- */

/* It says that it is done, and nothing else. version: a variable, or NULL. */
void nccl_check_child(const char *name, const char *version);

/* The NCCL of the machine, for tests on a GPU. */
typedef struct nccl_real {
    psti_nccl_result (*comm_init_all)(pst_nccl_comm *comms, int num_ranks, const int *devices);
    psti_nccl_result (*comm_destroy)(pst_nccl_comm comm);
} nccl_real;

bool nccl_find_real(nccl_real *nccl);

#endif
