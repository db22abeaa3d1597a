/* What torch.cuda.memory.CUDAPluggableAllocator calls: an arena per device that records or replays. */
#include "pagestash_torch.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <pagestash/pagestash.h>

#include "host/base/base.h"
#include "torch_trace.h"

enum { MAX_POOLS = 64 };

/* No ids of torch's. */
static const pagestash_torch_pool EARLY = {UINT64_MAX, UINT64_MAX};
static const pagestash_torch_pool FORMER = {UINT64_MAX, UINT64_MAX - 1}; /* before a switch */

/* Memory of captured graphs. */
typedef struct pool {
    pagestash_torch_pool id;
    pst_arena *arena;   /* without a plan; NULL: none */
    uint32_t num_holds; /* begins less releases */
    bool is_open;
} pool;

enum { UNUSED, READY, BROKEN }; /* phases of a device */

typedef struct device_state {
    int phase; /* atomic */
    pst_device *device;
    pst_arena *arena;
    int num_pools; /* atomic: of pools with an arena */
    pool pools[MAX_POOLS];
    /* Of pools: what is asked for before the first iteration, where the plan begins with one. Weights, say,
     * which would sit in planned places. NULL: there is none. */
    pool *early;
} device_state;

static struct {
    pthread_mutex_t lock; /* of setting up, pools, the trace, failures */
    device_state devices[PAGESTASH_TORCH_MAX_DEVICES];
    bool is_configured;
    bool is_recording;
    char *plan_path;    /* NULL: no plan */
    torch_trace *trace; /* atomic; when recording */
    uint64_t num_iterations;
    uint64_t num_failures;
    char last_failure[256];
} self = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- failures ---- */

/* Of a call whose failure is in the log. */
static void note(const char *what, const char *why)
{
    self.num_failures++;
    snprintf(self.last_failure, sizeof(self.last_failure), "%s: %s", what, why);
}

static void fail(const char *what, const char *why)
{
    pthread_mutex_lock(&self.lock);
    note(what, why);
    pthread_mutex_unlock(&self.lock);
}

static void check(const char *what, pst_status status)
{
    if (status != PST_OK)
        fail(what, pst_last_message());
}

/* ---- setting up, with the lock held ---- */

static ptrdiff_t read_file(void *source, void *buffer, size_t bytes)
{
    const size_t got = fread(buffer, 1, bytes, source);
    return got == 0 && ferror((FILE *)source) ? -EIO : (ptrdiff_t)got;
}

static pst_status read_plan(const char *path, pst_plan_file **plan_out)
{
    FILE *file = fopen(path, "re");
    PSTI_CHECK(file, PST_E_INVALID, "%s: %s", path, strerror(errno));
    const pst_status status = pst_plan_file_read(path, read_file, file, plan_out);
    fclose(file);
    return status;
}

static pst_status create_arena(device_state *state, const pst_plan_file *plan,
                               pst_arena **arena_out)
{
    pst_arena_config config = PST_ARENA_CONFIG_INIT;
    if (!plan)
        config.cache_bytes = UINT64_MAX;
    return pst_arena_create(state->device, plan, &config, arena_out);
}

/* A child has nothing buffered that it could write a second time. */
static void flush_before_fork(void)
{
    pthread_mutex_lock(&self.lock);
    if (self.trace)
        torch_trace_flush(self.trace);
}

static void go_on_after_fork(void)
{
    pthread_mutex_unlock(&self.lock);
}

static void set_trace(torch_trace *trace)
{
    __atomic_store_n(&self.trace, trace, __ATOMIC_RELEASE);
}

static pst_status open_trace(const char *path, torch_trace **trace_out)
{
    static bool has_handlers;
    PSTI_CHECK(has_handlers ||
                   pthread_atfork(flush_before_fork, go_on_after_fork, go_on_after_fork) == 0,
               PST_E_NOMEM, "no memory for the trace");
    has_handlers = true;
    *trace_out = torch_trace_open(path);
    PSTI_CHECK(*trace_out, PST_E_INVALID, "no trace at %s", path);
    return PST_OK;
}

static pool *find_pool(device_state *state, pagestash_torch_pool id)
{
    for (int i = 0; i < MAX_POOLS; i++) {
        pool *at = &state->pools[i];
        if (at->arena && at->num_holds && at->id.first == id.first && at->id.second == id.second)
            return at;
    }
    return NULL;
}

static pst_status open_pool(device_state *state, pagestash_torch_pool id, pool **pool_out)
{
    pool *found = find_pool(state, id);
    for (int i = 0; i < MAX_POOLS && !found; i++)
        if (!state->pools[i].arena)
            found = &state->pools[i];
    PSTI_CHECK(found, PST_E_INVALID, "more than %d pools", MAX_POOLS);
    if (!found->arena) {
        PSTI_TRY(create_arena(state, NULL, &found->arena));
        found->id = id;
        __atomic_fetch_add(&state->num_pools, 1, __ATOMIC_RELAXED);
    }
    found->num_holds++;
    found->is_open = true;
    *pool_out = found;
    return PST_OK;
}

static bool begins_with_iteration(const pst_plan_file *plan)
{
    return plan && pst_plan_file_num_rows(plan) > 0 &&
           pst_plan_file_rows(plan)[0].op == PST_PLAN_OP_MARK;
}

static char *copied(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *out = psti_calloc(1, bytes);
    if (out)
        memcpy(out, text, bytes);
    return out;
}

/* What the environment says. */
static pst_status configure(void)
{
    if (self.is_configured)
        return PST_OK;
    PSTI_TRY(pst_env_check());
    const char *mode = psti_env_text("PAGESTASH_TORCH");
    if (strcmp(mode, "plan") == 0) {
        self.plan_path = copied(psti_env_text("PAGESTASH_TORCH_PLAN"));
        PSTI_CHECK(self.plan_path, PST_E_NOMEM, "no memory for a path");
    }
    self.is_recording = strcmp(mode, "record") == 0;
    self.is_configured = true;
    return PST_OK;
}

static pst_status set_up(device_state *state, int index)
{
    pst_plan_file *plan = NULL;
    PSTI_TRY(configure());
    PSTI_TRY(pst_device_open(psti_env_text("PAGESTASH_TORCH_DEVICE"), index, &state->device));
    if (self.plan_path)
        PSTI_TRY(read_plan(self.plan_path, &plan));
    pst_status status = create_arena(state, plan, &state->arena);
    if (status == PST_OK && self.num_iterations == 0 && begins_with_iteration(plan))
        status = open_pool(state, EARLY, &state->early);
    pst_plan_file_destroy(plan);
    PSTI_TRY(status);
    if (self.is_recording && !self.trace) {
        torch_trace *trace = NULL;
        PSTI_TRY(open_trace(psti_env_text("PAGESTASH_TORCH_TRACE"), &trace));
        set_trace(trace);
    }
    if (self.num_iterations == 0)
        return PST_OK;
    if (self.trace)
        torch_trace_mark(self.trace, index, self.num_iterations - 1);
    return pst_arena_iteration(state->arena);
}

/* NULL, and it was said why, if the device cannot be used. */
static device_state *state_of(int index)
{
    if (index < 0 || index >= PAGESTASH_TORCH_MAX_DEVICES) {
        psti_log(PST_LOG_ERROR, "device %d: allowed are 0 to %d", index,
                 PAGESTASH_TORCH_MAX_DEVICES - 1);
        fail("device", "index out of range");
        return NULL;
    }
    device_state *state = &self.devices[index];
    int phase = __atomic_load_n(&state->phase, __ATOMIC_ACQUIRE);
    if (phase == READY)
        return state;
    pthread_mutex_lock(&self.lock);
    phase = __atomic_load_n(&state->phase, __ATOMIC_RELAXED);
    if (phase == UNUSED) {
        phase = set_up(state, index) == PST_OK ? READY : BROKEN;
        if (phase == BROKEN)
            note("set up", pst_last_message());
        __atomic_store_n(&state->phase, phase, __ATOMIC_RELEASE);
    } else if (phase == BROKEN) {
        self.num_failures++;
    }
    pthread_mutex_unlock(&self.lock);
    return phase == READY ? state : NULL;
}

/* ---- pools, with the lock held ---- */

static pool *owner_of(device_state *state, const void *address)
{
    for (int i = 0; i < MAX_POOLS; i++)
        if (state->pools[i].arena && pst_arena_owns(state->pools[i].arena, address))
            return &state->pools[i];
    return NULL;
}

/* A released pool goes with the last of its blocks. */
static void drop_if_done(device_state *state, pool *what)
{
    pst_arena_stats stats = {.live = 1};
    if (what->num_holds || pst_arena_get_stats(what->arena, &stats) != PST_OK || stats.live)
        return;
    if (pst_arena_destroy(what->arena) != PST_OK)
        note("release pool", pst_last_message());
    *what = (pool){.arena = NULL};
    __atomic_fetch_sub(&state->num_pools, 1, __ATOMIC_RELAXED);
}

/* A graph's, else the early one. */
static pst_arena *open_arena(const device_state *state)
{
    for (int i = 0; i < MAX_POOLS; i++)
        if (state->pools[i].is_open && &state->pools[i] != state->early)
            return state->pools[i].arena;
    return state->early && state->early->is_open ? state->early->arena : NULL;
}

void pagestash_torch_begin_pool(int device, pagestash_torch_pool id, void *filter)
{
    (void)filter;
    device_state *state = state_of(device);
    if (!state)
        return;
    pthread_mutex_lock(&self.lock);
    pool *opened = NULL;
    if (open_pool(state, id, &opened) != PST_OK)
        note("begin pool", pst_last_message());
    pthread_mutex_unlock(&self.lock);
}

void pagestash_torch_end_pool(int device, pagestash_torch_pool id)
{
    device_state *state = state_of(device);
    if (!state)
        return;
    pthread_mutex_lock(&self.lock);
    pool *found = find_pool(state, id);
    if (found)
        found->is_open = false;
    pthread_mutex_unlock(&self.lock);
}

void pagestash_torch_release_pool(int device, pagestash_torch_pool id)
{
    device_state *state = state_of(device);
    if (!state)
        return;
    pthread_mutex_lock(&self.lock);
    pool *found = find_pool(state, id);
    if (found) {
        found->num_holds--;
        drop_if_done(state, found);
    }
    pthread_mutex_unlock(&self.lock);
}

/* ---- malloc and free ---- */

/* With the lock held where there are pools or a trace. */
static pst_status malloc_slowly(device_state *state, int device, size_t bytes, void **address_out,
                                pst_stream stream)
{
    pthread_mutex_lock(&self.lock);
    pst_arena *graphs = open_arena(state);
    const pst_status status =
        pst_arena_malloc(graphs ? graphs : state->arena, bytes, address_out, stream);
    if (status == PST_OK && self.trace && !graphs)
        torch_trace_malloc(self.trace, device, *address_out, bytes, stream);
    pthread_mutex_unlock(&self.lock);
    return status;
}

static bool is_simple(const device_state *state)
{
    return !__atomic_load_n(&self.trace, __ATOMIC_ACQUIRE) &&
           __atomic_load_n(&state->num_pools, __ATOMIC_RELAXED) == 0;
}

void *pagestash_torch_malloc(ssize_t size, int device, pst_stream stream)
{
    void *address = NULL;
    device_state *state = size > 0 ? state_of(device) : NULL;
    if (!state)
        return NULL;
    const size_t bytes = (size_t)size;
    check("malloc", is_simple(state) ? pst_arena_malloc(state->arena, bytes, &address, stream)
                                     : malloc_slowly(state, device, bytes, &address, stream));
    return address;
}

static pst_status free_slowly(device_state *state, int device, void *address, pst_stream stream)
{
    pthread_mutex_lock(&self.lock);
    pool *owner = owner_of(state, address);
    if (self.trace && !owner)
        torch_trace_free(self.trace, device, address, stream);
    const pst_status status = pst_arena_free(owner ? owner->arena : state->arena, address, stream);
    if (owner)
        drop_if_done(state, owner);
    pthread_mutex_unlock(&self.lock);
    return status;
}

void pagestash_torch_free(void *address, ssize_t size, int device, pst_stream stream)
{
    (void)size;
    device_state *state = address ? state_of(device) : NULL;
    if (!state)
        return;
    check("free", is_simple(state) ? pst_arena_free(state->arena, address, stream)
                                   : free_slowly(state, device, address, stream));
}

/* torch does not say which device. */
void pagestash_torch_record_stream(void *address, pst_stream stream)
{
    pthread_mutex_lock(&self.lock);
    for (int i = 0; i < PAGESTASH_TORCH_MAX_DEVICES && address; i++) {
        device_state *state = &self.devices[i];
        if (__atomic_load_n(&state->phase, __ATOMIC_ACQUIRE) != READY)
            continue;
        pool *owner = owner_of(state, address);
        pst_arena *arena = owner ? owner->arena : state->arena;
        if (!pst_arena_owns(arena, address))
            continue;
        if (pst_arena_record_stream(arena, address, stream) != PST_OK)
            note("record stream", pst_last_message());
        if (self.trace && !owner)
            torch_trace_use(self.trace, i, address, stream);
        break;
    }
    pthread_mutex_unlock(&self.lock);
}

/* ---- the rest ---- */

void pagestash_torch_init(int num_devices)
{
    (void)num_devices;
    check("init", pst_env_check());
}

static void trim(device_state *state)
{
    pst_status status = pst_arena_trim(state->arena);
    if (status == PST_OK && state->early)
        status = pst_arena_trim(state->early->arena);
    if (status != PST_OK)
        note("reset", pst_last_message());
}

void pagestash_torch_reset(void)
{
    pthread_mutex_lock(&self.lock);
    for (int i = 0; i < PAGESTASH_TORCH_MAX_DEVICES; i++)
        if (self.devices[i].phase == READY)
            trim(&self.devices[i]);
    pthread_mutex_unlock(&self.lock);
}

void pagestash_torch_memory_fraction(double fraction, int device)
{
    psti_log(PST_LOG_WARN, "device %d: a memory fraction, %g, is not kept to", device, fraction);
}

int pagestash_torch_iteration(void)
{
    pst_status first = PST_OK;
    pthread_mutex_lock(&self.lock);
    for (int i = 0; i < PAGESTASH_TORCH_MAX_DEVICES; i++) {
        if (self.devices[i].phase != READY)
            continue;
        if (self.devices[i].early)
            self.devices[i].early->is_open = false;
        if (self.trace)
            torch_trace_mark(self.trace, i, self.num_iterations);
        const pst_status status = pst_arena_iteration(self.devices[i].arena);
        if (status != PST_OK)
            note("iteration", pst_last_message());
        if (first == PST_OK)
            first = status;
    }
    self.num_iterations++;
    if (self.trace)
        torch_trace_flush(self.trace);
    pthread_mutex_unlock(&self.lock);
    return first;
}

/* ---- doing something else ---- */

/* Of a device, made before anything is changed. */
typedef struct next_arenas {
    pst_arena *arena;
    pst_arena *early; /* NULL: none */
    pool *place;      /* for the arena in use until now */
    pool *early_place;
} next_arenas;

static pool *empty_place(device_state *state, const pool *but)
{
    for (int i = 0; i < MAX_POOLS; i++)
        if (!state->pools[i].arena && &state->pools[i] != but)
            return &state->pools[i];
    return NULL;
}

static pst_status prepare(device_state *state, const pst_plan_file *plan, next_arenas *next)
{
    next->place = empty_place(state, NULL);
    next->early_place = empty_place(state, next->place);
    PSTI_CHECK(next->place && next->early_place, PST_E_INVALID, "more than %d pools", MAX_POOLS);
    PSTI_TRY(pst_arena_trim(state->arena));
    if (state->early)
        PSTI_TRY(pst_arena_trim(state->early->arena));
    PSTI_TRY(create_arena(state, plan, &next->arena));
    if (begins_with_iteration(plan))
        PSTI_TRY(create_arena(state, NULL, &next->early));
    return PST_OK;
}

static void put_pool(device_state *state, pool *place, pool what)
{
    *place = what;
    __atomic_fetch_add(&state->num_pools, 1, __ATOMIC_RELAXED);
}

/* The arenas until now become pools that nobody holds, which go with the last of their blocks. */
static void take_over(device_state *state, const next_arenas *next)
{
    if (state->early) {
        state->early->num_holds = 0;
        state->early->is_open = false;
        state->early->id = FORMER;
        drop_if_done(state, state->early);
        state->early = NULL;
    }
    put_pool(state, next->place, (pool){.id = FORMER, .arena = state->arena});
    drop_if_done(state, next->place);
    state->arena = next->arena;
    if (!next->early)
        return;
    put_pool(state, next->early_place,
             (pool){.id = EARLY, .arena = next->early, .num_holds = 1, .is_open = true});
    state->early = next->early_place;
}

static void drop_next(next_arenas *all)
{
    for (int i = 0; i < PAGESTASH_TORCH_MAX_DEVICES; i++) {
        pst_arena_destroy(all[i].arena);
        pst_arena_destroy(all[i].early);
    }
}

static pst_status prepare_all(const pst_plan_file *plan, next_arenas *all)
{
    pst_status status = PST_OK;
    for (int i = 0; i < PAGESTASH_TORCH_MAX_DEVICES && status == PST_OK; i++)
        if (self.devices[i].phase == READY)
            status = prepare(&self.devices[i], plan, &all[i]);
    if (status != PST_OK)
        drop_next(all);
    return status;
}

static pst_status switch_locked(const char *mode, const char *path, pst_plan_file **plan,
                                torch_trace **trace, char **plan_path)
{
    next_arenas all[PAGESTASH_TORCH_MAX_DEVICES] = {{.arena = NULL}};
    const bool is_plan = strcmp(mode, "plan") == 0;
    const bool is_record = strcmp(mode, "record") == 0;
    PSTI_CHECK(is_plan || is_record || strcmp(mode, "off") == 0, PST_E_INVALID,
               "mode %s: allowed are off, record and plan", mode);
    PSTI_CHECK(path || !(is_plan || is_record), PST_E_INVALID, "mode %s: no path", mode);
    if (is_plan) {
        PSTI_TRY(read_plan(path, plan));
        *plan_path = copied(path);
        PSTI_CHECK(*plan_path, PST_E_NOMEM, "no memory for a path");
    }
    if (is_record)
        PSTI_TRY(open_trace(path, trace));
    PSTI_TRY(configure());
    PSTI_TRY(prepare_all(*plan, all));
    for (int i = 0; i < PAGESTASH_TORCH_MAX_DEVICES; i++)
        if (self.devices[i].phase == READY)
            take_over(&self.devices[i], &all[i]);
        else
            self.devices[i].phase = UNUSED; /* what was broken may now work */
    self.is_recording = is_record;
    self.num_iterations = 0;
    return PST_OK;
}

int pagestash_torch_switch(const char *mode, const char *path)
{
    pst_plan_file *plan = NULL;
    torch_trace *trace = NULL;
    char *plan_path = NULL;
    pthread_mutex_lock(&self.lock);
    const pst_status status = switch_locked(mode ? mode : "", path, &plan, &trace, &plan_path);
    if (status == PST_OK) {
        torch_trace *former = self.trace;
        char *former_path = self.plan_path;
        set_trace(trace);
        self.plan_path = plan_path;
        trace = former;
        plan_path = former_path;
    } else {
        note("switch", pst_last_message());
    }
    torch_trace_close(trace);
    psti_free(plan_path);
    pst_plan_file_destroy(plan);
    pthread_mutex_unlock(&self.lock);
    return status;
}

int pagestash_torch_label(int phase, uint32_t layer, uint32_t micro_batch)
{
    PSTI_CHECK(phase >= 0 && phase < PST_NUM_PHASES, PST_E_INVALID, "phase %d: allowed is 0..%d",
               phase, PST_NUM_PHASES - 1);
    pthread_mutex_lock(&self.lock);
    if (self.trace)
        torch_trace_label(self.trace, (pst_trace_phase)phase, layer, micro_batch);
    pthread_mutex_unlock(&self.lock);
    return PST_OK;
}

/* ---- figures ---- */

static void add_former(const device_state *state, pagestash_torch_figures *figures)
{
    for (int i = 0; i < MAX_POOLS; i++) {
        const pool *at = &state->pools[i];
        pst_arena_stats stats;
        if (!at->arena || at->id.first != FORMER.first || at->id.second != FORMER.second ||
            pst_arena_get_stats(at->arena, &stats) != PST_OK)
            continue;
        figures->live += stats.live;
    }
}

static void fill_in(const device_state *state, pagestash_torch_figures *figures)
{
    pst_arena_stats stats;
    pst_arena_stats early = {.requests = 0};
    if (pst_arena_get_stats(state->arena, &stats) != PST_OK)
        return;
    if (state->early && pst_arena_get_stats(state->early->arena, &early) != PST_OK)
        return;
    figures->requests = stats.requests + early.requests;
    figures->planned = stats.planned;
    figures->live = stats.live + early.live;
    add_former(state, figures);
    figures->arena_bytes = stats.arena_bytes;
    figures->planned_peak_bytes = stats.planned_peak_bytes;
    figures->fallback_bytes = stats.fallback_bytes + early.fallback_bytes;
    figures->fallback_peak_bytes = stats.fallback_peak_bytes + early.fallback_peak_bytes;
    figures->taken_bytes = stats.taken_bytes + early.taken_bytes;
    figures->taken_peak_bytes = stats.taken_peak_bytes + early.taken_peak_bytes;
    figures->base = (uint64_t)(uintptr_t)stats.base;
    memcpy(figures->deviations, stats.deviations, sizeof(figures->deviations));
    memcpy(figures->first_deviation, stats.first_deviation, sizeof(figures->first_deviation));
}

int pagestash_torch_stats(int device, pagestash_torch_figures *figures)
{
    PSTI_CHECK(figures && figures->struct_size == sizeof(*figures), PST_E_INVALID,
               "figures: struct_size must be %zu", sizeof(*figures));
    PSTI_CHECK(device >= 0 && device < PAGESTASH_TORCH_MAX_DEVICES, PST_E_INVALID,
               "device %d: allowed are 0 to %d", device, PAGESTASH_TORCH_MAX_DEVICES - 1);
    *figures = (pagestash_torch_figures){.struct_size = sizeof(*figures)};
    pthread_mutex_lock(&self.lock);
    if (self.devices[device].phase == READY)
        fill_in(&self.devices[device], figures);
    figures->iterations = self.num_iterations;
    figures->failures = self.num_failures;
    memcpy(figures->last_failure, self.last_failure, sizeof(figures->last_failure));
    pthread_mutex_unlock(&self.lock);
    return PST_OK;
}

const char *pagestash_torch_deviation_name(int deviation)
{
    return pst_deviation_name((pst_deviation)deviation);
}

/* What is freed later than this still comes into the file, at the process's end. Nobody waits for a
 * thread that will not go on. */
__attribute__((destructor)) static void flush_at_end(void)
{
    if (pthread_mutex_trylock(&self.lock) != 0)
        return;
    if (self.trace)
        torch_trace_flush(self.trace);
    pthread_mutex_unlock(&self.lock);
}
