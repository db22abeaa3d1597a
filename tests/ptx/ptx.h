/* PTX as a program: what nvcc emits for the library's kernels, parsed. Whatever is not known here
 * is an error, so that nothing is executed wrongly in silence. ptx_warp.h executes it. */
#ifndef PSTI_TESTS_PTX_PTX_H
#define PSTI_TESTS_PTX_PTX_H

#include <cstdint>
#include <string>
#include <vector>

enum class ptx_op {
    add,
    sub,
    and_,
    or_,
    xor_,
    not_,
    neg,
    mul_lo,
    mul_hi,
    mul_wide,
    mad_lo,
    div,
    rem,
    min,
    max,
    shl,
    shr,
    mov,
    pack,
    unpack,
    selp,
    setp,
    cvt,
    bfi,
    prmt,
    shf_l,
    shf_r,
    bfe,
    popc,
    clz,
    add_f32,
    sub_f32,
    mul_f32,
    fma_f32,
    neg_f32,
    abs_f32,
    min_f32,
    vote_ballot,
    vote_any,
    vote_all,
    redux_add,
    activemask,
    bar_warp,
    ld,
    st,
    atom_cas,
    atom_add,
    atom_exch,
    atom_or,
    red_or,
    red_add,
    fence,
    sleep,
    nothing,
    bar_sync,
    shfl,
    bra,
    call,
    ret,
    mbarrier_init,
    mbarrier_expect,
    mbarrier_try_wait,
    bulk_load,
    bulk_store,
    bulk_commit,
    bulk_wait,
};

enum class ptx_space { generic, global, shared, param };
enum class ptx_compare { eq, ne, lt, le, gt, ge };
enum class ptx_shuffle { up, bfly, idx };

/* What lanes of a warp do together, each with its own value. */
inline bool ptx_is_together(ptx_op op)
{
    return op == ptx_op::shfl || op == ptx_op::vote_ballot || op == ptx_op::vote_any ||
           op == ptx_op::vote_all || op == ptx_op::redux_add;
}

struct ptx_operand {
    bool is_register = false;
    uint32_t reg = 0;
    uint64_t value = 0;
};

/* Registers that every function has; those of functions come behind. */
enum : uint32_t {
    ptx_tid,
    ptx_ntid,
    ptx_ctaid,
    ptx_nctaid,
    ptx_param,    /* address of the kernel's arguments */
    ptx_sink,     /* "_" */
    ptx_argument, /* of a call, eight of them */
    ptx_first_register = ptx_argument + 8
};

struct ptx_instruction {
    ptx_op op = ptx_op::nothing;
    uint32_t bits = 32, from_bits = 32;
    bool is_signed = false, from_signed = false;
    bool is_float = false, or_unordered = false; /* setp; the latter: true where one is NaN */
    ptx_space space = ptx_space::generic;
    ptx_compare compare = ptx_compare::eq;
    ptx_shuffle shuffle = ptx_shuffle::idx;
    bool reads_only = false; /* bulk_wait: of shared memory */
    bool wraps = false;      /* shf: shifts modulo 32, else by 32 at most */
    int32_t guard = -1;      /* register of the predicate */
    bool guard_negated = false;
    std::vector<ptx_operand> to, from; /* of a vector its elements */
    bool has_address = false;
    ptx_operand base; /* of memory; `offset` is added */
    int64_t offset = 0;
    uint32_t target = 0; /* bra, call: index of an instruction */
    uint32_t line = 0;   /* of the file */
    uint64_t used_bytes =
        ~(uint64_t)0; /* of a load, as a pragma says: the others may be anything */
    std::string mnemonic, text;
};

struct ptx_kernel {
    std::string name;
    std::vector<ptx_instruction> code; /* its own, then that of the functions it may call */
    uint32_t num_registers = 0;
    uint32_t shared_bytes = 0; /* static; dynamic shared memory begins there */
    uint32_t max_threads = 1024, min_blocks = 0,
             max_registers = 0; /* as its directives say; 0: nothing */
};

struct ptx_program {
    unsigned architecture = 0;
    std::vector<ptx_kernel> kernels;
    /* The one whose mangled name holds this one's name and length; ends the program where there is
     * none. */
    const ptx_kernel &kernel(const std::string &name) const;
};

[[noreturn]] void ptx_fail(const std::string &what);
ptx_program ptx_parse(const std::string &text);
ptx_program ptx_read(const std::string &path);

#endif
