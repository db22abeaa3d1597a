/* Configurations that make no sense: refused in one line, or answered exactly, never wrapped. */
#include "tests/host/estimate/estimate_models.h"
#include "tests/host/estimate/estimate_random.h"

__extension__ typedef unsigned __int128 wide;

/* ---- every function at once ---- */

static bool count_ten(void *user, const pst_estimate_event *event)
{
    (void)event;
    return ++*(int *)user < 10;
}

/* An answer, or one line that says why not. */
static bool is_answer(pst_status status)
{
    const char *message = pst_last_message();
    return status == PST_OK || ((status == PST_E_INVALID || status == PST_E_UNSUPPORTED) &&
                                message[0] != '\0' && strchr(message, '\n') == NULL);
}

typedef struct answers {
    pst_status check;
    pst_status all[13];
    bool are_answers;
    pst_estimate_params params;
    pst_estimate_states states;
    pst_estimate_memory memory;
    pst_estimate_ledger ledger[2];
    pst_estimate_modules modules[3];
    pst_estimate_moe moe;
    pst_estimate_traffic traffic;
    pst_estimate_process_group group;
    pst_estimate_linears linears;
} answers;

enum {
    PARAMS = 0,
    STATES,
    MEMORY,
    LEDGER,
    LEDGER_MOE,
    MODULES,
    TIMELINE = 8,
    MOE,
    TRAFFIC,
    GROUP,
    LINEARS
};

static void keep(answers *self, int which, pst_status status)
{
    self->all[which] = status;
    self->are_answers = self->are_answers && is_answer(status);
}

/* Of a stage and a rank; 0xa5 where nothing was written. */
static void ask(const pst_estimate_config *config, uint64_t stage, uint64_t rank, answers *self)
{
    int events = 0;
    memset(self, 0xa5, sizeof(*self));
    self->check = pst_estimate_check(config);
    self->are_answers = is_answer(self->check);
    keep(self, PARAMS, pst_estimate_get_params(config, &self->params));
    keep(self, STATES, pst_estimate_get_states(config, stage, &self->states));
    keep(self, MEMORY, pst_estimate_get_memory(config, stage, NULL, &self->memory));
    for (int i = 0; i < 2; i++)
        keep(self, LEDGER + i, pst_estimate_get_ledger(config, i == 1, &self->ledger[i]));
    for (int i = 0; i < PST_NUM_ESTIMATE_PARTS; i++)
        keep(self, MODULES + i,
             pst_estimate_get_modules(config, (pst_estimate_part)i, &self->modules[i]));
    keep(self, TIMELINE, pst_estimate_get_timeline(config, stage, count_ten, &events));
    keep(self, MOE, pst_estimate_get_moe(config, 5, &self->moe));
    keep(self, LINEARS, pst_estimate_get_linears(config, 0, true, 5, &self->linears));
    keep(self, TRAFFIC, pst_estimate_get_traffic(config, stage, &self->traffic));
    keep(self, GROUP,
         pst_estimate_get_process_group(config, PST_PARALLEL_REPLICA, rank, &self->group));
}

static bool is_untouched(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; i++)
        if (at[i] != 0xa5)
            return false;
    return true;
}

#define UNTOUCHED(of, which, field) \
    ((of)->all[which] == PST_OK || is_untouched(&(of)->field, sizeof((of)->field)))

static void expect_answers(const answers *of, const char *name)
{
    CHECK_MSG(of->are_answers, "%s: %s", name, pst_last_message());
    for (int i = 0; i < 13; i++)
        CHECK_MSG(of->check == PST_OK || of->all[i] == of->check, "%s: function %d", name, i);
    CHECK(UNTOUCHED(of, PARAMS, params) && UNTOUCHED(of, STATES, states) &&
          UNTOUCHED(of, MEMORY, memory) && UNTOUCHED(of, LEDGER, ledger[0]) &&
          UNTOUCHED(of, LEDGER_MOE, ledger[1]) && UNTOUCHED(of, MODULES, modules[0]) &&
          UNTOUCHED(of, MODULES + 1, modules[1]) && UNTOUCHED(of, MODULES + 2, modules[2]) &&
          UNTOUCHED(of, MOE, moe) && UNTOUCHED(of, TRAFFIC, traffic) &&
          UNTOUCHED(of, GROUP, group) && UNTOUCHED(of, LINEARS, linears));
}

/* ---- fields gone wrong ---- */

static const uint64_t odd_values[] = {0,
                                      1,
                                      2,
                                      3,
                                      5,
                                      7,
                                      64,
                                      1000,
                                      UINT64_C(1) << 20,
                                      UINT64_C(1) << 31,
                                      (UINT64_C(1) << 31) + 1,
                                      UINT64_C(1) << 32,
                                      UINT64_C(1) << 40,
                                      UINT64_C(1) << 63,
                                      (UINT64_C(1) << 63) - 1,
                                      UINT64_MAX - 1,
                                      UINT64_MAX};

/* Arrays are as long as the sizes say, or not given. */
static void break_field(psti_random_run *run)
{
    size_t index;
    do
        index = psti_random_below(&run->state, psti_num_fields);
    while (!psti_fields[index].is_whole);
    uint64_t *field = psti_field_of(&run->config, index);
    const uint64_t num_odd = sizeof(odd_values) / sizeof(odd_values[0]);
    const uint64_t draw = psti_random_below(&run->state, num_odd + 3);
    if (draw < num_odd)
        *field = odd_values[draw];
    else
        *field = draw == num_odd ? *field + 1 : draw == num_odd + 1 ? *field - 1 : *field * 2;
    run->config.is_moe = NULL;
    run->config.chunk_layers = NULL;
}

static void break_kind(psti_random_run *run)
{
    const int bad = psti_random_below(&run->state, 2) ? -1 : 77;
    switch (psti_random_below(&run->state, 7)) {
    case 0:
        run->config.norm = (pst_norm)bad;
        break;
    case 1:
        run->config.qk_norm = (pst_qk_norm)bad;
        break;
    case 2:
        run->config.type = (pst_train_type)bad;
        break;
    case 3:
        run->config.loss = (pst_loss)bad;
        break;
    case 4:
        run->config.moe_rows = (pst_moe_rows)bad;
        break;
    case 5:
        run->config.recompute = (uint32_t)bad << 4;
        break;
    default:
        run->config.struct_size = bad < 0 ? offsetof(pst_estimate_config, pages_glu) - 1
                                          : sizeof(pst_estimate_config) + 77;
        break;
    }
}

PST_TEST(EstimateHostile, BrokenFieldsAreRefusedOrAnswered)
{
    psti_random_run run = {.state = 12};
    answers got;
    int num_refused = 0;
    for (int i = 0; i < 6000; i++) {
        psti_draw_run(&run);
        for (uint64_t n = 1 + psti_random_below(&run.state, 3); n > 0; n--)
            break_field(&run);
        ask(&run.config, psti_random_below(&run.state, 5), psti_random_below(&run.state, 99), &got);
        expect_answers(&got, "broken");
        num_refused += got.check != PST_OK;
    }
    CHECK(num_refused > 1000 && num_refused < 5000);
}

PST_TEST(EstimateHostile, BrokenKindsAreRefused)
{
    psti_random_run run = {.state = 13};
    answers got;
    for (int i = 0; i < 300; i++) {
        psti_draw_run(&run);
        break_kind(&run);
        ask(&run.config, 0, 0, &got);
        expect_answers(&got, "kind");
        CHECK_STATUS(got.check, PST_E_INVALID);
    }
}

/* ---- one huge field ---- */

/* Larger ones of these never make anything smaller. */
static bool is_size(const char *name)
{
    static const char *const sizes[] = {"hidden_size",       "ffn_size",        "vocab_size",
                                        "padded_vocab_size", "max_positions",   "q_rank",
                                        "kv_rank",           "qk_size",         "v_size",
                                        "expert_ffn_size",   "shared_ffn_size", "qk_position_size",
                                        "sequence_size",     "micro_batch",     "gradient_width",
                                        "optimizer_width",   "num_heads"};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (strcmp(sizes[i], name) == 0)
            return true;
    return false;
}

static void expect_more(const answers *huge, const answers *base, const char *name)
{
    if (huge->all[PARAMS] == PST_OK)
        CHECK_MSG(huge->params.padded >= base->params.padded, "%s", name);
    if (huge->all[MEMORY] == PST_OK)
        CHECK_MSG(huge->memory.bytes >= base->memory.bytes &&
                      huge->memory.peak_bytes >= huge->memory.bytes,
                  "%s", name);
    for (int i = 0; i < 2; i++)
        if (huge->all[LEDGER + i] == PST_OK && base->all[LEDGER + i] == PST_OK)
            CHECK_MSG(huge->ledger[i].bytes >= base->ledger[i].bytes &&
                          huge->ledger[i].whole_bytes >= huge->ledger[i].bytes,
                      "%s", name);
}

PST_TEST(EstimateHostile, HugeFieldsNeverWrap)
{
    static const uint64_t values[] = {UINT64_C(1) << 31, UINT64_C(1) << 32, UINT64_C(1) << 63,
                                      UINT64_MAX};
    static const int runs[] = {1, 3, 4, 5, 9, 10};
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        pst_estimate_config base = psti_estimate_run(runs[i]);
        answers before, after;
        base.head_size = base.hidden_size / base.num_heads;
        base.global_batch = base.virtual_stages > 1 ? base.global_batch : 0;
        ask(&base, 0, 0, &before);
        CHECK_STATUS(before.check, PST_OK);
        for (size_t j = 0; j < 4 * psti_num_fields; j++) {
            const char *name = psti_fields[j / 4].name;
            if (!psti_fields[j / 4].is_whole)
                continue;
            pst_estimate_config config = base;
            *psti_field_of(&config, j / 4) = values[j % 4];
            ask(&config, 0, 0, &after);
            expect_answers(&after, name);
            if (is_size(name))
                expect_more(&after, &before, name);
        }
    }
}

/* ---- in 128 bits ---- */

typedef struct sizes {
    wide layers, hidden, ffn, vocab, sequence, batch, heads;
} sizes;

static uint64_t log_uniform(uint64_t *state, uint64_t most_bits)
{
    return 1 + psti_random_below(state, UINT64_C(1) << psti_random_below(state, most_bits));
}

/* Llama with a head size of 64, on one GPU, vocabulary not padded. */
static wide layer_params(const sizes *of)
{
    return 4 * of->hidden * 64 * of->heads + 3 * of->hidden * of->ffn + 2 * of->hidden;
}

static wide model_params(const sizes *of)
{
    return of->layers * layer_params(of) + 2 * of->vocab * of->hidden + of->hidden;
}

static wide layer_saves(const sizes *of)
{
    const wide for_token = 8 * of->hidden + 8 + 8 * 64 * of->heads + 4 * of->heads + 6 * of->ffn;
    return of->sequence * of->batch * for_token;
}

static wide memory_bytes(const sizes *of)
{
    const wide tokens = of->sequence * of->batch;
    const wide head = tokens * (4 * of->hidden + 4 + 6 * of->vocab + 12);
    return 18 * model_params(of) + of->layers * layer_saves(of) + 8 * tokens + head;
}

static pst_estimate_config config_of(const sizes *of)
{
    pst_estimate_config config = PST_ESTIMATE_CONFIG_INIT;
    config.num_layers = (uint64_t)of->layers;
    config.hidden_size = (uint64_t)of->hidden;
    config.num_heads = (uint64_t)of->heads;
    config.head_size = 64;
    config.ffn_size = (uint64_t)of->ffn;
    config.vocab_size = (uint64_t)of->vocab;
    config.vocab_multiple = 1;
    config.norm = PST_NORM_RMS;
    config.is_gated = config.fuses_activation = config.has_flash_attention = true;
    config.sequence_size = (uint64_t)of->sequence;
    config.micro_batch = (uint64_t)of->batch;
    return config;
}

/* Exact, or refused because it is 2^64 - 1 or more. */
static bool is_exact(pst_status status, uint64_t figure, wide right)
{
    return status == PST_OK ? right == figure : right >= UINT64_MAX;
}

PST_TEST(EstimateHostile, ExactUpTo64Bits)
{
    uint64_t state = 14;
    int num_exact = 0, num_refused = 0;
    for (int i = 0; i < 20000; i++) {
        const sizes of = {1 + psti_random_below(&state, 200),
                          log_uniform(&state, 30),
                          log_uniform(&state, 30),
                          log_uniform(&state, 30),
                          log_uniform(&state, 30),
                          log_uniform(&state, 10),
                          log_uniform(&state, 20)};
        const pst_estimate_config config = config_of(&of);
        pst_estimate_states states = {.params = 0};
        pst_estimate_ledger ledger = {.bytes = 0};
        pst_estimate_memory memory = {.bytes = 0};
        const pst_status made = pst_estimate_get_states(&config, 0, &states);
        CHECK(made == PST_OK ? states.params == model_params(&of)
                             : 18 * model_params(&of) >= UINT64_MAX);
        CHECK(is_exact(made, states.bytes, 18 * model_params(&of)));
        const pst_status saved = pst_estimate_get_ledger(&config, false, &ledger);
        CHECK(is_exact(saved, ledger.bytes, layer_saves(&of)));
        const pst_status status = pst_estimate_get_memory(&config, 0, NULL, &memory);
        if (status == PST_OK)
            CHECK(memory.bytes == memory_bytes(&of));
        else
            CHECK(status == PST_E_INVALID && 2 * memory_bytes(&of) >= UINT64_MAX);
        *(status == PST_OK ? &num_exact : &num_refused) += 1;
    }
    CHECK(num_exact > 5000 && num_refused > 500);
}

/* ---- what no one reads, and what would not be seen ---- */

PST_TEST(EstimateHostile, SizesOfLayersThatThereAreNotCountForNothing)
{
    pst_estimate_config config = psti_model("mixtral_8x7b");
    pst_estimate_memory with, without;
    config.sequence_size = 4096;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &without));
    config.ffn_size = UINT64_MAX;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &with));
    CHECK_EQ(with.peak_bytes, without.peak_bytes);
}

/* Two replicas of 2^63 sequences, and of so many that no global batch holds one of each. */
PST_TEST(EstimateHostile, NoGlobalBatchStandsForOneThatWraps)
{
    pst_estimate_config config = psti_model("llama2_7b");
    config.sequence_size = 1;
    config.world_size = 2;
    config.micro_batch = UINT64_C(1) << 63;
    CHECK_STATUS(pst_estimate_check(&config), PST_E_INVALID);
    config.global_batch = UINT64_MAX;
    CHECK_STATUS(pst_estimate_check(&config), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "micro_batch 9223372036854775808") != NULL);
}
