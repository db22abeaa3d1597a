/* pagestash-placement [--json=FILE]: on how many SMs the blocks of a launch under a budget are.
 *
 * Launches of the shapes that the backends have (threads, shared memory; kernels/cuda/launch.cu), but each
 * block only writes down its SM and stays for a while, so that no two take turns on one. A line for each
 * shape and budget. Exit codes: 0 each block that should have an SM to itself had one; 1 two of them shared
 * one; 2 usage; 4 there is no GPU. */
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <cuda_runtime.h>

namespace
{

enum { MAX_BLOCKS = 4096, STAY_CYCLES = 400000 };

__global__ void __launch_bounds__(1024, 1) where(uint32_t *sms)
{
    uint32_t sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (threadIdx.x == 0)
        sms[blockIdx.x] = sm;
    for (const long long begin = clock64(); clock64() - begin < STAY_CYCLES;)
        ;
}

struct shape {
    const char *name;
    uint32_t threads, blocks_per_sm, shared_bytes;
    bool owns_sm;
};

const shape shapes[] = {
    /* no kernel can ask for registers that it does not use: what they do for ldg, memory does here */
    {"ldg", 1024, 1, 120u << 10, true},
    {"bulk", 256, 1, 128u << 10, true},
    {"squeeze", 32, 1, 16u << 10, false},
    {"quarters", 256, 4, 9472, false}, /* what a budget was before: to know why it no longer is */
};
const uint32_t budgets[] = {1, 4, 8, 16, 32, 64};

bool is_ok(cudaError_t error)
{
    if (error != cudaSuccess)
        fprintf(stderr, "pagestash-placement: %s\n", cudaGetErrorString(error));
    return error == cudaSuccess;
}

bool place(const shape &what, uint32_t blocks, uint32_t *sms, uint32_t *host)
{
    if (!is_ok(cudaFuncSetAttribute(where, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)what.shared_bytes)))
        return false;
    where<<<blocks, what.threads, what.shared_bytes>>>(sms);
    return is_ok(cudaGetLastError()) &&
           is_ok(cudaMemcpy(host, sms, blocks * sizeof(*host), cudaMemcpyDeviceToHost));
}

void count(const uint32_t *sms, uint32_t blocks, uint32_t *used, uint32_t *most)
{
    static uint32_t on[1u << 16];
    memset(on, 0, sizeof(on));
    *used = *most = 0;
    for (uint32_t i = 0; i < blocks; i++) {
        uint32_t &here = on[sms[i] & 0xffff];
        *used += here++ == 0;
        *most = here > *most ? here : *most;
    }
}

/* 0 or 1 as the program's exit code; -1: an error, which was printed. */
int run(FILE *json, int num_sms)
{
    static uint32_t host[MAX_BLOCKS];
    uint32_t *sms = NULL;
    int result = 0;
    bool first = true;
    if (!is_ok(cudaMalloc(&sms, sizeof(host))))
        return -1;
    for (const shape &what : shapes)
        for (const uint32_t budget : budgets) {
            const uint32_t blocks = budget * what.blocks_per_sm;
            uint32_t used, most;
            if (budget > (uint32_t)num_sms)
                continue;
            if (!place(what, blocks, sms, host))
                return -1;
            count(host, blocks, &used, &most);
            const bool shares = what.owns_sm && most > 1;
            printf("%-8s num_sms %3u: %3u blocks on %3u SMs, at most %u each%s\n", what.name,
                   budget, blocks, used, most,
                   shares          ? ", two share one"
                   : used > budget ? ", over the budget"
                                   : "");
            if (json)
                fprintf(json,
                        "%s\n {\"shape\": \"%s\", \"num_sms\": %u, \"blocks\": %u, \"sms\": %u, "
                        "\"most\": %u}",
                        first ? "[" : ",", what.name, budget, blocks, used, most);
            first = false;
            result |= shares;
        }
    if (json)
        fputs("\n]\n", json);
    cudaFree(sms);
    return result;
}

} /* namespace */

int main(int argc, char **argv)
{
    const char *path = argc == 2 && strncmp(argv[1], "--json=", 7) == 0 ? argv[1] + 7 : NULL;
    int count = 0, num_sms = 0;
    if (argc > 1 && !path) {
        fputs("usage: pagestash-placement [--json=FILE]\n", stderr);
        return 2;
    }
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        fputs("pagestash-placement: no GPU\n", stderr);
        return 4;
    }
    if (!is_ok(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, 0)))
        return 1;
    FILE *json = path ? fopen(path, "w") : NULL;
    if (path && !json) {
        fprintf(stderr, "pagestash-placement: %s cannot be written\n", path);
        return 1;
    }
    const int result = run(json, num_sms);
    const bool is_written = !json || fclose(json) == 0;
    if (!is_written)
        fprintf(stderr, "pagestash-placement: %s was not written\n", path);
    return result != 0 || !is_written;
}
