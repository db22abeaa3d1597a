/* What nccl_scene.h says. */
#include "tests/host/comm/nccl_scene.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

/* ---- in a child ---- */

void nccl_want(int line, bool right, const char *text)
{
    if (!right)
        printf("line %d: %s; last message: %s\n", line, text, pst_last_message());
}

bool nccl_said(const char *message)
{
    return strncmp(pst_last_message(), message, strlen(message)) == 0;
}

static void *find(const char *name)
{
    void *library = dlopen(PSTI_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

void nccl_load(void)
{
    WANT(find("ncclGetVersion") != NULL);
}

fake_counts *nccl_counts(void)
{
    void *symbol = find("fakeGetCounts");
    fake_get_counts *get = NULL;
    memcpy(&get, &symbol, sizeof(get));
    return get();
}

static pst_status enqueue(void *user, psti_function *function, const void *args, size_t bytes,
                          pst_stream stream)
{
    pst_device *device = user;
    return device->ops->call(device, function, args, bytes, stream);
}

void nccl_enqueue_on(pst_device *device)
{
    void *symbol = find("fakeGetQueue");
    fake_get_queue *get = NULL;
    memcpy(&get, &symbol, sizeof(get));
    *get() = (fake_queue){.enqueue = enqueue, .user = device};
}

/* ---- devices ---- */

static pst_status within(pst_device *device, psti_function *function, const void *args)
{
    void *symbol = find("fakeCurrentDevice");
    fake_current_device *current = NULL;
    memcpy(&current, &symbol, sizeof(current));
    if (current)
        *current() = device->info.index;
    const pst_status status = function(args);
    if (current)
        *current() = -1;
    return status;
}

static pst_status stream_query(pst_device *device, pst_stream stream, bool *idle_out)
{
    const nccl_device *self =
        (const void *)((const char *)device->ops - offsetof(nccl_device, ops));
    const pst_status status = self->real->stream_query(device, stream, idle_out);
    *idle_out = *idle_out && (!self->is_busy || (stream && stream == self->idle));
    return status;
}

void nccl_open_device(nccl_device *self, int index)
{
    WANT_OK(pst_device_open("host", 0, &self->device));
    self->real = self->device->ops;
    self->ops = *self->real;
    self->ops.within = within;
    self->ops.stream_query = stream_query;
    self->device->ops = &self->ops;
    self->device->info.kind = PST_DEVICE_CUDA;
    self->device->info.index = index;
    self->is_busy = false;
    self->idle = NULL;
}

void nccl_close_device(nccl_device *self)
{
    WANT(self->device->live == 0);
    WANT_OK(pst_device_close(self->device));
}

/* ---- ranks ---- */

static struct {
    pst_comm_config host, own;
    struct ncclComm given[FAKE_RANKS];
    bool is_given;
} scene;

static void *run_rank(void *arg)
{
    nccl_rank *self = arg;
    pst_device *host = NULL;
    pst_comm_config host_config = scene.host, config = scene.own;
    host_config.rank = config.rank = self->rank;
    nccl_open_device(&self->at, self->rank);
    WANT_OK(pst_device_open("host", 0, &host));
    WANT_OK(pst_stream_create(self->at.device, &self->stream));
    WANT_OK(pst_comm_create(host, &host_config, &self->host_comm));
    WANT_OK(scene.is_given ? pst_comm_adopt(self->at.device, &scene.given[self->rank], &self->comm)
                           : pst_comm_create(self->at.device, &config, &self->comm));
    self->body(self);
    WANT_OK(pst_comm_destroy(self->comm));
    WANT_OK(pst_comm_destroy(self->host_comm));
    WANT_OK(pst_stream_destroy(self->at.device, self->stream));
    WANT_OK(pst_device_close(host));
    nccl_close_device(&self->at);
    return NULL;
}

static void configure(int num_ranks, bool is_given)
{
    nccl_device cuda;
    pst_device *host = NULL;
    scene.host = scene.own = (pst_comm_config)PST_COMM_CONFIG_INIT;
    scene.host.num_ranks = scene.own.num_ranks = num_ranks;
    scene.is_given = is_given;
    WANT_OK(pst_device_open("host", 0, &host));
    WANT_OK(pst_comm_make_id(host, &scene.host.id));
    WANT_OK(pst_device_close(host));
    nccl_open_device(&cuda, 0);
    if (!is_given)
        WANT_OK(pst_comm_make_id(cuda.device, &scene.own.id));
    nccl_close_device(&cuda);
    for (int r = 0; r < num_ranks; r++)
        scene.given[r] = (struct ncclComm){.ranks = scene.given,
                                           .num_ranks = num_ranks,
                                           .rank = r,
                                           .device = r,
                                           .mode = FAKE_BLOCKS};
}

void nccl_run(int num_ranks, bool is_given, uint32_t timeout_ms, void (*body)(nccl_rank *self))
{
    nccl_rank ranks[FAKE_RANKS];
    pthread_t threads[FAKE_RANKS];
    configure(num_ranks, is_given);
    scene.own.timeout_ms = timeout_ms;
    memset(ranks, 0, sizeof(ranks));
    for (int r = 0; r < num_ranks; r++) {
        ranks[r].rank = r;
        ranks[r].num_ranks = num_ranks;
        ranks[r].random = 77;
        ranks[r].body = body;
        WANT(pthread_create(&threads[r], NULL, run_rank, &ranks[r]) == 0);
    }
    for (int r = 0; r < num_ranks; r++)
        pthread_join(threads[r], NULL);
}

/* ---- in the test ---- */

void nccl_check_child(const char *name, const char *version)
{
    const char *const variables[] = {"PAGESTASH_NCCL_LIBRARY=" PSTI_FAKE_NCCL, version, NULL};
    child_result child;
    CHECK(child_run(name, variables, &child));
    CHECK_STR(child.out, "done\n");
    CHECK_STR(child.err, "");
    CHECK(child.exited);
}

bool nccl_find_real(nccl_real *nccl)
{
    void *library = dlopen(psti_env_text("PAGESTASH_NCCL_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    void *symbols[2] = {NULL, NULL};
    if (!library)
        return false;
    symbols[0] = dlsym(library, "ncclCommInitAll");
    symbols[1] = dlsym(library, "ncclCommDestroy");
    memcpy(&nccl->comm_init_all, &symbols[0], sizeof(symbols[0]));
    memcpy(&nccl->comm_destroy, &symbols[1], sizeof(symbols[1]));
    return symbols[0] && symbols[1];
}
