/* For every public function that reaches a device: each of the device's calls fails in turn. The function
 * answers the documented status, and its message names the call; nothing leaks and nothing is half
 * done; the same call then succeeds; and everything can be destroyed. */
#include "tests/host/device/every_call.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

static const call_table *const tables[] = {&device_calls,   &pool_calls, &ticket_calls,
                                           &arena_calls,    &comm_calls, &linear_calls,
                                           &scheduler_calls};
enum { TABLES = sizeof(tables) / sizeof(tables[0]), MOST_CALLS = 400 };

#define CHECK_SAYING(condition) \
    CHECK_MSG(condition, "%s is false; last message: %s", #condition, pst_last_message())

typedef struct attempt {
    const call_case *of;
    recorder_failure failure;
    uint32_t n;
    pst_device *device;
    recorder recorder;
} attempt;

static void begin(attempt *self)
{
    CHECK_OK(pst_device_open("host", 0, &self->device));
    recorder_make(&self->recorder, self->device);
    self->of->room->open(self->device);
    if (self->of->prepare)
        self->of->prepare();
}

static void end(attempt *self)
{
    self->of->room->close();
}

/* Objects that a caller made. Parts of them may be kept for the next call; at the end none is left. */
static uint32_t num_objects(const pst_device *device)
{
    return device->live - device->num_of[PSTI_LIVE_PART];
}

static void check_message(const attempt *self)
{
    char wanted[64];
    const char *said = pst_last_message();
    snprintf(wanted, sizeof(wanted), "device call %s was to fail", self->recorder.failed);
    CHECK_SAYING(strstr(said, wanted) != NULL && strchr(said, '\n') == NULL);
}

/* The device works on: as before, and now it succeeds. */
static void go_on(attempt *self, pst_status status, uint32_t objects)
{
    if (self->of->kind == CALL_TRIES && status == PST_OK) {
        self->of->done();
        return;
    }
    CHECK_SAYING(status == self->recorder.failed_for);
    check_message(self);
    CHECK_SAYING(num_objects(self->device) == objects);
    if (self->of->kind == CALL_BREAKS) {
        self->of->room->revive();
        return;
    }
    if (self->of->room->same)
        self->of->room->same();
    CHECK_SAYING(self->of->call() == PST_OK);
    if (self->of->done)
        self->of->done();
}

/* Though CUDA has failed. */
static bool may_succeed(const attempt *self)
{
    const call_kind kind = self->of->kind;
    return kind == CALL_GIVES || kind == CALL_TRIES || kind == CALL_OWNS ||
           self->recorder.gave_back;
}

static void recover(attempt *self, pst_status status)
{
    if (status == PST_OK) {
        CHECK_SAYING(may_succeed(self));
        if (self->of->done)
            self->of->done();
    } else {
        CHECK_SAYING(status == PST_E_CUDA);
        check_message(self);
    }
    if (status != PST_OK && self->of->room->revive)
        self->of->room->revive();
}

/* Answers whether there was an n-th call. */
static bool fail_at(const call_case *of, recorder_failure failure, uint32_t n, uint32_t *calls_out)
{
    static attempt self; /* the device of a failed one stays, and later tests' forks ask it */
    self = (attempt){.of = of, .failure = failure, .n = n};
    begin(&self);
    if (psti_test_failed())
        return false;
    const uint32_t objects = num_objects(self.device);
    recorder_arm(&self.recorder, failure, n);
    const pst_status status = of->call();
    *calls_out = self.recorder.num_calls;
    self.recorder.fails_at = 0;
    const bool failed = self.recorder.failed != NULL;
    if (!failed && status != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s: %s: %s", of->name, pst_status_name(status),
                       pst_last_message());
    else if (!failed && of->done)
        of->done();
    else if (failed && failure == RECORDER_PASSES)
        go_on(&self, status, objects);
    else if (failed)
        recover(&self, status);
    if (!psti_test_failed())
        end(&self);
    if (psti_test_failed())
        psti_test_fail(__FILE__, __LINE__, "%s: call %u, %s, fails %s", of->name, n,
                       failed ? self.recorder.failed : "none",
                       failure == RECORDER_CUDA ? "for CUDA" : "and passes");
    return failed && !psti_test_failed();
}

static void try_case(const call_case *of, uint32_t *failures)
{
    static const recorder_failure kinds[] = {RECORDER_PASSES, RECORDER_CUDA};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        uint32_t n = 1, calls = 0;
        if (of->kind == CALL_OWNS && kinds[i] == RECORDER_PASSES)
            continue;
        while (n < MOST_CALLS && fail_at(of, kinds[i], n, &calls))
            n++;
        CHECK_MSG(n < MOST_CALLS, "%s never succeeds", of->name);
        CHECK_MSG((calls == 0) == (of->kind == CALL_NONE), "%s made %u calls", of->name, calls);
        *failures += n - 1;
        if (psti_test_failed())
            return;
    }
}

/* Fault rows 38. */
PST_TEST(EveryCall, SurvivesEveryFailureOfTheDevice)
{
    uint32_t failures = 0, functions = 0;
    for (size_t t = 0; t < TABLES; t++)
        for (size_t i = 0; i < tables[t]->num; i++, functions++) {
            try_case(&tables[t]->cases[i], &failures);
            if (psti_test_failed())
                return;
        }
    printf("%u cases, %u failed calls\n", functions, failures);
}

PST_TEST(EveryCall, IsRecordedWithItsBytesAndStream)
{
    recorder seen;
    pst_device *device = NULL;
    pst_stream stream = NULL;
    void *memory = NULL;
    CHECK_OK(pst_device_open("host", 0, &device));
    recorder_make(&seen, device);
    CHECK_OK(pst_stream_create(device, &stream));
    recorder_arm(&seen, RECORDER_CUDA, 0);
    CHECK_OK(pst_device_alloc(device, 100, &memory));
    CHECK_OK(pst_device_fill(device, memory, 1, 60, stream));
    CHECK_OK(pst_device_synchronize(device));
    CHECK_OK(pst_device_free(device, memory));
    CHECK_EQ(seen.num_calls, 4);
    CHECK_STR(seen.calls[0].name, "alloc");
    CHECK_EQ(seen.calls[0].bytes, 100);
    CHECK_STR(seen.calls[1].name, "fill");
    CHECK_EQ(seen.calls[1].bytes, 60);
    CHECK(seen.calls[1].stream == stream && seen.calls[0].stream == NULL);
    CHECK_STR(seen.calls[2].name, "synchronize");
    CHECK_STR(seen.calls[3].name, "free");
    CHECK_OK(pst_stream_destroy(device, stream));
    CHECK_OK(pst_device_close(device));
}

/* ---- that no function is left out ---- */

static char *headers; /* all public ones, one after the other */
static size_t headers_bytes;

static void read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    CHECK_MSG(file != NULL, "%s cannot be read", path);
    for (size_t got = 1; got;) {
        headers = realloc(headers, headers_bytes + 4096 + 1);
        got = fread(headers + headers_bytes, 1, 4096, file);
        headers_bytes += got;
    }
    headers[headers_bytes] = '\0';
    fclose(file);
}

static void read_headers(void)
{
    DIR *folder = opendir(PSTI_TEST_SOURCE "/include/pagestash");
    CHECK(folder != NULL);
    for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        char path[sizeof(PSTI_TEST_SOURCE) + sizeof(entry->d_name) + 32];
        snprintf(path, sizeof(path), PSTI_TEST_SOURCE "/include/pagestash/%s", entry->d_name);
        if (strstr(entry->d_name, ".h"))
            read_file(path);
    }
    closedir(folder);
}

/* Of `struct NAME NAME;` without a device behind it. */
static const char *const pure[] = {"pst_group", "pst_schedule", "pst_trace", "pst_trace_reader",
                                   "pst_plan_file"};

static bool is_pure(const char *type)
{
    for (size_t i = 0; i < sizeof(pure) / sizeof(pure[0]); i++)
        if (strcmp(type, pure[i]) == 0)
            return true;
    return false;
}

/* Whether text[0, length) has the word. */
static bool has_word(const char *text, size_t length, const char *word)
{
    const size_t size = strlen(word);
    for (size_t i = 0; i + size < length; i++)
        if (strncmp(text + i, word, size) == 0 && text[i + size] == ' ' &&
            (i == 0 || text[i - 1] != '_'))
            return true;
    return false;
}

/* Whether the parameters have an object that lives on a device: any that the headers do not show, but for
 * the pure ones, a ticket, a stream or an event. */
static bool takes_device(const char *parameters, size_t length)
{
    for (const char *at = headers; (at = strstr(at, "\ntypedef struct pst_")); at++) {
        char first[64], second[64], end = 0;
        if (sscanf(at, "\ntypedef struct %63s %63[a-z_]%c", first, second, &end) == 3 &&
            end == ';' && strcmp(first, second) == 0 && !is_pure(first) &&
            has_word(parameters, length, first))
            return true;
    }
    return has_word(parameters, length, "pst_ticket") ||
           has_word(parameters, length, "pst_stream") || has_word(parameters, length, "pst_event");
}

static const char *parameters_of(const char *function, size_t *length_out)
{
    const size_t size = strlen(function);
    for (const char *at = headers; (at = strstr(at, function)); at++) {
        const char *line = at;
        while (line > headers && line[-1] != '\n')
            line--;
        if (at[size] != '(' || strncmp(line, "PST_API", 7) != 0)
            continue;
        *length_out = strcspn(at, ")");
        return at + size;
    }
    return NULL;
}

static uint32_t num_cases(const char *function)
{
    uint32_t num = 0;
    for (size_t t = 0; t < TABLES; t++)
        for (size_t i = 0; i < tables[t]->num; i++)
            num += strcmp(tables[t]->cases[i].name, function) == 0;
    return num;
}

static void check_exports(FILE *exports)
{
    char function[128];
    uint32_t reaching = 0, cases = 0, all = 0;
    while (fscanf(exports, "%127s", function) == 1) {
        size_t length = 0;
        const char *parameters = parameters_of(function, &length);
        CHECK_MSG(parameters != NULL, "%s is declared in no header", function);
        const uint32_t num = num_cases(function);
        cases += num;
        if (!takes_device(parameters, length))
            continue;
        reaching++;
        CHECK_MSG(num > 0, "%s takes what lives on a device, and every_call_*.c has no case of it",
                  function);
    }
    for (size_t t = 0; t < TABLES; t++)
        all += (uint32_t)tables[t]->num;
    CHECK_MSG(cases == all, "%u of %u cases are of exported functions", cases, all);
    CHECK(reaching > 100);
}

PST_TEST(EveryCall, HasEveryFunctionThatReachesADevice)
{
    FILE *exports = fopen(PSTI_TEST_SOURCE "/tests/packaging/exports.txt", "r");
    CHECK(exports != NULL);
    read_headers();
    check_exports(exports);
    fclose(exports);
    free(headers);
    headers = NULL;
    headers_bytes = 0;
}
