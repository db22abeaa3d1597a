/* What of nccl.h is used. tests/host/comm/nccl_test.c compares it with that file where it is installed.
 * NCCL's enums have no negative values: unsigned is the type that they are compatible with. */
#ifndef PSTI_HOST_NCCL_API_H
#define PSTI_HOST_NCCL_API_H

#include <pagestash/nccl.h>

typedef unsigned psti_nccl_result;

enum {
    PSTI_NCCL_SUCCESS = 0,
    PSTI_NCCL_INVALID_ARGUMENT = 4,
    PSTI_NCCL_INVALID_USAGE = 5,
    PSTI_NCCL_IN_PROGRESS = 7,
};
enum { PSTI_NCCL_INT32 = 2 }; /* a data type */
enum { PSTI_NCCL_MIN = 3 };   /* a reduction */

typedef psti_nccl_result psti_nccl_get_version(int *version_out);
typedef const char *psti_nccl_get_error_string(psti_nccl_result result);
typedef const char *psti_nccl_get_last_error(pst_nccl_comm comm);
typedef psti_nccl_result psti_nccl_comm_cu_device(pst_nccl_comm comm, int *device_out);
typedef psti_nccl_result psti_nccl_all_reduce(const void *from, void *to, size_t count,
                                              unsigned type, unsigned reduction, pst_nccl_comm comm,
                                              pst_stream stream);

#endif
