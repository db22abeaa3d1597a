/* The machine: caches, driver, clocks. */
#include "bench/common/library.h"
#include "bench/stash/measure.h"
#include "bench/stash/rig.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* For machines that do not say how large their caches are. */
#define FALLBACK_CACHE_BYTES (32 * BENCH_MIB)

/* ---- caches ---- */

/* The largest that belongs to one core, as the kernel lists them. */
static uint64_t cache_from_sysfs(void)
{
    uint64_t most = 0;
    for (int index = 0; index < 8; index++) {
        char path[96];
        unsigned long kib = 0;
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        FILE *file = fopen(path, "re");
        if (file == NULL)
            break;
        if (fscanf(file, "%luK", &kib) == 1 && kib * BENCH_KIB > most)
            most = kib * BENCH_KIB;
        fclose(file);
    }
    return most;
}

static void find_host_cache(bench_machine *machine)
{
    long bytes;
    machine->cache_bytes = cache_from_sysfs();
    machine->cache_source = "sysfs";
    if (machine->cache_bytes)
        return;
    bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (bytes <= 0)
        bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    machine->cache_bytes = bytes > 0 ? (uint64_t)bytes : FALLBACK_CACHE_BYTES;
    machine->cache_source = bytes > 0 ? "sysconf" : "assumed";
}

/* ---- NVML, which only the driver brings ---- */

typedef struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver)(char *version, unsigned bytes);
    int (*device)(const char *pci, void **device_out);
    int (*clock)(void *device, int which, unsigned *mhz_out);
    int (*max_clock)(void *device, int which, unsigned *mhz_out);
} nvml;

enum { NVML_SM = 1, NVML_MEMORY = 2 };

static bool open_nvml(nvml *self)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return false;
    self->library = library;
    if (bench_find(library, "nvmlInit_v2", &self->init) &&
        bench_find(library, "nvmlShutdown", &self->shutdown) &&
        bench_find(library, "nvmlSystemGetDriverVersion", &self->driver) &&
        bench_find(library, "nvmlDeviceGetHandleByPciBusId_v2", &self->device) &&
        bench_find(library, "nvmlDeviceGetClockInfo", &self->clock) &&
        bench_find(library, "nvmlDeviceGetMaxClockInfo", &self->max_clock) && self->init() == 0)
        return true;
    dlclose(library);
    return false;
}

static void close_nvml(nvml *self)
{
    self->shutdown();
    dlclose(self->library);
}

void bench_read_clocks(bench_machine *machine)
{
    bench_gpu_facts facts;
    bench_clocks clocks = {0};
    void *device = NULL;
    nvml self;
    if (machine->device.kind == PST_DEVICE_HOST ||
        bench_gpu_get_facts(machine->device.index, &facts) != NULL || !open_nvml(&self))
        return;
    machine->has_clocks = self.device(facts.pci, &device) == 0 &&
                          self.clock(device, NVML_SM, &clocks.sm_mhz) == 0 &&
                          self.clock(device, NVML_MEMORY, &clocks.memory_mhz) == 0 &&
                          self.max_clock(device, NVML_SM, &clocks.max_sm_mhz) == 0 &&
                          self.max_clock(device, NVML_MEMORY, &clocks.max_memory_mhz) == 0;
    machine->clocks = clocks;
    close_nvml(&self);
}

static void read_driver(bench_machine *machine, const bench_gpu_facts *facts)
{
    nvml self;
    snprintf(machine->driver, sizeof(machine->driver), "CUDA %d.%d", facts->driver_version / 1000,
             facts->driver_version % 1000 / 10);
    if (!open_nvml(&self))
        return;
    self.driver(machine->driver, sizeof(machine->driver));
    close_nvml(&self);
}

static int read_host_bytes(bench_machine *machine)
{
    pst_device *host = NULL;
    pst_device_info info;
    TOOL_PST(pst_device_open("host", 0, &host));
    TOOL_PST(pst_device_get_info(host, &info));
    machine->host_bytes = info.free_bytes;
    return tool_status(pst_device_close(host));
}

static int read_device(pst_device *device, bench_machine *machine)
{
    bench_gpu_facts facts;
    TOOL_PST(pst_device_get_info(device, &machine->device));
    if (machine->device.kind == PST_DEVICE_HOST) {
        find_host_cache(machine);
        return TOOL_OK;
    }
    BENCH_GPU(bench_gpu_get_facts(machine->device.index, &facts));
    machine->cache_bytes = facts.l2_bytes;
    machine->cache_source = "device";
    read_driver(machine, &facts);
    return TOOL_OK;
}

int bench_machine_of(pst_device *device, uint64_t cache_bytes, bench_machine *machine)
{
    *machine = (bench_machine){.cache_bytes = 0};
    TOOL_TRY(read_host_bytes(machine));
    TOOL_TRY(read_device(device, machine));
    if (cache_bytes == 0)
        return TOOL_OK;
    machine->cache_bytes = cache_bytes;
    machine->cache_source = "option";
    return TOOL_OK;
}
