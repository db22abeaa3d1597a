/* The lines of tests/data/estimator/figures.txt: published figures, figures of runs, and what is
 * refused with which message. */
#include "tests/host/estimate/estimate_models.h"
#include "tests/host/estimate/estimate_random.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { LINE_BYTES = 1024, MOST_CHUNKS = 16 };

typedef unsigned long long ull;

/* " name=value" after " name=value" */
typedef struct answer {
    char text[4 * LINE_BYTES];
    size_t used;
} answer;

static void put(answer *self, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(answer *self, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const size_t room = sizeof(self->text) - self->used;
    self->used += (size_t)vsnprintf(self->text + self->used, room, format, arguments);
    va_end(arguments);
}

static void say_params(const pst_estimate_config *config, answer *to)
{
    pst_estimate_params of;
    CHECK_OK(pst_estimate_get_params(config, &of));
    put(to, " total=%llu padded=%llu active=%llu experts=%llu router_bias=%llu", (ull)of.total,
        (ull)of.padded, (ull)of.active, (ull)of.experts, (ull)of.router_bias);
    put(to,
        " dense_layer=%llu moe_layer=%llu embedding=%llu output=%llu mtp=%llu padded_vocab=%llu",
        (ull)of.dense_layer, (ull)of.moe_layer, (ull)of.embedding, (ull)of.output, (ull)of.mtp,
        (ull)of.padded_vocab);
}

static void say_stage(const pst_estimate_config *config, uint64_t stage, answer *to)
{
    pst_estimate_memory of;
    pst_estimate_states states;
    uint64_t live[MOST_CHUNKS] = {0};
    CHECK_OK(pst_estimate_get_memory(config, stage, live, &of));
    CHECK_OK(pst_estimate_get_states(config, stage, &states));
    CHECK(memcmp(&states, &of.states, sizeof(states)) == 0);
    put(to, " params=%llu expert=%llu weights=%llu gradients=%llu optimizer=%llu states=%llu",
        (ull)states.params, (ull)states.expert_params, (ull)states.weight_bytes,
        (ull)states.gradient_bytes, (ull)states.optimizer_bytes, (ull)states.bytes);
    put(to, " micro_batches=%llu live=%llu", (ull)of.num_micro_batches, (ull)live[0]);
    for (uint64_t i = 1; i < config->virtual_stages; i++)
        put(to, "+%llu", (ull)live[i]);
    put(to, " layers=%llu saved=%llu head=%llu recompute=%llu paging=%llu total=%llu",
        (ull)of.live_layers, (ull)of.saved_bytes, (ull)of.head_bytes, (ull)of.recompute_bytes,
        (ull)of.paging_bytes, (ull)of.bytes);
    put(to, " cache=%llu gathered=%llu offloaded=%llu reload=%llu workspace=%llu",
        (ull)of.cache_bytes, (ull)of.gathered_bytes, (ull)of.offloaded_bytes, (ull)of.reload_bytes,
        (ull)of.workspace_bytes);
    put(to, " transient=%llu", (ull)of.transient_bytes);
    put(to, " hundredths=%llu peak_hundredths=%llu", (ull)((of.bytes * 100 + (1u << 29)) >> 30),
        (ull)((of.peak_bytes * 100 + (1u << 29)) >> 30)); /* of a GiB */
}

static void say_ledger(const pst_estimate_config *config, bool is_moe, answer *to)
{
    pst_estimate_ledger of;
    CHECK_OK(pst_estimate_get_ledger(config, is_moe, &of));
    for (uint32_t i = 0; i < of.num_entries; i++)
        put(to, " %s=%llu", of.entries[i].name, (ull)of.entries[i].bytes);
    put(to, " sum=%llu whole=%llu", (ull)of.bytes, (ull)of.whole_bytes);
}

static void say_gaps(const pst_estimate_config *config, uint64_t stage, answer *to)
{
    pst_estimate_gaps of;
    CHECK_OK(pst_estimate_get_gaps(config, stage, &of));
    for (uint32_t i = 0; i < of.num_gaps; i++)
        put(to, " %s=%llu", of.gaps[i].field, (ull)of.gaps[i].bytes);
}

/* Names say it: "tp.ag.head" gathers. */
static pst_transfer kind_of(const char *name)
{
    static const char *const parts[] = {
        [PST_TRANSFER_ALL_REDUCE] = ".ar",     [PST_TRANSFER_ALL_GATHER] = ".ag",
        [PST_TRANSFER_REDUCE_SCATTER] = ".rs", [PST_TRANSFER_ALL_TO_ALL] = ".a2a",
        [PST_TRANSFER_SEND] = ".send",         [PST_TRANSFER_RECEIVE] = ".recv"};
    for (int i = 0; i <= PST_TRANSFER_RECEIVE; i++)
        if (strstr(name, parts[i]) != NULL)
            return (pst_transfer)i;
    return PST_TRANSFER_SEND; /* around a ring */
}

static void say_experts(const pst_estimate_config *config, uint64_t live_layers, answer *to)
{
    pst_estimate_moe of;
    CHECK_OK(pst_estimate_get_moe(config, live_layers, &of));
    put(to, " balanced_rows=%llu capacity_rows=%llu worst_rows=%llu row_bytes=%llu",
        (ull)of.balanced_rows, (ull)of.capacity_rows, (ull)of.worst_rows, (ull)of.row_bytes);
    put(to, " balanced=%llu capacity=%llu worst=%llu working=%llu worst_working=%llu",
        (ull)of.balanced_bytes, (ull)of.capacity_bytes, (ull)of.worst_bytes, (ull)of.working_bytes,
        (ull)of.worst_working_bytes);
    put(to, " pages=%llu page_bytes=%llu table=%llu paged=%llu backward=%llu", (ull)of.num_pages,
        (ull)of.pages_bytes, (ull)of.table_bytes, (ull)of.paged_bytes, (ull)of.backward_bytes);
}

static void say_transfers(const pst_estimate_config *config, uint64_t stage, answer *to)
{
    pst_estimate_traffic of;
    CHECK_OK(pst_estimate_get_traffic(config, stage, &of));
    for (uint32_t i = 0; i < of.num_ops; i++) {
        const pst_estimate_op *op = &of.ops[i];
        CHECK_MSG(op->transfer == kind_of(op->name), "%s: %d", op->name, (int)op->transfer);
        put(to, " %s=%llu:%llux%llu", op->name, (ull)op->group_size, (ull)op->count,
            (ull)op->payload_bytes);
    }
}

/* Every word of the line is in the answer, in this order; of transfers, and of what is left out, there are
 * no others. */
static void expect(const answer *got, char *words, bool is_whole, const char *line)
{
    const char *at = got->text;
    for (char *word = words; word != NULL && *word != '\0';) {
        char *rest = strchr(word, ' ');
        const size_t length = rest != NULL ? (size_t)(rest - word) : strlen(word);
        while (at != NULL && (strncmp(at + 1, word, length) != 0 ||
                              (at[1 + length] != ' ' && at[1 + length] != '\0')))
            at = strchr(at + 1, ' ');
        CHECK_MSG(at != NULL, "%s: %.*s is not in%s", line, (int)length, word, got->text);
        if (at == NULL)
            return;
        word = rest != NULL ? rest + 1 : NULL;
    }
    CHECK_MSG(!is_whole || got->used == strlen(words) + (*words != '\0'), "%s: but%s", line,
              got->text);
}

/* The sentence of a fault is that of the message, with members in braces, the first of them at fault. */
static void expect_refused(const pst_estimate_config *config, const char *message, const char *line)
{
    pst_estimate_config copy = *config;
    pst_estimate_fault fault;
    char plain[sizeof(fault.reason)], member[64];
    size_t length = 0;
    CHECK_STATUS(pst_estimate_check(config), PST_E_INVALID);
    CHECK_MSG(strstr(pst_last_message(), message) != NULL, "%s: %s", line, pst_last_message());
    CHECK_STATUS(pst_estimate_find_fault(config, &fault), PST_E_INVALID);
    for (const char *at = fault.reason; *at != '\0'; at++) {
        if (*at != '{' && *at != '}')
            plain[length++] = *at;
        if (*at != '{')
            continue;
        snprintf(member, sizeof(member), "%.*s=0", (int)strcspn(at + 1, "}"), at + 1);
        CHECK_MSG(psti_change_field(&copy, member) || strcmp(member, "is_moe=0") == 0 ||
                      strcmp(member, "chunk_layers=0") == 0,
                  "%s: %s", line, fault.reason);
        if (at == fault.reason)
            CHECK_MSG(strncmp(member, fault.field, strlen(fault.field)) == 0, "%s: %s", line,
                      fault.field);
    }
    plain[length] = '\0';
    CHECK_MSG(fault.reason[0] == '{' && strncmp(pst_last_message(), plain, length) == 0, "%s: %s",
              line, fault.reason);
}

static void ask(const pst_estimate_config *config, const char *what, char *words, const char *line)
{
    answer got = {.used = 0};
    const bool is_sends = strcmp(what, "sends") == 0, is_gaps = strcmp(what, "gaps") == 0;
    if (strcmp(what, "refused") == 0) {
        expect_refused(config, words, line);
        return;
    }
    if (strcmp(what, "params") == 0)
        say_params(config, &got);
    else if (is_sends)
        say_transfers(config, strtoull(words, &words, 10), &got);
    else if (is_gaps)
        say_gaps(config, strtoull(words, &words, 10), &got);
    else if (strcmp(what, "experts") == 0)
        say_experts(config, strtoull(words, &words, 10), &got);
    else if (strcmp(what, "stage") == 0)
        say_stage(config, strtoull(words, &words, 10), &got);
    else
        say_ledger(config, strcmp(what, "moe") == 0, &got);
    expect(&got, words + strspn(words, " "), is_sends || is_gaps, line);
}

static void check_line(char *text)
{
    char line[LINE_BYTES];
    text[strcspn(text, "\n")] = '\0';
    snprintf(line, sizeof(line), "%s", text);
    char *rest, *word = strtok_r(text, " ", &rest);
    pst_estimate_config config = psti_estimate_named(word);
    while ((word = strtok_r(NULL, " ", &rest)) != NULL && strchr(word, '=') != NULL)
        CHECK_MSG(psti_change_field(&config, word), "%s: no field for %s", line, word);
    CHECK_MSG(word != NULL, "%s: nothing is asked", line);
    if (word != NULL)
        ask(&config, word, rest, line);
}

PST_TEST(EstimateFigures, LinesOfTheTable)
{
    FILE *file = fopen(PSTI_TEST_DATA "/estimator/figures.txt", "r");
    CHECK(file != NULL);
    char text[LINE_BYTES];
    int num_lines = 0;
    while (file != NULL && fgets(text, sizeof(text), file) != NULL)
        if (text[0] != '#' && text[0] != '\n') {
            check_line(text);
            num_lines++;
        }
    CHECK(num_lines > 200);
    if (file != NULL)
        fclose(file);
}

PST_TEST(EstimateFigures, NoFault)
{
    const pst_estimate_config config = psti_estimate_named("P1");
    pst_estimate_fault fault = {.field = "x", .reason = "y"};
    CHECK_STATUS(pst_estimate_find_fault(&config, &fault), PST_OK);
    CHECK(fault.field[0] == '\0' && fault.reason[0] == '\0');
    CHECK_STATUS(pst_estimate_find_fault(&config, NULL), PST_E_INVALID);
}

PST_TEST(EstimateFigures, FaultOfAMember)
{
    pst_estimate_config config = psti_estimate_named("P1");
    pst_estimate_fault fault;
    config.num_heads = 0;
    CHECK_STATUS(pst_estimate_find_fault(&config, &fault), PST_E_INVALID);
    CHECK_STR(fault.field, "num_heads");
    CHECK_STR(fault.reason, "{num_heads} 0: must be at least 1");
}
