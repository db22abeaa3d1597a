/* Lists of passes at random: those that are schedules, measured again, and spoilt ones. */
#include "tests/host/schedule/schedule_scene.h"
#include "tests/random.h"

enum { MOST_LIVES = 24, MOST_RANDOM = 3 * MOST_LIVES };

typedef struct random_list {
    pst_pass passes[MOST_RANDOM];
    uint64_t num;
} random_list;

/* Lives in which the passes left are done at random, some of them as pairs. */
static void make_random(random_list *list, uint64_t *seed)
{
    const uint32_t v = 1 + (uint32_t)random_below(seed, 4);
    const uint32_t m = 1 + (uint32_t)random_below(seed, MOST_LIVES / 4);
    const uint64_t how = random_below(seed, 3); /* whole, split, or both */
    pst_pass_kind next[MOST_LIVES] = {0};       /* of each life; 4: nothing */
    uint32_t left = v * m;
    list->num = 0;
    while (left > 0) {
        const uint32_t life = (uint32_t)random_below(seed, v * m);
        if ((int)next[life] == 4)
            continue;
        list->passes[list->num++] =
            (pst_pass){.chunk = life / m, .micro_batch = life % m, .kind = next[life]};
        const bool splits = how == 1 || (how == 2 && random_below(seed, 2));
        switch (next[life]) {
        case PST_PASS_FORWARD:
            next[life] = splits ? PST_PASS_BACKWARD_INPUT : PST_PASS_BACKWARD;
            break;
        case PST_PASS_BACKWARD_INPUT:
            next[life] = random_below(seed, 8) ? PST_PASS_BACKWARD_WEIGHT : (pst_pass_kind)4;
            break;
        default:
            next[life] = (pst_pass_kind)4;
        }
        left -= (int)next[life] == 4;
    }
    for (uint64_t n = 0; n + 1 < list->num; n++) {
        pst_pass *pass = &list->passes[n];
        const bool may = (pass->kind == PST_PASS_FORWARD) != (pass[1].kind == PST_PASS_FORWARD) &&
                         (pass->chunk != pass[1].chunk || pass->micro_batch != pass[1].micro_batch);
        pass->pairs = may && (n == 0 || !pass[-1].pairs) && random_below(seed, 2);
    }
}

static pst_status create_random(const random_list *list, pst_schedule **schedule_out)
{
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
    config.kind = PST_SCHEDULE_LIST;
    config.passes = list->passes;
    config.num_passes = list->num;
    return pst_schedule_create(&config, schedule_out);
}

/* Whether a list is a schedule, by looking for every pass in the whole list. */
static uint64_t find(const random_list *list, const pst_pass *of, pst_pass_kind kind,
                     uint64_t *num_out)
{
    uint64_t first = UINT64_MAX;
    *num_out = 0;
    for (uint64_t n = list->num; n-- > 0;)
        if (list->passes[n].kind == kind && list->passes[n].chunk == of->chunk &&
            list->passes[n].micro_batch == of->micro_batch) {
            first = n;
            ++*num_out;
        }
    return first;
}

static bool is_life(const random_list *list, const pst_pass *of, bool is_forward_only)
{
    uint64_t num[4], at[4];
    for (int kind = 0; kind < 4; kind++)
        at[kind] = find(list, of, (pst_pass_kind)kind, &num[kind]);
    const uint64_t backward = num[1] ? at[1] : at[2];
    if (num[0] != 1 || num[1] + num[2] > 1 || num[3] > 1)
        return false;
    if (num[1] + num[2] == 0)
        return is_forward_only;
    return at[0] < backward && (num[3] == 0 || (num[2] == 1 && at[2] < at[3]));
}

static bool is_schedule(const random_list *list)
{
    bool has_backward = false;
    for (uint64_t n = 0; n < list->num; n++)
        has_backward |= list->passes[n].kind != PST_PASS_FORWARD;
    for (uint64_t n = 0; n < list->num; n++) {
        const pst_pass *pass = &list->passes[n], *next = pass + 1;
        pst_pass before = *pass;
        uint64_t num = 0;
        if (!is_life(list, pass, !has_backward))
            return false;
        before.micro_batch--;
        if (pass->micro_batch > 0 && find(list, &before, PST_PASS_FORWARD, &num) == UINT64_MAX)
            return false;
        before = (pst_pass){.chunk = pass->chunk - 1};
        if (pass->chunk > 0 && find(list, &before, PST_PASS_FORWARD, &num) == UINT64_MAX)
            return false;
        if (pass->pairs && (n + 1 == list->num || next->pairs ||
                            (pass->kind == PST_PASS_FORWARD) == (next->kind == PST_PASS_FORWARD) ||
                            (pass->chunk == next->chunk && pass->micro_batch == next->micro_batch)))
            return false;
    }
    return true;
}

/* One pass is left out, doubled, changed, or two change places. */
static void spoil(random_list *list, uint64_t *seed)
{
    const uint64_t n = random_below(seed, list->num), other = random_below(seed, list->num);
    pst_pass *pass = &list->passes[n];
    const pst_pass was = *pass;
    switch (random_below(seed, 7)) {
    case 0:
        memmove(pass, pass + 1, (list->num - n - 1) * sizeof(*pass));
        list->num -= list->num > 1;
        break;
    case 1:
        *pass = list->passes[other];
        list->passes[other] = was;
        break;
    case 2:
        pass->kind = (pst_pass_kind)random_below(seed, 4);
        break;
    case 3:
        pass->micro_batch = (uint32_t)random_below(seed, 8);
        break;
    case 4:
        pass->chunk = (uint32_t)random_below(seed, 5);
        break;
    case 5:
        pass->pairs = !pass->pairs;
        break;
    default:
        *pass = list->passes[other];
    }
}

PST_TEST(Schedule, RandomLists)
{
    const uint32_t num_cases = psti_test_cases(10000);
    uint32_t num_good = 0, num_bad = 0;
    for (uint32_t i = 0; i < num_cases && !psti_test_failed(); i++) {
        uint64_t seed = i;
        random_list list;
        pst_schedule *schedule = NULL;
        make_random(&list, &seed);
        if (create_random(&list, &schedule) != PST_OK)
            CHECK_MSG(false, "seed %u: %s", i, pst_last_message());
        measure_again(schedule);
        pst_schedule_destroy(schedule);
        spoil(&list, &seed);
        const bool is_good = is_schedule(&list);
        const pst_status status = create_random(&list, &schedule);
        CHECK_MSG((status == PST_OK) == is_good && (is_good || status == PST_E_INVALID),
                  "seed %u: %s, spoilt: %d, %s", i, pst_status_name(status), is_good,
                  pst_last_message());
        if (is_good)
            pst_schedule_destroy(schedule);
        num_good += is_good;
        num_bad += !is_good;
        if (psti_test_failed())
            printf("seed %u\n", i);
    }
    CHECK(num_good > num_cases / 20 && num_bad > num_cases / 3);
}
