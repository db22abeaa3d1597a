/* How far tokens spread: whether one has an expert among those of a GPU or of a node. */
#include "host/estimate/estimate.h"

/* Chances are multiples of 2^-40, rounded down, so that a product with a number of experts fits 64 bits. */
#define CERTAIN ((int64_t)1 << 40)

/* That of so many distinct ones of all, each as likely, none is among those that are taken. */
static int64_t chance_of_none(uint64_t all, uint64_t taken, uint64_t num_chosen)
{
    int64_t chance = CERTAIN;
    if (all - taken < num_chosen)
        return 0;
    for (uint64_t i = 0; i < num_chosen; i++)
        chance = chance * (int64_t)(all - taken - i) / (int64_t)(all - i);
    return chance;
}

/* A token's groups, and its experts among theirs. */
typedef struct router {
    uint64_t num_groups, num_chosen, group_size, per_token;
} router;

static router router_of(const pst_estimate_config *config)
{
    const bool is_limited = config->router_group_topk != 0;
    router of = {.num_groups = is_limited ? config->router_groups : 1,
                 .num_chosen = is_limited ? config->router_group_topk : 1,
                 .per_token = config->experts_per_token};
    of.group_size = config->num_experts / of.num_groups;
    return of;
}

static int64_t chance_without(const router *self, uint64_t taken)
{
    return chance_of_none(self->num_chosen * self->group_size, taken, self->per_token);
}

/* That all of the chosen groups have some of the token's experts, which are as many or more: by inclusion and
 * exclusion of those that have none. Above 0. */
static int64_t chance_of_all(const router *self)
{
    int64_t sum = CERTAIN, ways = 1; /* of i groups, with its sign */
    for (uint64_t i = 1; i <= self->num_chosen; i++) {
        ways = -ways * (int64_t)(self->num_chosen - i + 1) / (int64_t)i;
        sum += ways * chance_without(self, i * self->group_size);
    }
    return sum > 1 ? sum : 1;
}

/* The same, and that none is among so many of one of these groups. */
static int64_t chance_of_all_without(const router *self, uint64_t taken)
{
    const uint64_t others = self->num_chosen - 1;
    int64_t sum = 0, ways = 1;
    for (uint64_t i = 0; i <= others; i++) {
        sum += ways * (chance_without(self, i * self->group_size + taken) -
                       chance_without(self, (i + 1) * self->group_size));
        ways = -ways * (int64_t)(others - i) / (int64_t)(i + 1);
    }
    return sum;
}

/* Of experts that begin with a group: whole groups, of which none may be chosen, and a part of one more, which is
 * not chosen, or has the token's experts elsewhere. */
static int64_t chance_of_missing(const router *self, uint64_t experts)
{
    const uint64_t whole = experts / self->group_size, rest = experts % self->group_size;
    const int64_t no_whole = chance_of_none(self->num_groups, whole, self->num_chosen);
    if (rest == 0)
        return no_whole;
    const int64_t none = chance_of_none(self->num_groups, whole + 1, self->num_chosen);
    return none + (int64_t)psti_fraction((uint64_t)(no_whole - none),
                                         (uint64_t)chance_of_all_without(self, rest),
                                         (uint64_t)chance_of_all(self));
}

uint64_t psti_dispatched(const pst_estimate_config *config, uint64_t experts, uint64_t times)
{
    const router of = router_of(config);
    const uint64_t chance = (uint64_t)(CERTAIN - chance_of_missing(&of, experts));
    return psti_fraction(times, chance, (uint64_t)CERTAIN);
}

uint64_t psti_dispatch_group(const psti_split *split)
{
    return psti_times(split->experts, split->expert_tensor);
}
