/* What cub offers: a transform that copies, and a batch of copies. */
#include "bench/stash/gpu.h"

#include <cub/device/device_memcpy.cuh>
#include <cub/device/device_transform.cuh>

namespace
{

struct same {
    template <class Word> __device__ __forceinline__ Word operator()(const Word &word) const
    {
        return word;
    }
};

} /* namespace */

const char *bench_gpu_transform(void *to, const void *from, uint64_t bytes, pst_stream stream)
{
    const uint4 *vectors = (const uint4 *)from;
    BENCH_CUDA(cub::DeviceTransform::Transform(cuda::std::make_tuple(vectors), (uint4 *)to,
                                               (long long)(bytes / sizeof(uint4)), same(), stream));
    return NULL;
}

const char *bench_gpu_batched(void *scratch, size_t *scratch_bytes, void *const *from,
                              void *const *to, const uint32_t *sizes, uint32_t num,
                              pst_stream stream)
{
    BENCH_CUDA(cub::DeviceMemcpy::Batched(scratch, *scratch_bytes, from, to, sizes, num, stream));
    return NULL;
}
