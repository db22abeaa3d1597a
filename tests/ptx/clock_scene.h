/* What a timed launch works on: rows, counts, a group, and a real pool made by public calls. */
#ifndef PSTI_TESTS_PTX_CLOCK_SCENE_H
#define PSTI_TESTS_PTX_CLOCK_SCENE_H

#include "tests/ptx/clock_timed.h"

struct clock_form {
    uint32_t num_segments = 0;       /* 0: a prefix */
    uint32_t rows = 0;               /* capacity; of one segment */
    uint32_t live = 0;               /* rows; of one segment */
    uint32_t offset = 0;             /* of the first row from 256 bytes */
    std::vector<pst_tensor> tensors; /* of space 0, or of space 1, in which nothing is live */
};

struct clock_scene {
    pst_device *device = nullptr;
    pst_stream stream = nullptr;
    pst_group *group = nullptr;
    pst_pool *pool = nullptr;
    pst_ticket ticket;
    std::vector<void *> memory; /* freed in the end */
    std::vector<void *> bases;
    std::vector<uint64_t> bytes; /* of each tensor */
    uint64_t *mismatches = nullptr;
    const void *counts[2];
    pst_buffers buffers = PST_BUFFERS_INIT;
};

pst_tensor clock_tensor(uint32_t row_bytes);

/* Device memory, freed with the scene. */
void *clock_alloc(clock_scene &scene, uint64_t bytes);

/* A device, and rows with their group on it. */
void clock_open_scene(clock_scene &scene, const clock_setting &setting, const clock_wanted &wanted,
                      const clock_form &form);
/* Once there is a group: by default 16 KiB a page and as many as it wants, and four more. has_host: as
 * many on the host. */
void clock_make_pool(clock_scene &scene, pst_pool_config config, bool has_host);
/* Ends the program where the pool lost something, or `wrong` is not 0; closes the rest. */
clock_report clock_close_scene(clock_scene &scene, const clock_wanted &wanted, uint64_t wrong);

#endif
