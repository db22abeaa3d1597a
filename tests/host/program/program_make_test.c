/* Making programs: what is refused, memory that runs out, bytes, and what stays in place. */
#include "tests/host/program/program_scene.h"

/* Every kind with several ranks, in all forms of sets. */
static void expect_kind(const pst_schedule_config *kind, uint32_t layers, uint32_t way)
{
    static scene s;
    CHECK_OK(scene_open(&s, kind, layers, 2, 2));
    psti_program_config *config = &s.config;
    config->num_streams = way % 3 == 2 ? 4 : way % 3 + 1;
    config->keeps_nothing = way == 3;
    config->by_slot = way == 4 || way == 5;
    config->one_ring = way == 6;
    config->ahead = way == 7 ? 1 : 0;
    config->num_sources = way == 6 || way == 7 ? 4 : 2;
    for (uint32_t l = 0; way == 8 && l < SCENE_LAYERS; l++) {
        s.layers[l].num_parts = 2;
        s.layers[l].uses[1] = PST_USE_WEIGHT;
        s.layers[l].demotes = l % 3 == 0;
        s.layers[l].holds = l % 3 == 1;
    }
    for (uint32_t l = 0; way == 9 && l < SCENE_LAYERS; l++)
        s.layers[l].keep = (uint8_t)(l % 4);
    const pst_status status = psti_program_make(config, &s.program);
    if (status != PST_OK) { /* pairs know no ring and no swaps */
        CHECK(status == PST_E_INVALID && (way == 6 || way == 9));
        CHECK(kind->kind == PST_SCHEDULE_DUALPIPE || kind->kind == PST_SCHEDULE_DUALPIPE_V);
    } else {
        CHECK_MSG(psti_program_check(config, s.program) == PST_OK, "kind %d, rank %u, way %u: %s",
                  (int)kind->kind, kind->stage, way, pst_last_message());
        CHECK(s.program->num_visits == 0 || s.program->num_stashed > 0 || s.program->num_kept > 0);
    }
    scene_close(&s);
}

PST_TEST(ProgramMake, EveryKindIsRight)
{
    static const uint32_t micro_batches[] = {1, 3, 8, 16};
    for (uint32_t kind = 0; kind < PST_SCHEDULE_LIST; kind++)
        for (uint32_t p = 1; p <= 4; p++)
            for (uint32_t i = 0; i < 4; i++)
                for (uint32_t way = 0; way < 10; way++) {
                    const uint32_t rank = (kind + i + way) % p;
                    const pst_schedule_config config =
                        scene_kind((pst_schedule_kind)kind, p, rank, micro_batches[i]);
                    pst_schedule *schedule = NULL;
                    if (pst_schedule_create(&config, &schedule) != PST_OK)
                        continue; /* what this kind does not have */
                    pst_schedule_destroy(schedule);
                    expect_kind(&config, 1 + (way + i) % 4, way);
                }
}

static scene *three_layers(void)
{
    static scene s;
    const pst_schedule_config kind = scene_kind(PST_SCHEDULE_1F1B, 4, 1, 8);
    return scene_open(&s, &kind, 3, 2, 2) == PST_OK ? &s : NULL;
}

PST_TEST(ProgramMake, NoMemory)
{
    scene *s = three_layers();
    CHECK(s);
    for (uint32_t l = 0; l < 3; l++)
        s->layers[l].keep = (uint8_t)(l % 2);
    for (uint32_t way = 0; way < 3; way++) {
        s->config.by_slot = way > 0;
        s->config.forward_alias = way == 2 ? s->forward_alias : NULL;
        s->config.backward_alias = way == 2 ? s->backward_alias : NULL;
        pst_status status = PST_E_NOMEM;
        long tries = 0;
        for (; status == PST_E_NOMEM; tries++) {
            psti_fail_allocation_after(tries);
            status = psti_program_make(&s->config, &s->program);
            psti_fail_allocation_after(-1);
            CHECK(status == PST_OK || s->program == NULL);
        }
        CHECK_STATUS(status, PST_OK);
        CHECK(tries > 10);
        status = PST_E_NOMEM;
        for (tries = 0; status == PST_E_NOMEM; tries++) {
            psti_fail_allocation_after(tries);
            status = psti_program_check(&s->config, s->program);
            psti_fail_allocation_after(-1);
        }
        CHECK_STATUS(status, PST_OK);
        CHECK(tries > 4);
        psti_program_free(s->program);
        s->program = NULL;
    }
    scene_close(s);
}

/* A visit of a large model costs few bytes. */
PST_TEST(ProgramMake, Bytes)
{
    static scene s;
    static const uint32_t streams[] = {1, 2, 4};
    const pst_schedule_config kind = scene_kind(PST_SCHEDULE_1F1B, 16, 0, 512);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(scene_open(&s, &kind, 61, 2, 2));
        s.config.num_streams = streams[i];
        CHECK_OK(psti_program_make(&s.config, &s.program));
        CHECK_EQ(s.program->num_visits, 2 * 512 * 61);
        CHECK_MSG(s.program->bytes <= 150 * (uint64_t)s.program->num_visits,
                  "%u streams: %llu bytes for %u visits", streams[i],
                  (unsigned long long)s.program->bytes, s.program->num_visits);
        scene_close(&s);
    }
}

/* Of one micro-batch after the other the last layers stay, as many as there are sources. */
PST_TEST(ProgramMake, LastLayersStay)
{
    static scene s;
    const pst_schedule_config kind = scene_kind(PST_SCHEDULE_1F1B, 1, 0, 3);
    for (uint32_t sources = 1; sources <= 4; sources++) {
        CHECK_OK(scene_open(&s, &kind, 4, sources, 2));
        CHECK_OK(psti_program_make(&s.config, &s.program));
        CHECK_EQ(s.program->num_kept, 3 * sources);
        for (uint32_t v = 0; v < s.program->num_visits; v++)
            CHECK_EQ(s.program->visits[v].in_place, s.program->visits[v].layer + sources >= 4);
        scene_close(&s);
    }
}

/* One ring serves both directions: as many layers stay as sets are left. */
/* What a GLU alone stashes is nothing for side streams, and a weight pass that reads pages holds no set. */
PST_TEST(ProgramMake, PagesOfGLUs)
{
    static scene s;
    const pst_schedule_config kind = scene_kind(PST_SCHEDULE_ZB_H1, 4, 0, 8);
    for (uint32_t parts = 1; parts <= 2; parts++) {
        CHECK_OK(scene_open(&s, &kind, 3, 2, PST_MAX_SETS));
        for (uint32_t l = 0; l < SCENE_LAYERS; l++) {
            s.layers[l].num_parts = (uint8_t)parts;
            s.layers[l].glus = 1;
            s.layers[l].uses[1] = PST_USE_BACKWARD;
            s.layers[l].holds = true;
        }
        CHECK_OK(psti_program_make(&s.config, &s.program));
        CHECK_OK(psti_program_check(&s.config, s.program));
        CHECK_EQ(s.program->num_restored, parts == 1 ? 0 : s.program->num_stashed);
        for (uint32_t v = 0; v < s.program->num_visits; v++)
            CHECK(!s.program->visits[v].is_held);
        for (uint32_t n = 0; n < s.program->num_operations; n++)
            CHECK(parts == 2 || s.program->operations[n].act >= PSTI_ACT_GLU_STASH);
        scene_close(&s);
    }
}

PST_TEST(ProgramMake, OneRing)
{
    static scene s;
    const pst_schedule_config kind = scene_kind(PST_SCHEDULE_1F1B, 1, 0, 1);
    CHECK_OK(scene_open(&s, &kind, 6, 4, 0));
    s.config.one_ring = true;
    CHECK_OK(psti_program_make(&s.config, &s.program));
    CHECK_OK(psti_program_check(&s.config, s.program));
    CHECK(s.program->num_kept >= 3);
    scene_close(&s);
}

PST_TEST(ProgramMake, Refusals)
{
    scene *s = three_layers();
    CHECK(s);
    const uint32_t few[] = {1};
    psti_program_config config = s->config;
    config.num_slots = few;
    CHECK_STATUS(psti_program_make(&config, &s->program), PST_E_INVALID);
    CHECK_SAID("chunk 0: the schedule wants 3 slots, there are 1");
    config = s->config;
    s->layers[1].demotes = true;
    CHECK_STATUS(psti_program_make(&config, &s->program), PST_E_INVALID);
    CHECK_SAID("chunk 0, layer 1: policy.move is DEMOTE with 1 side stream: it takes 2 or 4");
    s->layers[1].demotes = false;
    config.rule = PST_RESTORE_NEXT;
    config.num_streams = 2;
    CHECK_STATUS(psti_program_make(&config, &s->program), PST_E_INVALID);
    CHECK_SAID("the rule NEXT knows one side stream");
    config = s->config;
    config.by_slot = config.one_ring = true;
    CHECK_STATUS(psti_program_make(&config, &s->program), PST_E_INVALID);
    CHECK_SAID("one_ring, with sets that belong to slots");
    CHECK(s->program == NULL);
    scene_close(s);
}

/* Nothing is kept in a schedule without backwards, and nothing enqueued; nor for an empty chunk. */
PST_TEST(ProgramMake, NothingToDo)
{
    static scene s;
    pst_pass passes[8];
    pst_schedule_config list = PST_SCHEDULE_CONFIG_INIT;
    list.kind = PST_SCHEDULE_LIST;
    list.passes = passes;
    list.num_passes = scene_parse("F0.0 F0.1 F0.2", passes, 8);
    CHECK_OK(scene_open(&s, &list, 3, 1, 1));
    CHECK_OK(psti_program_make(&s.config, &s.program));
    CHECK_OK(psti_program_check(&s.config, s.program));
    CHECK(s.program->num_visits == 9 && s.program->num_operations == 0);
    scene_close(&s);
    list.num_passes = scene_parse("F0.0 F1.0 B1.0 B0.0", passes, 8);
    CHECK_OK(scene_open(&s, &list, 2, 1, 1));
    s.num_layers[1] = 0;
    CHECK_OK(psti_program_make(&s.config, &s.program));
    CHECK_OK(psti_program_check(&s.config, s.program));
    CHECK_EQ(s.program->num_visits, 4);
    CHECK(s.program->num_kept == 1 && s.program->num_stashed == 1);
    scene_close(&s);
}
