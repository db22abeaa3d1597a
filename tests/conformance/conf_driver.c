/* What only the system or the driver knows: whose an address is, and that a process is a fork. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/device/device.h"
#include "tests/conformance/conf.h"

/* Fault rows 12. */
CONFORMANCE(Driver, AnAddressIsTheDevicesOrRefused)
{
    enum { BYTES = 100000 };
    const psti_device_ops *ops = conf->device->ops;
    void *memory = NULL, *pinned = NULL;
    unsigned char local = 0;
    CHECK_OK(pst_device_alloc(conf->device, BYTES, &memory));
    CHECK_OK(pst_device_alloc_pinned(conf->device, BYTES, &pinned));
    CHECK_OK(ops->check_address(conf->device, memory, BYTES));
    CHECK_OK(ops->check_address(conf->device, (char *)memory + BYTES - 1, 1));
    CHECK_OK(ops->check_address(conf->device, pinned, BYTES));
    CHECK_STATUS(ops->check_address(conf->device, (void *)(uintptr_t)16, 1), PST_E_INVALID);
    CHECK_STATUS(ops->check_address(conf->device, memory, UINT64_C(1) << 50), PST_E_INVALID);
    CHECK_STATUS(ops->check_address(conf->device, &local, 1),
                 conf->kind == CONF_CUDA ? PST_E_INVALID : PST_OK);
    CHECK_OK(pst_device_free(conf->device, memory));
    CHECK_OK(pst_device_free_pinned(conf->device, pinned));
}

/* Of a child: 0, or the number of the call that did not say NO_DEVICE. */
static int count_in_child(pst_device *device, void *memory, pst_stream stream)
{
    void *more = NULL;
    pst_device_info info;
    const pst_status answers[] = {
        pst_device_get_info(device, &info),
        pst_device_alloc(device, 64, &more),
        pst_device_fill(device, memory, 9, 64, stream),
        pst_stream_synchronize(device, stream),
        pst_device_synchronize(device),
        pst_device_free(device, memory),
        pst_stream_destroy(device, stream),
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        if (answers[i] != PST_E_NO_DEVICE)
            return 1 + (int)i;
    return 0;
}

/* Fault rows 45. */
CONF_DEFINE(Driver, AForkCannotUseCuda, 1u << CONF_CUDA)
{
    enum { BYTES = 64 };
    unsigned char bytes[BYTES] = {0};
    void *memory = NULL;
    pst_stream stream = NULL;
    int status = -1;
    CHECK_OK(pst_stream_create(conf->device, &stream));
    CHECK_OK(pst_device_alloc(conf->device, BYTES, &memory));
    CHECK_OK(pst_device_fill(conf->device, memory, 7, BYTES, stream));
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        _exit(count_in_child(conf->device, memory, stream));
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    CHECK_OK(pst_device_copy(conf->device, bytes, memory, BYTES, stream));
    CHECK_OK(pst_stream_synchronize(conf->device, stream));
    for (int i = 0; i < BYTES; i++)
        CHECK_EQ(bytes[i], 7);
    CHECK_OK(pst_device_free(conf->device, memory));
    CHECK_OK(pst_stream_destroy(conf->device, stream));
}
