/* What the backward computes anew, and what has to be sent again for it. */
#include "tests/host/estimate/estimate_models.h"

static const pst_estimate_op *find(const pst_estimate_traffic *traffic, const char *name)
{
    static const pst_estimate_op none = {.name = "none"};
    for (uint32_t i = 0; i < traffic->num_ops; i++)
        if (strcmp(traffic->ops[i].name, name) == 0)
            return &traffic->ops[i];
    return &none;
}

/* Scores that the backward computes again need keys and values once more, and no more of what else
 * there is. */
PST_TEST(EstimateAgain, ScoresAgainGoAroundTheRing)
{
    pst_estimate_config config = psti_estimate_run(3);
    pst_estimate_traffic kept, again;
    CHECK_OK(pst_estimate_get_traffic(&config, 0, &kept));
    config.recompute |= PST_RECOMPUTE_ATTENTION;
    CHECK_OK(pst_estimate_get_traffic(&config, 0, &again));
    CHECK_EQ(again.num_ops, kept.num_ops);
    for (uint32_t i = 0; i < kept.num_ops; i++) {
        const uint64_t times = strcmp(kept.ops[i].name, "cp.ring.fwd") == 0 ? 2 : 1;
        CHECK_EQ(again.ops[i].wire_bytes, times * kept.ops[i].wire_bytes);
        CHECK_EQ(again.ops[i].count, times * kept.ops[i].count);
    }
}

/* A gathered input that is the output of a norm computed anew is no longer there. */
PST_TEST(EstimateAgain, NormsAgainAreGatheredAgain)
{
    pst_estimate_config config = psti_estimate_run(4), moe = psti_estimate_run(9);
    pst_estimate_traffic traffic;
    config.recompute = PST_RECOMPUTE_NORM;
    CHECK_OK(pst_estimate_get_traffic(&config, 1, &traffic));
    CHECK_EQ(find(&traffic, "tp.ag")->count, 1920);
    config.recompute |= PST_RECOMPUTE_GATHER;
    CHECK_OK(pst_estimate_get_traffic(&config, 1, &traffic));
    CHECK_EQ(find(&traffic, "tp.ag")->count, 1920);
    moe.recompute = PST_RECOMPUTE_NORM; /* attention alone: a router gathers nothing */
    moe.shared_ffn_size = 1024;
    CHECK_OK(pst_estimate_get_traffic(&moe, 1, &traffic));
    CHECK_EQ(find(&traffic, "tp.ag")->count, 8 * 32 * (2 + 1 + 2));
    moe.kv_rank = moe.qk_size = moe.v_size = 128;
    CHECK_OK(pst_estimate_get_traffic(&moe, 1, &traffic));
    CHECK_EQ(find(&traffic, "tp.ag")->count, 8 * 32 * (2 + 1 + 2)); /* queries keep none */
    moe.q_rank = 64;
    CHECK_OK(pst_estimate_get_traffic(&moe, 1, &traffic));
    CHECK_EQ(find(&traffic, "tp.ag")->count, 8 * 32 * (1 + 2)); /* latents are kept */
    CHECK_EQ(find(&traffic, "tp.ag.latent")->count, 8 * 32);
}

/* Of 11,008 columns twice: the backward of the activation function reads them in bf16. */
PST_TEST(EstimateAgain, SavedInFp8IsWidened)
{
    pst_estimate_config config = psti_estimate_run(2);
    pst_estimate_memory wide, narrow;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &wide));
    config.saves_inputs_fp8 = true;
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &narrow));
    CHECK_STR(wide.transient, "MLP backward");
    CHECK_STR(narrow.transient, "MLP backward");
    const uint64_t columns = 2ull * 11008 / 2, tokens = 8192;
    CHECK_EQ(narrow.transient_bytes - wide.transient_bytes, 2 * tokens * columns);
    CHECK_EQ(wide.saved_bytes - narrow.saved_bytes, 2 * 16 * tokens * columns);
}
