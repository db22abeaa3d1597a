/* What a policy refuses. */
#include <string.h>

#include "tests/harness.h"
#include "tests/host/policy/policy_scene.h"

PST_TEST(PolicyRefusal, RefusesWhatIsNotAllowed)
{
    policy_scene *scene = scene_open(1, 0, 1, 1, 2);
    pst_policy_config *config = &scene->config;
    pst_policy policy;
    pst_layer_choice choices[2];
    static const struct pages {
        uint64_t bytes[2];
        const char *said;
    } pages[] = {
        {{32768, 16384}, "page_bytes[1] 16384"},     {{32768, 32768}, "page_bytes[1] 32768"},
        {{8192, 16384}, "page_bytes[0] 8192"},       {{16384, 24576}, "page_bytes[1] 24576"},
        {{16384, 8388608}, "page_bytes[1] 8388608"},
    };
    const uint64_t too_many = (UINT64_C(1) << 61) + 1;
    pst_policy_layer allowed[2] = {PST_POLICY_LAYER_INIT, PST_POLICY_LAYER_INIT};
    const pst_policy_layer *of_stage[] = {allowed};
#define REFUSES(field, value, text)                                                        \
    do {                                                                                   \
        const pst_policy_config before = *config;                                          \
        config->field = value;                                                             \
        CHECK_STATUS(pst_policy_solve(config, &policy, choices, NULL), PST_E_INVALID);     \
        CHECK_MSG(strstr(pst_last_message(), text) != NULL, "\"%s\"", pst_last_message()); \
        *config = before;                                                                  \
    } while (0)
    REFUSES(simulation, NULL, "simulation is NULL");
    REFUSES(share_den, 65, "share_den 65");
    REFUSES(objective, (pst_policy_objective)2, "objective 2");
    REFUSES(sets, (pst_policy_sets)2, "sets 2");
    REFUSES(given, 64, "given 0x40");
    REFUSES(max_sets, 9, "max_sets 9");
    REFUSES(quantile_per_mille, 1001, "quantile_per_mille 1001");
    REFUSES(set_bytes, UINT64_C(1) << 62, "set_bytes");
    REFUSES(reserve_bytes, too_many, "reserve_bytes 2305843009213693953: allowed are up to 2^61");
    REFUSES(static_bytes, &too_many, "stage 0: static_bytes 2305843009213693953");
    REFUSES(num_routings, 1, "routings is NULL");
    REFUSES(num_page_bytes, 2, "num_page_bytes 2");
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        config->page_bytes = pages[i].bytes;
        REFUSES(num_page_bytes, 2, pages[i].said);
    }
    config->page_bytes = NULL;
    config->layers = of_stage;
    allowed[1].treatments = 16;
    REFUSES(share_den, 8, "stage 0, layer 1: treatments 0x10");
    allowed[1].treatments = 1u << PST_KEEP_SWAPPED;
    REFUSES(share_den, 8, "stage 0, layer 1: SWAPPED wants");
    allowed[1].token_bytes = 1;
    allowed[1].num_tokens = 65;
    allowed[1].block_tokens = 66;
    REFUSES(share_den, 8, "stage 0, layer 1: SWAPPED wants");
    allowed[1].block_tokens = 1;
    REFUSES(share_den, 8, "stage 0, layer 1: block_tokens 1 of 65: allowed are up to 64 blocks");
    allowed[1] = (pst_policy_layer)PST_POLICY_LAYER_INIT;
    allowed[1].whole_bytes = too_many;
    REFUSES(share_den, 8, "stage 0, layer 1: whole_bytes, token_bytes and num_tokens");
    allowed[1].whole_bytes = 0;
    allowed[1].planned_bytes = too_many;
    REFUSES(share_den, 8, "stage 0, layer 1: whole_bytes, token_bytes and num_tokens");
    allowed[1].planned_bytes = 1;
    REFUSES(share_den, 8, "stage 0: planned_bytes of its layers are 1, static_bytes 0");
    config->layers = NULL;
    scene->simulation.num_streams = 3;
    REFUSES(share_den, 8, "num_streams 3");
    CHECK_STATUS(pst_policy_solve(NULL, &policy, choices, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_policy_solve(config, &policy, NULL, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_policy_solve(config, NULL, choices, NULL), PST_E_INVALID);
    scene_close(scene);
}
