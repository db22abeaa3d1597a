/* What cublaslt_scene.h says. */
#include "tests/host/linear/cublaslt_scene.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "host/device/device.h"
#include "tests/lazy/lazy_device.h"
#include "tests/simt/simt_device.h"

fake_lt *lt_fake(void)
{
    void *library = dlopen(PSTI_FAKE_CUBLASLT, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "fakeLtGet") : NULL;
    fake_lt_get *get_fake = NULL;
    memcpy(&get_fake, &symbol, sizeof(get_fake));
    return get_fake ? get_fake() : NULL;
}

static unsigned enqueue(void *user, pst_status (*function)(const void *args), const void *args,
                        size_t bytes, pst_stream stream)
{
    pst_device *device = user;
    const unsigned failed = 13; /* CUBLAS_STATUS_EXECUTION_FAILED */
    return device->ops->call(device, function, args, bytes, stream) == PST_OK ? 0 : failed;
}

void lt_enqueue_on(pst_device *device)
{
    fake_lt *fake = lt_fake();
    fake->enqueue = enqueue;
    fake->user = device;
}

pst_device *lt_open(lt_machine machine)
{
    pst_device *device = NULL;
    const pst_status status = machine == LT_SIMT ? psti_simt_device_open(NULL, &device)
                                                 : pst_device_open("host", 0, &device);
    if (status != PST_OK) {
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
        return NULL;
    }
    if (machine == LT_LAZY)
        lazy_make(device, NULL);
    device->info.kind = PST_DEVICE_CUDA;
    lt_enqueue_on(device);
    return device;
}

void lt_close(pst_device *device)
{
    CHECK_OK(pst_device_close(device));
}

void lt_end(void)
{
    const fake_lt *fake = lt_fake();
    CHECK_EQ(fake->objects, 0);
    CHECK_EQ(fake->creates, fake->destroys);
    puts("done");
}

void lt_check_child(const char *name, const char *version)
{
    const char *const variables[] = {"PAGESTASH_CUBLASLT_LIBRARY=" PSTI_FAKE_CUBLASLT, version,
                                     NULL};
    child_result child;
    CHECK(child_run(name, variables, &child));
    CHECK_STR(child.out, "done\n");
    CHECK_STR(child.err, "");
    CHECK(child.exited);
}
