/* Allocation traces: the memory requests of a training iteration, in order.
 *
 *   pst_trace *trace;
 *   pst_trace_read(&config, read, file, &trace);       any of the formats below
 *   pst_trace_expand(trace, &expansion, &longer);      one layer profiled, N planned
 *   tensors = pst_trace_tensors(trace);                what a planner wants (plan.h)
 *
 * The order of requests is the only time: request k happens at instant k. A tensor is live in
 * [begin, end), from its malloc to its free. docs/formats.md describes the formats.
 *
 * pst_trace_request, pst_trace_tensor and pst_trace_pass are frozen.
 *
 * Pure: no device, clock or files; bytes come through the caller's function. Threads: a reader or
 * trace under construction by one at a time; a finished trace by any number.
 */
#ifndef PAGESTASH_TRACE_H
#define PAGESTASH_TRACE_H

#include <pagestash/status.h>

#define PST_TRACE_NONE UINT32_MAX     /* no layer, micro-batch; no such pass */
#define PST_TRACE_MAX_STREAMS 64      /* streams of a trace, numbered 0.. by first appearance */
#define PST_TRACE_MAX_BYTES INT64_MAX /* of one tensor */

/* X(name, flag, align, text): the only list of formats. flag: of `pagestash trace` and `pagestash
 * plan`, one word; align: of addresses, for a planner; 1: sizes are in a unit of the file's own. */
#define PST_TRACE_FORMAT_LIST(X)                                                            \
    X(PST_TRACE_CSV, trace, 512,                                                            \
      "our own trace: CSV with columns op,id,size,stream,phase,layer,micro_batch,rank,tag") \
    X(PST_TRACE_MEMO, memo, 1, "MEMO's lines: malloc ID SIZE, free ID [SIZE]")              \
    X(PST_TRACE_MINIMALLOC, minimalloc, 1,                                                  \
      "MiniMalloc's CSV with columns id, lower, upper, size in any order")                  \
    X(PST_TRACE_STALLOC, stalloc, 512, "STAlloc's trace, as its trace mode writes it")      \
    X(PST_TRACE_PYTORCH, pytorch, 512, "a pickle of torch.cuda.memory._snapshot()")

/* Who wrote the file, and how. */
typedef enum pst_trace_format {
#define PST_TRACE_FORMAT_ENUM(name, flag, align, text) name,
    PST_TRACE_FORMAT_LIST(PST_TRACE_FORMAT_ENUM)
#undef PST_TRACE_FORMAT_ENUM
        PST_TRACE_NUM_FORMATS /* how many there are */
} pst_trace_format;

/* What a request does. */
typedef enum pst_trace_op {
    PST_TRACE_MALLOC = 0, /* a tensor begins */
    PST_TRACE_FREE,       /* a tensor ends */
    PST_TRACE_MARK,       /* neither: its tag says what */
} pst_trace_op;

/* Which half of a step a request belongs to. */
typedef enum pst_trace_phase {
    PST_PHASE_NONE = 0, /* "" */
    PST_PHASE_FORWARD,  /* "forward" */
    PST_PHASE_BACKWARD, /* "backward" */
    PST_PHASE_WEIGHT,   /* the weight half of a split backward */
    PST_PHASE_OTHER,    /* embedding, head, optimizer, ... */
    PST_NUM_PHASES      /* how many there are */
} pst_trace_phase;

/* What a tensor is (malloc), or what a mark says. */
typedef enum pst_trace_tag {
    PST_TAG_STATIC = 0, /* planned */
    PST_TAG_DYNAMIC,    /* its size is known on the device only: served by pages, not planned */
    PST_TAG_ITERATION,  /* mark: iteration `id` begins */
    PST_TAG_RECORD,     /* mark: event `id` is recorded on `stream` */
    PST_TAG_WAIT,       /* mark: `stream` waits for the last record of event `id` */
    PST_TAG_USE,        /* mark: live tensor `id` is also used on `stream` from here on */
    PST_TAG_SYNC,       /* mark: the host waits for all streams */
    PST_TAG_GROW,       /* mark: tensor `id`, just malloc'ed, has `bytes` more for each layer that a
                         * model has more */
    PST_NUM_TAGS        /* how many there are */
} pst_trace_tag;

/* One row. */
typedef struct pst_trace_request {
    uint64_t line;   /* where it stands, from 1; its number where the file has no lines */
    uint64_t id;     /* of the tensor, iteration or event */
    uint64_t bytes;  /* malloc, grow: 1..PST_TRACE_MAX_BYTES; free: the same or 0 (not said); other
                      * marks: 0 */
    uint32_t stream; /* as in the file, below 2^32 */
    uint32_t layer, micro_batch; /* PST_TRACE_NONE: not said */
    uint32_t rank;               /* of the process that asked; 0: the first, or not said */
    uint8_t op, phase, tag;      /* pst_trace_op, pst_trace_phase, pst_trace_tag */
    uint64_t time;               /* MiniMalloc: lower or upper; else 0 */
} pst_trace_request;

/* One tensor, in the order of the mallocs. */
typedef struct pst_trace_tensor {
    uint64_t id;         /* as in the file */
    uint64_t bytes;      /* as asked for, not rounded */
    uint64_t begin, end; /* instants; end is the number of requests for what is never freed */
    uint64_t line;       /* of the malloc */
    uint32_t stream;     /* dense, see pst_trace_stream_name */
    uint32_t layer, micro_batch, rank; /* of its malloc; PST_TRACE_NONE: not said, but of rank 0 */
    uint32_t first_pass, last_pass;    /* passes of its malloc and its free */
    uint8_t phase, tag;                /* PST_TAG_STATIC or PST_TAG_DYNAMIC */
    bool never_freed;                  /* it lives to the end */
    uint64_t begin_time, end_time;     /* MiniMalloc: lower and upper; else 0 */
} pst_trace_tensor;

/* A maximal run of requests with the same phase, layer and micro-batch. A tensor whose first and
 * last pass are one is transient, any other skeletal (MEMO, section 4.1). Marks end no pass. */
typedef struct pst_trace_pass {
    uint64_t begin, end;         /* instants, half-open */
    uint32_t layer, micro_batch; /* PST_TRACE_NONE: not said */
    uint8_t phase;               /* pst_trace_phase */
} pst_trace_pass;

/* immutable; made by pst_trace_read, _make, _expand or _derive */
typedef struct pst_trace pst_trace;
typedef struct pst_trace_reader pst_trace_reader; /* made by pst_trace_reader_open */

/* Reads up to `bytes` bytes into buffer. Returns how many, 0 at the end, -errno on failure. */
typedef ptrdiff_t (*pst_trace_read_fn)(void *source, void *buffer, size_t bytes);

/* What a file is, and which of its requests count. */
typedef struct pst_trace_config {
    size_t struct_size;
    pst_trace_format format; /* default: our own CSV */
    const char *name;        /* in messages; NULL: "trace" */
    uint32_t device;         /* pytorch: which of the snapshot's devices */
    bool has_rank;      /* take the requests of `rank`; without, all, and more than one rank is an
                            * error */
    bool has_iteration; /* take what stands between mark `iteration` and the next, counted from 0
                            * in the file; without, all */
    uint32_t rank, iteration; /* with has_rank and has_iteration; else not looked at */
    bool keep_unfreed;        /* tensors never freed live to the end; default: an error, but in
                            * snapshots, which are a window on a longer run */
    uint8_t padding[7];       /* 0 */
} pst_trace_config;

#define PST_TRACE_CONFIG_INIT PST_INIT(pst_trace_config)

PST_BEGIN_DECLS

/* ---- streaming: one request after another, in constant memory (a snapshot and a MiniMalloc file,
 * which is not in order of time, are held whole). Checks the form of every row and the bounds of
 * every value, not whether the requests make sense together. */

/* Gives every row, whatever rank, iteration and keep_unfreed ask of the calls below. config is
 * copied, its name kept. Fails: INVALID, NOMEM. */
PST_API pst_status pst_trace_reader_open(const pst_trace_config *config, pst_trace_read_fn read,
                                         void *source, pst_trace_reader **reader_out);
/* Fails: AGAIN at the end of a complete file; INVALID, with file, line, field, value and what is
 * allowed as the last message; NOMEM. After a failure the reader can only be closed. */
PST_API pst_status pst_trace_reader_next(pst_trace_reader *reader, pst_trace_request *request_out);
PST_API void pst_trace_reader_close(pst_trace_reader *reader); /* NULL is allowed */

/* ---- a whole trace */

/* Reads all. Fails: INVALID (file, line, field: also free before malloc, double free, an id used
 * twice, a tensor never freed, more than one rank), NOMEM. */
PST_API pst_status pst_trace_read(const pst_trace_config *config, pst_trace_read_fn read,
                                  void *source, pst_trace **trace_out);
/* The same from requests in memory; request.line is what messages name. */
PST_API pst_status pst_trace_make(const pst_trace_config *config, const pst_trace_request *requests,
                                  uint64_t num_requests, pst_trace **trace_out);
PST_API void pst_trace_destroy(pst_trace *trace); /* NULL is allowed */

/* Valid until the trace is destroyed. */
PST_API uint64_t pst_trace_num_tensors(const pst_trace *trace);
PST_API const pst_trace_tensor *pst_trace_tensors(const pst_trace *trace);
PST_API uint64_t pst_trace_num_passes(const pst_trace *trace);
PST_API const pst_trace_pass *pst_trace_passes(const pst_trace *trace);
PST_API uint64_t pst_trace_num_requests(const pst_trace *trace); /* without marks: the instants */
PST_API uint32_t pst_trace_num_streams(const pst_trace *trace);
PST_API uint32_t pst_trace_stream_name(const pst_trace *trace, uint32_t stream); /* in the file */
/* The requests again, in order, marks included, streams as in the file: what a writer needs. They are
 * kept packed, and whole (56 bytes each) from the first call of pst_trace_rows on; NULL: there are
 * none, or no memory for them. */
PST_API uint64_t pst_trace_num_rows(const pst_trace *trace);
PST_API const pst_trace_request *pst_trace_rows(const pst_trace *trace);

/* releases[i * num_streams + r]: the first instant at which stream r may reuse the bytes of tensor
 * i: its end on its own stream, and where others used it or r is another, the first instant by
 * which r has waited, through events, for all that was enqueued there until the free; the number of
 * requests if it never does. Vector clocks over record and wait marks (Fidge 1988, Mattern 1989).
 * NULL if the trace has one stream. Owned by the trace. */
PST_API const uint64_t *pst_trace_releases(const pst_trace *trace);

/* ---- one layer profiled, N planned */

/* In which order micro-batches go forward and backward. */
typedef enum pst_trace_order {
    PST_ORDER_SEQUENTIAL = 0, /* F0 B0 F1 B1 ... */
    PST_ORDER_1F1B,           /* min(num_stages - stage - 1, num_micro_batches) forwards, then a
                               * forward and a backward in turns, then what backwards are left */
} pst_trace_order;

/* The profile is one micro-batch: what comes before (P), a layer's forward (F), what lies between
 * (M), its backward (B), what comes after (E). Where F and B are: the ranges given; else the rows
 * labelled with a layer; else, without labels, the longest two runs of requests that repeat (op and
 * size), if they are half of all requests or more. A profile of several layers, which must be
 * alike, is first cut down to one. Where labelled layers are not, but those are that are left
 * without one or two at either end, these are cut down; the others stay as they are, forward in P
 * and M, backward in M and E, and N counts them.
 *
 * The expansion is, for each micro-batch, P F(0) ... F(N-1) as its forward and M B(N-1) ... B(0) E
 * as its backward. Its tensors, by where a tensor of the profile is born and freed:
 *
 *   F-F, B-B    one in each F(i) or B(i), which frees it
 *   F-B         one in each F(i), freed in B(i)
 *   P-F, P-B    the input of layer 0. It needs an output of its size, the first in the order of
 *               births: a tensor F-M or F-E. That of F(i) is freed where F(i+1) or
 *               B(i+1) would free the input; that of F(N-1) where the profile frees the output
 *   M-B         (P-B if there is no such output) the same in the other direction: the incoming
 *               gradient of B(N-1), with the B-E that is freed first; that of B(i) is freed in
 *               B(i-1), that of B(0) in E
 *   F-M, F-E, B-E without such an input: one in each layer, all freed, as they were born, where
 *               the profile frees its one
 *   the rest    one; what is never freed, and no output, is there once, for the first micro-batch
 *
 * In P, M and E a run of rows of phase other with layer 0 is there once for each layer, in rising
 * order, as an optimizer goes from parameter to parameter. Its tensors are each layer's own, and so
 * is what it frees of those; else it frees once. What it frees of P, M or E, with what it leaves to
 * them (a tensor of that size, else the first), goes from layer to layer as outputs do. Tensors of the
 * rest with a mark `grow` have their size for N layers.
 *
 * A mark goes with the request before it; events are told apart by micro-batch and layer; marks of
 * iterations are left out but for one before the first request. Rows of F and B are labelled forward
 * (or weight) and backward with layer and micro-batch, the others with the micro-batch, and phase
 * other if they had none. Ids are 0, 1, ... in the order of the mallocs, lines those of the new
 * rows. */
typedef struct pst_trace_expansion {
    size_t struct_size;
    uint32_t num_layers;                   /* N; 0: 1 */
    uint64_t forward_begin, forward_end;   /* instants of F and B; all 0: to be found */
    uint64_t backward_begin, backward_end; /* half-open, as the forward's */
    uint32_t num_micro_batches;            /* 0: 1 */
    pst_trace_order order;                 /* default: sequential */
    uint32_t num_stages, stage;            /* of a pipeline, for 1f1b; num_stages 0: 1 */
} pst_trace_expansion;

#define PST_TRACE_EXPANSION_INIT PST_INIT(pst_trace_expansion)

/* Fails: INVALID (a field; layers that cannot be found or are not alike; a tensor that fits none of
 * the above), NOMEM. */
PST_API pst_status pst_trace_expand(const pst_trace *trace, const pst_trace_expansion *expansion,
                                    pst_trace **trace_out);

/* ---- a transformer's trace from formulas, where nobody has recorded one */

/* What of a model pst_trace_derive makes. */
typedef enum pst_trace_part {
    PST_TRACE_MODEL = 0,      /* embedding, layers, head and loss, forward and backward */
    PST_TRACE_LAYER_FORWARD,  /* of one layer */
    PST_TRACE_LAYER_BACKWARD, /* of one layer, from the incoming to the outgoing gradient */
    PST_TRACE_LAYER,          /* both */
    PST_TRACE_NUM_PARTS       /* how many there are */
} pst_trace_part;

/* A GPT in half precision, sequence parallelism, contexts in a ring. docs/formats.md lists the
 * requests. */
typedef struct pst_trace_derivation {
    size_t struct_size;
    pst_trace_part part;           /* default: the model */
    uint64_t micro_batch;          /* 0: 1 */
    uint64_t sequence_size;        /* 0: 131072 */
    uint64_t hidden_size;          /* 0: 4096 */
    uint64_t ffn_size;             /* 0: 4 * hidden_size */
    uint64_t num_heads;            /* 0: 32 */
    uint64_t vocab_size;           /* is padded to a multiple of 128 * tensor_parallel; 0: 50257 */
    uint32_t tensor_parallel;      /* 0: 4 */
    uint32_t context_parallel;     /* 0: 2 */
    uint32_t num_layers;           /* 0: 32 */
    uint32_t alpha_num, alpha_den; /* of the tokens of a layer are swapped, the rest recomputed;
                                    * 0/0: 1/4 */
    bool full;       /* what the backward needs is requested too and nothing is swapped; by default
                      * those tensors live outside the plan, in MEMO's swap buffers */
    bool fused_loss; /* the head's tensors as for a vocabulary of 512 */
    uint32_t num_micro_batches; /* 0: 1 */
    uint32_t warmup; /* micro-batches that go forward before forwards and backwards take turns; 0:
                      * one micro-batch after another */
} pst_trace_derivation;

#define PST_TRACE_DERIVATION_INIT PST_INIT(pst_trace_derivation)

/* Rows are labelled: a layer's forward or backward of one micro-batch is one pass. Sizes are
 * rounded up to 512. Fails: INVALID (a field; sizes that tensor_parallel or context_parallel do not
 * divide), NOMEM. */
PST_API pst_status pst_trace_derive(const pst_trace_derivation *derivation, pst_trace **trace_out);

/* ---- figures of a trace */

#define PST_TRACE_ALIGN_DEFAULT 512u /* bytes */

/* Of the tensors to plan (tag static), sizes rounded up to the alignment. */
typedef struct pst_trace_summary {
    uint64_t num_requests;                          /* of all tensors */
    uint64_t num_tensors, num_dynamic, num_unfreed; /* planned; of pages; of both, never freed */
    uint64_t num_sizes;                             /* distinct, before rounding */
    uint64_t most_live_bytes;   /* most bytes live at once: no plan has a lower peak */
    uint64_t most_live_instant; /* the first request after which they are */
    uint64_t most_live_tensors; /* tensors at once */
    uint64_t
        online_peak; /* the peak of an online best-fit allocator: the smallest gap that is large
                           * enough, else on top; streams are ignored */
    uint64_t most_live_dynamic_bytes; /* most bytes of dynamic tensors live at once */
    uint64_t align;                   /* bytes that sizes were rounded up to */
} pst_trace_summary;

/* align: a power of two up to 2^32, or 0: 512. Fails: INVALID (also above 2^62 bytes), NOMEM. */
PST_API pst_status pst_trace_get_summary_sized(const pst_trace *trace, uint64_t align,
                                               pst_trace_summary *summary_out,
                                               size_t summary_bytes);
static inline pst_status pst_trace_get_summary(const pst_trace *trace, uint64_t align,
                                               pst_trace_summary *summary_out)
{
    return pst_trace_get_summary_sized(trace, align, summary_out, sizeof(pst_trace_summary));
}

PST_END_DECLS

#endif
