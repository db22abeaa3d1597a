/* NVTX ranges in the domain "pagestash". */
#include "host/base/nvtx.h"

#if PSTI_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>

#include "host/base/base.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static nvtxDomainHandle_t domain; /* NULL: switched off */

static void create_domain(void)
{
    if (psti_env_nvtx())
        domain = nvtxDomainCreateA("pagestash");
}

bool psti_range_begin(const char *name)
{
    pthread_once(&once, create_domain);
    if (!domain)
        return false;
    const nvtxEventAttributes_t attributes = {.version = NVTX_VERSION,
                                              .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                              .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                              .message.ascii = name};
    nvtxDomainRangePushEx(domain, &attributes);
    return true;
}

void psti_range_end(const bool *began)
{
    if (*began)
        nvtxDomainRangePop(domain);
}
#else
typedef int psti_nvtx_is_off;
#endif
