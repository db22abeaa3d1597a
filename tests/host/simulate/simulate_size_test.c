/* Memory of a simulation: at most 200 bytes for each visit of a layer. */
#include "tests/host/simulate/simulate_scene.h"

#include <malloc.h>

static uint64_t allocated(void)
{
    const struct mallinfo2 info = mallinfo2(); /* nothing under AddressSanitizer */
    return info.uordblks + info.hblkhd;
}

/* At the first event everything is there. */
static void see(void *user, const pst_simulated_event *event)
{
    uint64_t *bytes = user;
    CHECK(event != NULL);
    if (*bytes == 0)
        *bytes = allocated();
}

PST_TEST(SimulateSize, TakesTwoHundredBytesAVisit)
{
    static sim_scene scene;
    static const pst_schedule_kind kinds[] = {PST_SCHEDULE_1F1B, PST_SCHEDULE_GPIPE};
    for (int kind = 0; kind < 2; kind++)
        for (uint32_t streams = 1; streams <= 2; streams++) {
            const sim_shape shape = {kinds[kind], 4, 512, 1, 0, 8, false};
            uint64_t bytes = 0;
            sim_open(&scene, &shape);
            scene.config.num_streams = streams;
            scene.config.mode = streams > 1 ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
            sim_set_times(&scene, (pst_times){1, 4, 1}, (pst_times){2, 8, 2});
            scene.config.on_event = see;
            scene.config.user = &bytes;
            const uint64_t before = allocated();
            sim_run(&scene);
            const uint64_t visits = 4 * 512 * 2 * 8;
            CHECK_MSG(bytes <= before + 200 * visits, "%llu bytes for %llu visits",
                      (unsigned long long)(bytes - before), (unsigned long long)visits);
            sim_close(&scene);
        }
}
