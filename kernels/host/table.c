/* The table of the CPU kernels, and what the list of operations says of each. */
#include "kernels/host/runners.h"

const psti_runners psti_host_runners = {{
#define PSTI_RUNNER(NAME, name, args) [PSTI_OP_##NAME] = psti_host_##name,
    PSTI_OP_LIST(PSTI_RUNNER)
#undef PSTI_RUNNER
}};

size_t psti_op_args_bytes(psti_op op)
{
    static const size_t bytes[PSTI_NUM_OPS] = {
#define PSTI_BYTES(NAME, name, args) [PSTI_OP_##NAME] = sizeof(args),
        PSTI_OP_LIST(PSTI_BYTES)
#undef PSTI_BYTES
    };
    return bytes[op];
}

const char *psti_op_name(psti_op op)
{
    static const char *const names[PSTI_NUM_OPS] = {
#define PSTI_NAME(NAME, name, args) [PSTI_OP_##NAME] = #name,
        PSTI_OP_LIST(PSTI_NAME)
#undef PSTI_NAME
    };
    return names[op];
}
