/* What comm_scene.h says. */
#include "tests/host/comm/comm_scene.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "host/comm/comm.h"

static void *run_rank(void *arg)
{
    rank_of_test *self = arg;
    RANK_OK(pst_device_open("host", 0, &self->device));
    RANK_OK(pst_stream_create(self->device, &self->stream));
    self->created = pst_comm_create(self->device, &self->config, &self->comm);
    if (self->created != PST_OK)
        snprintf(self->message, sizeof(self->message), "%s", pst_last_message());
    self->body(self);
    RANK_OK(pst_comm_destroy(self->comm));
    RANK_OK(pst_stream_destroy(self->device, self->stream));
    RANK_CHECK(self->device->live == 0);
    RANK_OK(pst_device_close(self->device));
    return NULL;
}

void ranks_await(rank_of_test *self, const char *missing, const int *num_done)
{
    psti_group *group = psti_ranks_group(self->comm);
    int num_waiting = 0, num_missing = 0, done = 0;
    for (const char *at = missing; *at; at++)
        num_missing += *at >= '0' && *at <= '9';
    do {
        sched_yield();
        num_waiting = 0;
        for (int r = 0; r < self->num_ranks; r++) {
            char who[128];
            psti_group_late(group, r, who, sizeof(who));
            num_waiting += strcmp(who, missing) == 0;
        }
        done = num_done ? __atomic_load_n(num_done, __ATOMIC_RELAXED) : 0;
    } while (num_waiting < self->num_ranks - num_missing && done < self->num_ranks - num_missing);
}

void ranks_expire(rank_of_test *self, const char *missing, const int *num_done)
{
    ranks_await(self, missing, num_done);
    psti_group_expire(psti_ranks_group(self->comm));
}

void ranks_run(int num_ranks, uint32_t timeout_ms, void (*body)(rank_of_test *self), void *arg)
{
    rank_of_test ranks[SCENE_RANKS];
    pst_device *device = NULL;
    pst_comm_config config = PST_COMM_CONFIG_INIT;
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(pst_comm_make_id(device, &config.id));
    CHECK_OK(pst_device_close(device));
    config.num_ranks = num_ranks;
    config.timeout_ms = timeout_ms;
    for (int r = 0; r < num_ranks; r++) {
        memset(&ranks[r], 0, sizeof(ranks[r]));
        ranks[r].rank = config.rank = r;
        ranks[r].num_ranks = num_ranks;
        ranks[r].arg = arg;
        ranks[r].body = body;
        ranks[r].random = 77;
        ranks[r].config = config;
        CHECK_EQ(pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < num_ranks; r++)
        pthread_join(ranks[r].thread, NULL);
}
