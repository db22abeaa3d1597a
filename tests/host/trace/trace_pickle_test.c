/* Pickles: each opcode that is read, and every one that is refused. */
#include "host/trace/trace.h"
#include "tests/host/trace/trace_scene.h"

#define PICKLE(text) text, sizeof(text) - 1

static pst_status parse(psti_pickle *pickle, const char *data, size_t num_bytes)
{
    *pickle =
        (psti_pickle){.name = "t", .bytes = (const unsigned char *)data, .num_bytes = num_bytes};
    return psti_pickle_parse(pickle);
}

/* A value as python would show it, texts in bars. */
static void show(const psti_pickle *pickle, psti_value value, char *out)
{
    const psti_pickle_type type = psti_pickle_type_of(value);
    uint64_t number = 0;
    out += strlen(out);
    if (type == PSTI_PICKLE_INT && !psti_pickle_u64(pickle, value, &number)) {
        strcpy(out, "out");
    } else if (type == PSTI_PICKLE_INT) {
        sprintf(out, "%llu", (unsigned long long)number);
    } else if (type == PSTI_PICKLE_TEXT) {
        const psti_field text = psti_pickle_text(pickle, value);
        sprintf(out, "|%.*s|", (int)text.length, text.text);
    } else if (type < PSTI_PICKLE_LIST) {
        strcpy(out, psti_pickle_type_name(type));
    } else {
        psti_cursor cursor = psti_pickle_first(pickle, value);
        psti_value item;
        strcpy(out, type == PSTI_PICKLE_LIST ? "[" : type == PSTI_PICKLE_TUPLE ? "(" : "{");
        while (psti_pickle_next(pickle, &cursor, &item)) {
            show(pickle, item, out);
            strcat(out, " ");
        }
        strcat(out, ".");
    }
}

static void holds(const char *data, size_t num_bytes, const char *expected)
{
    psti_pickle pickle;
    char shown[1024] = "";
    CHECK_OK(parse(&pickle, data, num_bytes));
    show(&pickle, pickle.root, shown);
    psti_pickle_close(&pickle);
    CHECK_STR(shown, expected);
}

PST_TEST(TracePickle, Values)
{
    holds(PICKLE("\x80\x02N."), "None");
    holds(PICKLE("\x80\x05\x95\x02\0\0\0\0\0\0\0\x88."), "a bool");
    holds(PICKLE("\x80\x03](K\xffM\xff\xffJ\xff\xff\xff\x7fJ\xff\xff\xff\xff"
                 "e."),
          "[255 65535 2147483647 out .");
    holds(PICKLE("\x80\x03](\x8a\x00\x8a\x01\x80\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"
                 "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00"
                 "\x8a\x09\0\0\0\0\0\0\0\0\x01\x8a\x03\x02\x01\x00"
                 "e."),
          "[0 out 9223372036854775807 18446744073709551615 out 258 .");
    holds(PICKLE("\x80\x04](\x8c\x02"
                 "ab"
                 "X\x01\0\0\0c\x8d\x01\0\0\0\0\0\0\0dG????????\x89"
                 "e."),
          "[|ab| |c| |d| a float a bool .");
    holds(PICKLE("\x80\x02(K\x01K\x02t."), "(1 2 .");
    holds(PICKLE("\x80\x02)\x85K\x01\x86K\x02K\x03\x87."), "((((. . 1 . 2 3 .");
}

PST_TEST(TracePickle, ContainersGrowInParts)
{
    holds(PICKLE("\x80\x02]K\x01"
                 "a(K\x02K\x03"
                 "e(eK\x04"
                 "a."),
          "[1 2 3 4 .");
    holds(PICKLE("\x80\x02}K\x01K\x02s(K\x03K\x04u."), "{1 2 3 4 .");
    holds(PICKLE("\x80\x02)\x85\x85."), "(((. . .");
    holds(PICKLE("\x80\x02K\x01K\x02K\x03\x87."), "(1 2 3 .");
    holds(PICKLE("\x80\x02(t."), "(.");
    /* shared through the memo, in both ways of writing it */
    holds(PICKLE("\x80\x02]q\x00(]q\x01(K\x07"
                 "eh\x01j\x01\0\0\0"
                 "e."),
          "[[7 . [7 . [7 . .");
    holds(PICKLE("\x80\x04]\x94(]\x94(K\x07"
                 "eh\x01"
                 "e."),
          "[[7 . [7 . .");
    holds(PICKLE("\x80\x02]q\x00(K\x01q\x01K\x02r\x01\0\0\0h\x01"
                 "e."),
          "[1 2 2 .");
}

PST_TEST(TracePickle, TheLastOfTwoKeys)
{
    psti_pickle pickle;
    uint64_t number = 0;
    CHECK_OK(parse(&pickle, PICKLE("\x80\x04}(\x8c\x01"
                                   "aK\x01K\x05K\x06\x8c\x01"
                                   "aK\x02u.")));
    CHECK(psti_pickle_u64(&pickle, psti_pickle_find(&pickle, pickle.root, "a"), &number));
    CHECK_EQ(number, 2);
    CHECK_EQ(psti_pickle_type_of(psti_pickle_find(&pickle, pickle.root, "b")), PSTI_PICKLE_NOTHING);
    psti_pickle_close(&pickle);
}

/* Fault rows 60, 61. */
PST_TEST(TracePickle, Refusals)
{
    static const struct {
        const char *data;
        size_t num_bytes;
        const char *message;
    } cases[] = {
        {PICKLE(""), "t: byte 0: the file ends within the pickle"},
        {PICKLE("N."), "t: byte 0: no pickle: allowed are protocols 2..5"},
        {PICKLE("\x80\x01N."), "t: byte 0: protocol 1: allowed is 2..5, at byte 0"},
        {PICKLE("\x80\x06N."), "t: byte 0: protocol 6"},
        {PICKLE("\x80\x02\x80\x02N."), "t: byte 2: protocol 2: allowed is 2..5, at byte 0"},
        {PICKLE("\x80\x02"
                "cos\nsystem\n."),
         "t: byte 2: opcode GLOBAL (0x63): allowed are those"},
        {PICKLE("\x80\x04\x8c\x02os\x8c\x06system\x93."), "t: byte 14: opcode STACK_GLOBAL (0x93)"},
        {PICKLE("\x80\x04)\x85R."), "t: byte 4: opcode REDUCE (0x52)"},
        {PICKLE("\x80\x02\x81."), "t: byte 2: opcode NEWOBJ (0x81)"},
        {PICKLE("\x80\x02\x82\x01."), "t: byte 2: opcode EXT1 (0x82)"},
        {PICKLE("\x80\x02Nb."), "t: byte 3: opcode BUILD (0x62)"},
        {PICKLE("\x80\x02NQ."), "t: byte 3: opcode BINPERSID (0x51)"},
        {PICKLE("\x80\x02P1\n."), "t: byte 2: opcode PERSID (0x50)"},
        {PICKLE("\x80\x02(i"), "t: byte 3: opcode INST (0x69)"},
        {PICKLE("\x80\x02\xff."), "t: byte 2: opcode unknown (0xff)"},
        {PICKLE("\x80\x02N"), "t: byte 3: the file ends within the pickle"},
        {PICKLE("\x80\x02N.x"), "t: byte 4: 1 bytes behind the end of the pickle"},
        {PICKLE("\x80\x02."), "t: byte 2: the end with 0 values and 0 marks: allowed is one value"},
        {PICKLE("\x80\x02NN."), "t: byte 4: the end with 2 values"},
        {PICKLE("\x80\x02N(."), "t: byte 4: the end with 1 values and 1 marks"},
        {PICKLE("\x80\x02J\x01\x01"), "t: byte 2: BININT of 4 bytes: the file has 2 more"},
        {PICKLE("\x80\x02X\xff\xff\xff\xff."), "t: byte 2: BINUNICODE of 4294967295 bytes: the"},
        {PICKLE("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff."),
         "t: byte 2: BINUNICODE8 of 18446744073709551615 bytes: the file has 1 more"},
        {PICKLE("\x80\x04\x95\x09\0\0\0\0\0\0\0N."), "t: byte 2: frame of 9 bytes: the file has 2"},
        {PICKLE("\x80\x02"
                "e."),
         "t: byte 2: needs a mark: there is none"},
        {PICKLE("\x80\x02N(Ne."), "t: byte 5: needs a list below the values"},
        {PICKLE("\x80\x02](}(Ne."), "t: byte 7: needs a list below the values"},
        {PICKLE("\x80\x02(Ne."), "t: byte 4: needs a list below the values"},
        {PICKLE("\x80\x02}(Nu."), "t: byte 5: a key without a value"},
        {PICKLE("\x80\x02Na."), "t: byte 3: needs 2 values: the stack has 1"},
        {PICKLE("\x80\x02](Na."), "t: byte 5: needs 2 values: the stack has 1"},
        {PICKLE("\x80\x02}NNa."), "t: byte 5: needs a list below the values"},
        {PICKLE("\x80\x02N\x86."), "t: byte 3: needs 2 values: the stack has 1"},
        {PICKLE("\x80\x02q\x00."), "t: byte 2: needs 1 values: the stack has 0"},
        {PICKLE("\x80\x02Nr\x01\0\0\0."), "t: byte 3: memo 1: allowed is 0..0"},
        {PICKLE("\x80\x02Nr\xff\xff\xff\xff."), "t: byte 3: memo 4294967295: allowed is 0..0"},
        {PICKLE("\x80\x02h\x00."), "t: byte 2: memo 0: nothing was put there"},
        {PICKLE("\x80\x02Nq\x00h\x01."), "t: byte 5: memo 1: nothing was put there"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        psti_pickle pickle;
        const pst_status status = parse(&pickle, cases[i].data, cases[i].num_bytes);
        psti_pickle_close(&pickle);
        CHECK_MSG(status == PST_E_INVALID, "case %zu: %s", i, cases[i].message);
        CHECK_MSG(strncmp(pst_last_message(), cases[i].message, strlen(cases[i].message)) == 0,
                  "\"%s\" is not \"%s\"", pst_last_message(), cases[i].message);
    }
}

static void repeats(char code, size_t times, const char *tail, pst_status expected)
{
    psti_pickle pickle;
    const size_t num_bytes = 2 + times + strlen(tail);
    char *data = malloc(num_bytes);
    data[0] = '\x80';
    data[1] = '\x02';
    memset(data + 2, code, times);
    memcpy(data + 2 + times, tail, num_bytes - 2 - times);
    const pst_status status = parse(&pickle, data, num_bytes);
    /* never more than the bound of trace.h, but for the last block */
    const uint64_t num_words = pickle.items.num_words + pickle.memo.num_words;
    psti_pickle_close(&pickle);
    free(data);
    CHECK_MSG(status == expected, "%c %zu times: %s", code, times, pst_status_name(status));
    CHECK(num_words <= 3 * num_bytes);
}

/* Fault rows 61. */
PST_TEST(TracePickle, BoundsOnNestingAndSize)
{
    repeats('(', 200, "t.", PST_E_INVALID); /* 199 marks are left */
    CHECK(strstr(pst_last_message(), "199 marks") != NULL);
    repeats('(', 201, "t.", PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "t: byte 202: nesting of more than 200") != NULL);
    repeats(']', 1 << 20, ".", PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "the end with 1048576 values") != NULL);
    repeats(']', (1 << 20) + 1, ".", PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "stack of 1048576 values: allowed are fewer") != NULL);
    repeats('N', 1, "\x85\x85\x85\x85\x85\x85\x85\x85\x85\x85\x85\x85.", PST_OK);
    repeats(')', 1, "\x94\x94\x94\x94\x94\x94\x94\x94\x94\x94.", PST_OK);
}

PST_TEST(TracePickle, SurvivesEveryFailedAllocation)
{
    for (int n = 0;; n++) {
        psti_pickle pickle;
        psti_fail_allocation_after(n);
        const pst_status status = parse(&pickle, PICKLE("\x80\x02]q\x00K\x01"
                                                        "a."));
        psti_pickle_close(&pickle);
        psti_fail_allocation_after(-1);
        if (status == PST_OK) {
            CHECK_EQ(n, 5);
            return;
        }
        CHECK_STATUS(status, PST_E_NOMEM);
    }
}
