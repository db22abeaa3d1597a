#include "tools/common/gpu.h"

#include "tools/common/json_in.h"

#include <inttypes.h>
#include <jansson.h>
#include <stddef.h>
#include <string.h>

#define MAX_RATE (INT64_C(1) << 60)

enum { FILE_BYTES = 1 << 20 };

/* What a file may say. Limits are the library's. */
#define GPU_MEMBERS(X)              \
    X(flops)                        \
    X(fp8_flops)                    \
    X(fp32_flops)                   \
    X(memory_rate)                  \
    X(link_rate)                    \
    X(network_rate)                 \
    X(host_rate)                    \
    X(kernel_ns)                    \
    X(link_ns)                      \
    X(network_ns)                   \
    X(node_gpus)                    \
    X(product_per_mille)            \
    X(fp8_per_mille)                \
    X(expert_per_mille)             \
    X(attention_forward_per_mille)  \
    X(attention_backward_per_mille) \
    X(memory_per_mille)             \
    X(link_per_mille)               \
    X(network_per_mille)            \
    X(host_per_mille)               \
    X(memory_bytes)

typedef struct member {
    const char *name;
    size_t offset, bytes;
} member;

static const member members[] = {
#define ROW(name) {#name, offsetof(pst_gpu, name), sizeof(((pst_gpu *)0)->name)},
    GPU_MEMBERS(ROW)
#undef ROW
};

static int set(const char *path, const char *key, const json_t *value, pst_gpu *gpu)
{
    const json_int_t number = json_integer_value(value);
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        const member *of = &members[i];
        const json_int_t most = of->bytes == sizeof(uint32_t) ? UINT32_MAX : MAX_RATE;
        if (strcmp(key, of->name) != 0)
            continue;
        if (!json_is_integer(value) || number < 0 || number > most)
            return tool_fail(TOOL_INPUT, "%s: %s: allowed is an integer 0..%" JSON_INTEGER_FORMAT,
                             path, key, most);
        if (of->bytes == sizeof(uint32_t))
            *(uint32_t *)(void *)((unsigned char *)gpu + of->offset) = (uint32_t)number;
        else
            *(uint64_t *)(void *)((unsigned char *)gpu + of->offset) = (uint64_t)number;
        return TOOL_OK;
    }
    return tool_fail(TOOL_INPUT, "%s: %.64s: no such key: allowed are those of docs/formats.md",
                     path, key);
}

/* "gpu" is the one of the table that has what no other key says. */
static int take(const char *path, json_t *file, pst_gpu *gpu)
{
    const json_t *base = json_object_get(file, "gpu");
    const char *key;
    json_t *value;
    if (!json_is_string(base))
        return tool_fail(TOOL_INPUT, "%s: allowed is an object with a GPU's name as \"gpu\"", path);
    TOOL_TRY(tool_file_status(pst_gpu_find(json_string_value(base), gpu)));
    json_object_foreach(file, key, value) if (strcmp(key, "gpu") != 0 && strcmp(key, "source") != 0)
        TOOL_TRY(set(path, key, value, gpu));
    return TOOL_OK;
}

static int refuse_name(const char *flag, const char *text)
{
    char known[256] = "";
    for (uint32_t i = 0; pst_gpu_name(i) != NULL; i++) {
        strncat(known, pst_gpu_name(i), sizeof(known) - strlen(known) - 1);
        strncat(known, ", ", sizeof(known) - strlen(known) - 1);
    }
    return tool_fail(TOOL_USAGE, "--%s %.80s: allowed are %sor a file of rates", flag, text, known);
}

int gpu_read(const char *flag, const char *text, pst_gpu *gpu_out)
{
    json_t *file;
    *gpu_out = (pst_gpu)PST_GPU_INIT;
    if (strpbrk(text, "./") == NULL)
        return pst_gpu_find(text, gpu_out) == PST_OK ? TOOL_OK : refuse_name(flag, text);
    TOOL_TRY(json_read(text, FILE_BYTES, &file));
    const int code = take(text, file, gpu_out);
    json_decref(file);
    return code;
}
