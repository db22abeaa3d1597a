/* How long a step of a training run takes, worked out before it starts: a model, for ranking and for
 * the simulator (simulate.h), not a measurement.
 *
 *   pst_gpu gpu = PST_GPU_INIT;
 *   pst_gpu_find("h100", &gpu);                          its peaks, and shares of them that are reached
 *   pst_step_config config = PST_STEP_CONFIG_INIT;
 *   config.run = &run; config.gpu = &gpu;                run: estimate.h
 *   pst_step_get_work(&config, PST_STEP_MOE, &work);     operations, FLOPs, bytes
 *   pst_step_get_times(&config, PST_STEP_MOE, &times);       nanoseconds of a layer's passes
 *   pst_step_predict(&config, &step, NULL);                  of a whole step, by the simulator
 *
 * An operation takes the longer of its FLOPs over the rate of such products and its bytes over the
 * rate of memory (roofline; Williams et al. 2009), and gpu.kernel_ns. A transfer takes what a GPU sends
 * in a ring (pst_estimate_op.wire_bytes) over the rate of the slowest link on it, and a latency for each
 * step of the ring. What a transfer runs beside hides it, as the overlaps of the config say; what is
 * left is exposed and takes the main stream's time. Times of layers are then visits of the simulator,
 * with the schedule that is set: waits between stages are its own, and whether gradients and
 * parameters are there in time is asked of the times of its visits.
 *
 * Pure: functions of the config, in integers; each time is rounded up to a nanosecond. Threads: any.
 */
#ifndef PAGESTASH_STEP_H
#define PAGESTASH_STEP_H

#include <pagestash/estimate.h>
#include <pagestash/simulate.h>

/* A GPU and its links. Rates are peaks of the maker's data sheets, without sparsity, of one direction;
 * per mille is what is reached of them, at most 1000. docs/estimator.md has the sources. */
typedef struct pst_gpu {
    size_t struct_size;
    const char *name;             /* NULL: none */
    uint64_t flops;               /* per second, of products in bf16 and fp16 */
    uint64_t fp8_flops;           /* 0: none */
    uint64_t fp32_flops;          /* per second, of products in fp32 */
    uint64_t memory_rate;         /* bytes per second, as all rates */
    uint64_t link_rate;           /* between the GPUs of a node */
    uint64_t network_rate;        /* that a GPU has between nodes */
    uint64_t host_rate;           /* to and from pinned host memory */
    uint64_t kernel_ns;           /* of an operation beside its work */
    uint64_t link_ns, network_ns; /* latency of a step of a ring */
    uint32_t node_gpus;           /* that link_rate joins */
    uint32_t product_per_mille, fp8_per_mille, expert_per_mille; /* the last: grouped products */
    /* of attention's FLOPs with a causal mask, which are half of those without */
    uint32_t attention_forward_per_mille, attention_backward_per_mille;
    /* of the rates of these names; at most 1000 */
    uint32_t memory_per_mille, link_per_mille, network_per_mille, host_per_mille;
    uint64_t memory_bytes; /* that it has; 0: not known, as no time needs it */
} pst_gpu;

#define PST_GPU_INIT PST_INIT(pst_gpu)

/* What runs beside other work; bits can be combined. Megatron-LM's flags. The experts' exchange runs beside
 * another micro-batch where the run has overlaps_exchange. */
#define PST_OVERLAP_TENSOR 1u    /* --tp-comm-overlap: tensor parallel transfers beside products */
#define PST_OVERLAP_GRADIENTS 2u /* --overlap-grad-reduce: beside the last micro-batch's backward */
#define PST_OVERLAP_PARAMS 4u    /* --overlap-param-gather: beside the first forwards */
#define PST_OVERLAP_SHARED_EXPERTS 8u /* --moe-shared-expert-overlap: beside the shared experts */
#define PST_OVERLAP_ALL 15u           /* all of the above */

/* What is predicted: a run, on which GPUs, with what beside what. */
typedef struct pst_step_config {
    size_t struct_size;
    const pst_estimate_config *run; /* read by the calls alone */
    const pst_gpu *gpu;             /* the same */
    uint32_t overlaps;              /* PST_OVERLAP_ bits */
    /* 1F1B (interleaved with virtual_stages above 1), or with one chunk a stage GPIPE, GPIPE_REVERSED,
     * ZB_H1, ZB_H2 */
    pst_schedule_kind schedule;
} pst_step_config;

#define PST_STEP_CONFIG_INIT PST_INIT(pst_step_config)

/* Whose work and times. */
typedef enum pst_step_part {
    PST_STEP_DENSE = 0, /* a layer */
    PST_STEP_MOE,       /* a layer with experts */
    PST_STEP_FIRST,     /* the embedding */
    PST_STEP_LAST,      /* final norm, output matrix, loss; depths of multi-token prediction without
                         * their layers */
    PST_NUM_STEP_PARTS  /* how many there are */
} pst_step_part;

/* Which rate an operation has. */
typedef enum pst_step_kind {
    PST_STEP_PRODUCT = 0,    /* a matrix product */
    PST_STEP_EXPERT_PRODUCT, /* a grouped one of routed experts */
    PST_STEP_ATTENTION,      /* scores, softmax and their product with values */
    PST_STEP_MEMORY          /* whatever only reads and writes */
} pst_step_kind;

/* FLOPs, two for each multiplication and addition, and bytes read and written in the GPU's memory. Frozen. */
typedef struct pst_step_amount {
    uint64_t flops, bytes; /* of one pass of an operation */
} pst_step_amount;

/* Of one GPU and one micro-batch. Frozen. */
typedef struct pst_step_op {
    const char
        *name; /* static text: that of a pst_estimate_module, or "attention.rope" and the like */
    pst_step_kind kind; /* which rate it has */
    bool is_again;      /* the backward runs the forward once more (recomputation) */
    bool is_fp8;        /* a product with the rate of fp8 */
    uint8_t padding[2]; /* 0 */
    /* forward; gradients of what it reads; gradients of its weights */
    pst_step_amount forward, input, weight;
} pst_step_op;

#define PST_STEP_MAX_OPS 64u /* never changes */

/* The operations of a part, in order. */
typedef struct pst_step_work {
    /* of the products and of attention: sums of the ops, and with what runs again */
    uint64_t forward_flops, backward_flops, again_flops;
    uint32_t num_ops;                  /* in the order of the forward */
    uint32_t padding;                  /* 0 */
    pst_step_op ops[PST_STEP_MAX_OPS]; /* num_ops are used */
} pst_step_work;

/* Nanoseconds of a pass. Frozen. */
typedef struct pst_step_pass {
    uint64_t products_ns; /* matrix products and attention */
    uint64_t memory_ns;   /* all other operations */
    uint64_t exposed_ns;  /* transfers that nothing hides */
    uint64_t hidden_ns;   /* and those that run beside the above: in no sum */
} pst_step_pass;

/* Of one micro-batch. A backward is whole: input, with again, and weight. */
typedef struct pst_step_times {
    pst_step_pass forward, input, weight; /* a forward, and the two halves of a backward */
    pst_step_pass
        again; /* what the backward of a layer computes anew, where it is one that does; in input */
    /* the same as visits of the simulator: core are the experts, from behind the exchange to before it;
     * of a layer without experts everything. A whole backward is the sum of the last two */
    pst_times visit_forward, visit_input, visit_weight;
} pst_step_times;

/* Nanoseconds of a stage's GPU in a step. Frozen. */
typedef struct pst_step_stage {
    uint64_t products_ns, memory_ns, exposed_ns, hidden_ns; /* of all its passes, as above */
    uint64_t bubble_ns;      /* waits for other stages, simulated: the rest of span_ns */
    uint64_t end_ns;         /* of its last backward, from the begin of the step */
    uint64_t gradients_ns;   /* their reduction, of which it waits for so much behind that */
    uint64_t params_ns;      /* their gathering, for which its forwards wait */
    uint64_t optimizer_ns;   /* the update of its parameters */
    uint64_t hidden_ends_ns; /* of both transfers what runs beside passes */
} pst_step_stage;

/* Of a whole step, all stages together. */
typedef struct pst_step_prediction {
    /* Stages meet where the norm of the gradients is known: the latest end_ns with its gradients_ns,
     * and then the longest params_ns with its optimizer_ns */
    uint64_t step_ns;
    uint64_t span_ns;          /* of the passes: pst_simulation.makespan_ns */
    uint64_t busiest;          /* the stage that works longest: the first of these */
    pst_step_stage of_busiest; /* its times */
    /* FLOPs of a step for each GPU, without recomputation: three times those of the forward (Narayanan
     * et al. 2021), attention's with the mask */
    uint64_t model_flops;
    uint64_t tokens; /* of a step */
    /* model FLOPs utilization (Chowdhery et al. 2022), of the peak in bf16: fp8 can be above 1000 */
    uint32_t mfu_per_mille;
    uint32_t padding; /* 0 */
} pst_step_prediction;

PST_BEGIN_DECLS

/* Name i of the table, from 0; NULL: there is none. */
PST_API const char *pst_gpu_name(uint32_t i);

/* Fails: INVALID (the names that are known). */
PST_API pst_status pst_gpu_find_sized(const char *name, pst_gpu *gpu_out, size_t gpu_bytes);
static inline pst_status pst_gpu_find(const char *name, pst_gpu *gpu_out)
{
    return pst_gpu_find_sized(name, gpu_out, sizeof(pst_gpu));
}

/* Every function below checks its config first. Fails: INVALID (the message names the field).
 *
 * As pst_estimate_get_modules, the model need not have such a layer. The gpu is not looked at and may
 * be NULL. */
PST_API pst_status pst_step_get_work_sized(const pst_step_config *config, pst_step_part part,
                                           pst_step_work *work_out, size_t work_bytes);
static inline pst_status pst_step_get_work(const pst_step_config *config, pst_step_part part,
                                           pst_step_work *work_out)
{
    return pst_step_get_work_sized(config, part, work_out, sizeof(pst_step_work));
}

/* Times of the passes of a part: of one layer, or what stands around the layers. */
PST_API pst_status pst_step_get_times_sized(const pst_step_config *config, pst_step_part part,
                                            pst_step_times *times_out, size_t times_bytes);
static inline pst_status pst_step_get_times(const pst_step_config *config, pst_step_part part,
                                            pst_step_times *times_out)
{
    return pst_step_get_times_sized(config, part, times_out, sizeof(pst_step_times));
}

/* From the end of a pass to where the neighbour stage can begin (pst_simulation_config.p2p_ns). */
PST_API pst_status pst_step_get_p2p(const pst_step_config *config, uint64_t *p2p_ns_out);

/* stages_out: pipeline_parallel of them, or NULL. Fails: INVALID (also a step of 2^62 ns and more),
 * UNSUPPORTED (a schedule that is none of the above), NOMEM. */
PST_API pst_status pst_step_predict_sized(const pst_step_config *config,
                                          pst_step_prediction *prediction_out,
                                          size_t prediction_bytes, pst_step_stage *stages_out);
static inline pst_status pst_step_predict(const pst_step_config *config,
                                          pst_step_prediction *prediction_out,
                                          pst_step_stage *stages_out)
{
    return pst_step_predict_sized(config, prediction_out, sizeof(pst_step_prediction), stages_out);
}

PST_END_DECLS

#endif
