/* The flags of a trace_source. */
#include "tools/trace/trace_file.h"

#define AT(member) offsetof(trace_source, member)

static const flag flags[] = {
    {"csv", "FILE", FLAG_TEXT, 0, 0, AT(paths[PST_TRACE_CSV]),
     "our own trace: op,id,size,stream,phase,layer,micro_batch,rank,tag; - is stdin, here and "
     "below"},
    {"memo", "FILE", FLAG_TEXT, 0, 0, AT(paths[PST_TRACE_MEMO]),
     "MEMO's lines: malloc ID SIZE, free ID"},
    {"minimalloc", "FILE", FLAG_TEXT, 0, 0, AT(paths[PST_TRACE_MINIMALLOC]),
     "CSV with columns id, lower, upper, size"},
    {"stalloc", "FILE", FLAG_TEXT, 0, 0, AT(paths[PST_TRACE_STALLOC]),
     "STAlloc's lines: 1 POINTER SIZE STREAM, 0 POINTER SIZE STREAM, markers"},
    {"pytorch", "FILE", FLAG_TEXT, 0, 0, AT(paths[PST_TRACE_PYTORCH]),
     "pickle of torch.cuda.memory._snapshot()"},
    {"device", "D", FLAG_U32, 0, UINT32_MAX, AT(device), "of a snapshot's devices (0)"},
    {"rank", "R", FLAG_U32, 0, PST_TRACE_NONE - 1, AT(rank),
     "take the rows of rank R (the only one)"},
    {"iteration", "I", FLAG_U32, 0, PST_TRACE_NONE - 1, AT(iteration),
     "take what follows the I-th iteration mark, from 0 (all)"},
    {"keep-unfreed", NULL, FLAG_SWITCH, 0, 0, AT(keep_unfreed),
     "tensors that are never freed live to the end (an error, but in snapshots)"},
    {"derive", NULL, FLAG_SWITCH, 0, 0, AT(derive),
     "a transformer's trace from formulas instead of a file; with:"},
    {"part", "model|layer-forward|layer-backward|layer", FLAG_CHOICE, 0, 0, AT(part),
     "the whole model, or one layer of it (model)"},
    {"batch", "N", FLAG_U64, 1, UINT32_MAX, AT(derivation.micro_batch),
     "sequences of a micro-batch (1)"},
    {"sequence", "N", FLAG_U64, 1, INT64_MAX, AT(derivation.sequence_size),
     "tokens of a sequence (131072)"},
    {"hidden", "N", FLAG_U64, 1, UINT32_MAX, AT(derivation.hidden_size),
     "width of the model (4096)"},
    {"ffn", "N", FLAG_U64, 1, UINT32_MAX, AT(derivation.ffn_size), "width of the MLP (4 * hidden)"},
    {"heads", "N", FLAG_U64, 1, UINT32_MAX, AT(derivation.num_heads), "of the attention (32)"},
    {"vocabulary", "N", FLAG_U64, 1, UINT32_MAX, AT(derivation.vocab_size),
     "tokens that there are (50257)"},
    {"tp", "N", FLAG_U32, 1, UINT32_MAX, AT(derivation.tensor_parallel),
     "tensor parallel ranks (4)"},
    {"cp", "N", FLAG_U32, 1, UINT32_MAX, AT(derivation.context_parallel),
     "context parallel ranks (2)"},
    {"layers", "N", FLAG_U32, 1, UINT32_MAX, AT(derivation.num_layers),
     "layers of the derived model (32)"},
    {"alpha", "NUM/DEN", FLAG_FRACTION, 0, 0, AT(derivation.alpha_num),
     "share of the tokens that is swapped; the rest is recomputed (1/4)"},
    {"full", NULL, FLAG_SWITCH, 0, 0, AT(derivation.full),
     "what the backward needs is requested, nothing swapped (it lies in buffers that no "
     "plan sees)"},
    {"fused-loss", NULL, FLAG_SWITCH, 0, 0, AT(derivation.fused_loss),
     "the head's tensors as for a vocabulary of 512"},
    {"warmup", "N", FLAG_U32, 0, UINT32_MAX, AT(derivation.warmup),
     "micro-batches of the derived model that go forward before forwards and backwards "
     "take turns (0)"},
    {"microbatches", "M", FLAG_U32, 1, 1u << 20, AT(num_micro_batches),
     "micro-batches of the derived model, or that --expand makes (1)"},
    {"expand", "N", FLAG_U32, 1, 1u << 20, AT(expansion.num_layers),
     "take the trace as a profile of one or some layers and make N of them"},
    {"forward", "A:B", FLAG_RANGE, 0, 0, AT(expansion.forward_begin),
     "requests of the profile's layer forward (by labels, or by what repeats)"},
    {"backward", "A:B", FLAG_RANGE, 0, 0, AT(expansion.backward_begin), "requests of its backward"},
    {"order", "sequential|1f1b", FLAG_CHOICE, 0, 0, AT(order),
     "of the micro-batches that --expand makes (sequential)"},
    {"stages", "P", FLAG_U32, 1, 1u << 20, AT(expansion.num_stages),
     "of the pipeline, for 1f1b (1)"},
    {"stage", "S", FLAG_U32, 0, 1u << 20, AT(expansion.stage),
     "of the pipeline that is ours, from 0 (0)"},
};

flag_group trace_source_flags(size_t base)
{
    return (flag_group){flags, sizeof(flags) / sizeof(flags[0]), base};
}
