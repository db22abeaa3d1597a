/* Which planned request a request is taken for: in order, and after each kind of deviation. */
#include "tests/host/arena/arena_scene.h"

/* Plays a word: a letter asks for the tensor whose size, in units of 512, is its place in the
 * alphabet, on stream 0; the same letter below frees the last of them; '.' begins an iteration.
 * Where each came to lie is written as its offset in units of 512, '-' for the fallback. */
static void play(arena_scene *self, const char *word, const char *wanted)
{
    void *live[26][8] = {{NULL}};
    int count[26] = {0};
    char said[256] = "";
    for (const char *at = word; *at; at++) {
        const size_t used = strlen(said);
        if (*at == '.') {
            CHECK_OK(pst_arena_iteration(self->arena));
            strcat(said, ".");
        } else if (*at >= 'A' && *at <= 'Z') {
            const int which = *at - 'A';
            const long long offset =
                ask(self, 512u * (size_t)(which + 1), 0, &live[which][count[which]++]);
            if (offset < 0)
                strcat(said, "-");
            else
                snprintf(said + used, sizeof(said) - used, "%s%lld",
                         used && said[used - 1] != '.' ? " " : "", offset / 512);
        } else {
            const int which = *at - 'a';
            CHECK_OK(pst_arena_free(self->arena, live[which][--count[which]], stream_at(0)));
        }
    }
    for (int i = 0; i < 26; i++)
        while (count[i])
            CHECK_OK(pst_arena_free(self->arena, live[i][--count[i]], stream_at(0)));
    if (wanted)
        CHECK_STR(said, wanted);
}

/* The plan of a word: every tensor with bytes of its own, none freed. */
static void open_word(arena_scene *self, const char *word)
{
    char text[4096] = "";
    unsigned long offset = 0;
    unsigned id = 0;
    for (const char *at = word; *at; at++) {
        const size_t used = strlen(text);
        if (*at == '.') {
            snprintf(text + used, sizeof(text) - used, "mark %u/", id++);
            continue;
        }
        const unsigned long units = (unsigned long)(*at - 'A' + 1);
        snprintf(text + used, sizeof(text) - used, "malloc %u %lu 0 %lu/", id++, units * 512,
                 offset * 512);
        offset += units;
    }
    scene_open(self, text);
}

typedef struct tale {
    const char *plan, *word, *wanted, *deviations;
} tale;

static void run_tale(const tale *self)
{
    arena_scene scene = {.memory = NULL};
    open_word(&scene, self->plan);
    play(&scene, self->word, self->wanted);
    check_deviations(&scene, self->deviations);
    scene_close(&scene);
}

#define RUN_TALES(tales)                                                           \
    do {                                                                           \
        for (size_t i = 0; i < sizeof(tales) / sizeof(*tales); i++) {              \
            run_tale(&(tales)[i]);                                                 \
            CHECK_MSG(!psti_test_failed(), "tale %zu: %s, %s", i, (tales)[i].plan, \
                      (tales)[i].word);                                            \
        }                                                                          \
    } while (0)

PST_TEST(ArenaFollow, InOrder)
{
    static const tale tales[] = {
        {"ABC", "ABC", "0 1 3", ""},
        {"ABC", ".ABC.", ".0 1 3.", ""},
        {".ABC", ".ABC.", ".0 1 3.", ""},
        {".ABC.", ".ABCabc.ABC", ".0 1 3.0 1 3", ""}, /* a last mark begins nothing */
        {".AB.CD", ".ABab.CDcd.ABab.CD", ".0 1.3 6.0 1.3 6", ""},
        /* what comes first is asked for once */
        {"Z.AB", "Z.ABab.AB", "0.26 27.26 27", ""},
        {"", ".A.A", ".-.-", "extra 2"},
        /* all that follows the last mark is of the iteration that was not recorded */
        {".AB.", ".AB.abAB", ".0 1.0 1", ""},
    };
    RUN_TALES(tales);
}

PST_TEST(ArenaFollow, ExtraRequestsLeaveThePositionAlone)
{
    static const tale tales[] = {
        {".ABC", ".AXBC", ".0- 1 3", "size 1"},
        {".ABC", ".XYZWABC", ".---- 0 1 3", "size 4"},
        {".ABC", ".ABCA", ".0 1 3-", "extra 1"},
        {".ABCABC", ".AXBXCXAXBXCX", ".0- 1- 3- 6- 7- 9-", "size 5 extra 1"},
    };
    RUN_TALES(tales);
}

PST_TEST(ArenaFollow, MissingRequestsAreSkippedWhereThatIsClear)
{
    static const tale tales[] = {
        {".ABCDE", ".ABDE", ".0 1 6 10", "order 1"},
        {".ABCDE", ".ABDE.", ".0 1 6 10.", "order 1 missing 1"},
        {".ABCDE", ".AE", ".0 10", "order 1"},
        {".ABCDE", ".E", ".10", "order 1"},
        {".ABCDE", ".ABCD.", ".0 1 3 6.", "missing 1"},
        {".ABCDE", "..", "..", "missing 5"},
        /* C is at two places: it takes one more request to know */
        {".ABCDBCDE", ".ACDBCDE", ".0- 6 10 12 15 19", "size 1 order 1"},
        /* two that fit at two places: the nearer */
        {".ABCDABCD", ".ACDA", ".0- 6 10", "size 1 order 1"},
    };
    RUN_TALES(tales);
}

PST_TEST(ArenaFollow, AnotherSizeStandsForThePlanned)
{
    static const tale tales[] = {
        {".ABCDE", ".AXCDE", ".0- 3 6 10", "size 1"},
        /* though C and D are at two places each */
        {".ABCDCDE", ".AXCDCDE", ".0- 3 6 10 13 17", "size 1"},
        {".ABBCBC", ".AXBCBC", ".0- 1 5 8 10", "size 1 order 1"},
        {".AABBCC", ".XYBBCC", ".-- 2 4 6 9", "size 2"},
    };
    RUN_TALES(tales);
}

PST_TEST(ArenaFollow, ARequestThatComesLateGetsItsOwn)
{
    static const tale tales[] = {
        {".ABC", ".BAC.", ".1 0 3.", "order 2"},
        {".ABC", ".CAB.", ".3 0 1.", "order 3"},
        {".ABCD", ".ADCB.", ".0 6 3 1.", "order 3"},
        /* only once */
        {".ABCD", ".BAA", ".1 0-", "size 1 order 2"},
        /* and in its iteration */
        {".ABCD", ".ABD.C", ".0 1 6.3", "order 2 missing 1"},
    };
    RUN_TALES(tales);
}

PST_TEST(ArenaFollow, LooksNoFurtherThanItIsTold)
{
    static const uint32_t reaches[] = {1, 64, 100};
    for (int i = 0; i < 6; i++) {
        const uint32_t reach = reaches[i / 2];
        const uint32_t distance = reach + (uint32_t)(i % 2);
        arena_scene scene;
        void *address = NULL;
        char word[128] = ".";
        scene_begin(&scene);
        scene.config.lookahead = reach == 64 ? 0 : reach; /* the default */
        memset(word + 1, 'A', distance);
        word[1 + distance] = 'Z';
        open_word(&scene, word);
        CHECK_EQ(ask(&scene, 26 * 512, 0, &address), i % 2 ? FALLBACK : (int)distance * 512);
        CHECK_OK(pst_arena_free(scene.arena, address, stream_at(0)));
        scene_close(&scene);
    }
}

PST_TEST(ArenaFollow, SizesAreComparedRoundedUp)
{
    scene_play("malloc 1 500 0 0/malloc 2 500 0 512/malloc 3 513 0 1024",
               "a1=0 b512=512 c512=- {size 1} -a -b -c");
}

/* Fault rows 59. */
PST_TEST(ArenaFollow, TheFirstDeviationIsKeptInWords)
{
    static const struct {
        const char *plan, *word, *said;
    } tales[] = {
        {".ABC", ".AX",
         "size: iteration 1, request 2: expected tensor 2 of 1024 bytes on stream 0, "
         "got 12288 bytes on stream 0"},
        {".ABC", ".ABCabc.ABCC",
         "extra: iteration 2, request 4: expected nothing, got 1536 bytes on "
         "stream 0"},
        {".ABC", ".AC",
         "order: iteration 1, request 2: expected tensor 2 of 1024 bytes on stream 0, "
         "got 1536 bytes on stream 0"},
        {".ABC", ".A.X", "missing: iteration 1, request 1: at tensor 2 of 1024 bytes on stream 0"},
        {".A", ".A.AX",
         "blocked: iteration 2, request 1: expected tensor 1 of 512 bytes on stream "
         "0, got 512 bytes on stream 0"},
        {".A", "X",
         "size: iteration 0, request 1: expected tensor 1 of 512 bytes on stream 0, got "
         "12288 bytes on a stream of its own"},
    };
    for (size_t i = 0; i < sizeof(tales) / sizeof(*tales); i++) {
        arena_scene scene = {.memory = NULL};
        open_word(&scene, tales[i].plan);
        play(&scene, tales[i].word, NULL);
        CHECK_STR(scene_stats(&scene).first_deviation, tales[i].said);
        scene_close(&scene);
    }
}
