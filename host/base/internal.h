/* What the host modules share, grouped under the file that defines it. */
#ifndef PSTI_HOST_INTERNAL_H
#define PSTI_HOST_INTERNAL_H

#include <pagestash/pagestash.h>

#include "kernels/kernels.h"

/* ---- status.c ---- */

/* Sets this thread's last message to "file:line: text" and returns status. */
__attribute__((format(printf, 4, 5))) pst_status psti_fail(pst_status status, const char *file,
                                                           int line, const char *format, ...);

/* Control characters, which a caller's text may hold, become spaces. */
void psti_one_line(char *text);

#define PSTI_FAIL(status, ...) psti_fail(status, __FILE__, __LINE__, __VA_ARGS__)
#define PSTI_CHECK(condition, status, ...)         \
    do {                                           \
        if (!(condition))                          \
            return PSTI_FAIL(status, __VA_ARGS__); \
    } while (0)
#define PSTI_TRY(call)                    \
    do {                                  \
        const pst_status psti_s = (call); \
        if (psti_s != PST_OK)             \
            return psti_s;                \
    } while (0)

/* ---- log.c ---- */

__attribute__((format(printf, 2, 3))) void psti_log(pst_log_level level, const char *format, ...);

/* ---- env.c ---- */

int psti_env_log_level(void); /* PAGESTASH_LOG; 0 before the table was read or when it is bad */
int psti_env_num_sms(void);
pst_backend psti_env_backend(void);
bool psti_env_nvtx(void);
const char *psti_env_nccl_library(void);

/* What libpagestash_torch does. */
typedef enum psti_torch_mode {
    PSTI_TORCH_OFF,    /* serves */
    PSTI_TORCH_RECORD, /* and writes a trace */
    PSTI_TORCH_PLAN,   /* serves as planned */
} psti_torch_mode;

psti_torch_mode psti_env_torch_mode(void);
const char *psti_env_torch_device(void);
const char *psti_env_torch_plan(void);
const char *psti_env_torch_trace(void);

/* ---- memory.c: the library's own host allocations; tests make the n-th one fail ---- */

void *psti_calloc(size_t count, size_t size);
void psti_free(void *memory);
void psti_fail_allocation_after(long successes); /* -1: never; sticks until set again */
bool psti_allocation_fails(void);                /* device allocations ask this, too */

/* ---- a graph's hold on what it uses ---- */

/* Counts captured graphs that use an object. On cuda last_capture keeps a capture from holding
 * twice; two captures that take turns may each hold several times, and let go as often. */
typedef struct psti_hold {
    uint32_t graphs;
    uint64_t last_capture;
} psti_hold;

/* ---- memory that can grow in place ---- */

typedef struct psti_span {
    unsigned char *address; /* NULL: none */
    uint64_t reserved;      /* bytes of addresses */
    uint64_t mapped; /* bytes of memory, from the start; on cuda in multiples of granularity */
    uint64_t granularity;
    bool is_host;  /* host pages of a cuda device */
    void *state;   /* of the device's own kind */
    void *mapping; /* host memory: as it was reserved */
    size_t mapping_bytes;
} psti_span;

/* ---- span.c: the host's memory ---- */

/* Memory that the system and the control group still have. */
uint64_t psti_available_bytes(void);
pst_status psti_host_span_open(psti_span *span, uint64_t reserved);
/* Fails: NOMEM, also where that would leave the system too little. numa_node: -1 for any. */
pst_status psti_host_span_commit(psti_span *span, uint64_t from, uint64_t bytes, int numa_node);
void psti_host_span_decommit(psti_span *span, uint64_t from, uint64_t bytes);
pst_status psti_host_span_resize(psti_span *span, uint64_t bytes);
void psti_host_span_close(psti_span *span);

/* ---- the device table ---- */

typedef struct psti_device_ops {
    void (*close)(pst_device *device);
    pst_status (*get_info)(pst_device *device, pst_device_info *info);
    pst_status (*alloc)(pst_device *device, size_t bytes, void **address_out);
    pst_status (*free)(pst_device *device, void *address);
    pst_status (*alloc_pinned)(pst_device *device, size_t bytes, void **address_out);
    pst_status (*free_pinned)(pst_device *device, void *address);
    pst_status (*copy)(pst_device *device, void *to, const void *from, size_t bytes,
                       pst_stream stream);
    pst_status (*fill)(pst_device *device, void *to, uint8_t value, size_t bytes,
                       pst_stream stream);
    pst_status (*synchronize)(pst_device *device);
    pst_status (*stream_create)(pst_device *device, pst_stream *stream_out);
    pst_status (*stream_destroy)(pst_device *device, pst_stream stream);
    pst_status (*stream_synchronize)(pst_device *device, pst_stream stream);
    pst_status (*event_create)(pst_device *device, pst_event *event_out);
    pst_status (*event_destroy)(pst_device *device, pst_event event);
    pst_status (*event_record)(pst_device *device, pst_event event, pst_stream stream,
                               bool external);
    pst_status (*event_wait)(pst_device *device, pst_event event, pst_stream stream, bool external);
    pst_status (*event_synchronize)(pst_device *device, pst_event event);
    pst_status (*event_elapsed)(pst_device *device, pst_event begin, pst_event end,
                                double *seconds_out);
    pst_status (*graph_begin)(pst_device *device, pst_stream stream);
    pst_status (*graph_end)(pst_device *device, pst_stream stream, pst_graph *graph);
    pst_status (*graph_launch)(pst_graph *graph, pst_stream stream);
    void (*graph_destroy)(pst_graph *graph);
    /* Where `stream` is being captured, the graph counts in hold->graphs until it dies. */
    pst_status (*hold)(pst_device *device, pst_stream stream, psti_hold *hold);
    /* Enqueues one operation; args is copied. */
    pst_status (*launch)(pst_device *device, psti_op op, const void *args, pst_stream stream);
    /* Pages of a tier that can grow. Synchronous. After a failed resize the span is as before. */
    pst_status (*span_open)(pst_device *device, uint32_t tier, uint64_t reserved, psti_span *span);
    pst_status (*span_resize)(pst_device *device, psti_span *span, uint64_t bytes);
    void (*span_close)(pst_device *device, psti_span *span);
} psti_device_ops;

struct pst_device {
    const psti_device_ops *ops;
    pst_device_info info; /* free_bytes as of open */
    pst_backend preset;   /* what auto means, unless it is auto itself */
    uint32_t live;        /* objects of this device, atomic */
    void *state;          /* of the device's own kind */
};

struct pst_graph {
    pst_device *device;
    pst_graph_info info;
    void *state;
};

/* ---- device.c ---- */

void psti_device_retain(pst_device *device);
void psti_device_release(pst_device *device);
uint32_t psti_hold_count(const pst_device *device, const psti_hold *hold);

/* ---- device_host.c ---- */

/* A device whose operations run in the calling thread by `runners`; num_sms as reported. */
pst_status psti_host_device_open(const char *name, int num_sms, const psti_runners *runners,
                                 pst_device **device_out);

/* ---- device_cuda.c ---- */

pst_status psti_cuda_device_open(int index, pst_device **device_out);
bool psti_cuda_is_present(void); /* says nothing where it is not */

/* ---- group.c ---- */

struct pst_group {
    pst_device *device;
    psti_hold hold;
    uint32_t num_tensors;
    uint32_t num_spaces;
    uint32_t num_counts;
    bool has_counts; /* no counts pointer is NULL */
    bool is_aligned; /* every segment begins at a multiple of 16 */
    uint64_t *dirty; /* on the device, num_counts words */
    uint64_t max_tiles;
    psti_space spaces[PSTI_MAX_SPACES];
    psti_tensor tensors[PSTI_MAX_TENSORS];
};

/* NULL, or what differs in tensors or row spaces ("tensor 3 has 4 bytes per row, not 8"), written
 * to the buffer. Counts, bases, strides and capacities may differ. */
const char *psti_group_difference(const pst_group *a, const pst_group *b, char *buffer,
                                  size_t buffer_bytes);

/* ---- launch.c ---- */

/* Of one launch of stash or restore. */
typedef struct psti_launch {
    uint32_t num_sms; /* 0: all */
    uint32_t backend; /* a pst_backend; auto only on the host device */
    uint32_t flags;   /* of psti_move_args */
} psti_launch;

pst_status psti_launch_make(const pst_device *device, const pst_group *group,
                            const pst_launch_options *options, psti_launch *launch_out);
const char *psti_backend_name(pst_backend backend);
/* Takes PAGESTASH_BACKEND over and checks PAGESTASH_NUM_SMS. Fails: UNSUPPORTED, INVALID. */
pst_status psti_backend_preset(pst_device *device);

/* ---- pool.c ---- */

struct pst_pool {
    pst_device *device;
    psti_hold hold;
    psti_pool_view view;
    uint32_t num_pages[PSTI_TIERS]; /* as of the last resize */
    psti_span spans[PSTI_TIERS];    /* pages with memory of their own */
    bool is_callers;                /* memory */
    uint32_t failed; /* atomic: a CUDA error happened, only reset and destroy are accepted */
    uint32_t num_tickets;
    uint32_t num_ops; /* atomic */
    void *memory;     /* NULL when the caller's */
    psti_mailbox *mailbox;
    pst_stream stream; /* for synchronous calls */
    unsigned char *ticket_used;
    void *lock; /* pthread_mutex_t of num_tickets and ticket_used */
};

/* log2 of a checked page size; 0 means the default. */
pst_status psti_page_shift(uint64_t page_bytes, uint32_t *shift_out);
pst_status psti_pool_usable(const pst_pool *pool);
/* Returns status; PST_E_CUDA marks the pool as failed. */
pst_status psti_pool_note(pst_pool *pool, pst_status status);
/* Launches reset, resize, step or check. */
pst_status psti_pool_control(pst_pool *pool, psti_op op, uint32_t what, pst_stream stream);
/* Holds and launches. */
pst_status psti_pool_launch(pst_pool *pool, psti_op op, const void *args, pst_stream stream);
pst_status psti_pool_take_index(pst_pool *pool, uint64_t record, uint32_t *index_out);
pst_status psti_pool_drop_index(pst_pool *pool, uint32_t index);
/* Copies device memory to or from the host and waits. */
pst_status psti_pool_copy(const pst_pool *pool, void *to, const void *from, size_t bytes);

/* ---- ticket.c ---- */

struct pst_ticket {
    pst_pool *pool;
    psti_hold hold;
    psti_ticket_record *record; /* on the device */
    uint32_t index;
    uint32_t host_num, host_den; /* of stashes enqueued from now on */
    uint64_t table_pages;
    pst_group *shape; /* a copy without device memory */
};

#endif
