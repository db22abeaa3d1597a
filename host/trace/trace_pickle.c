/* Reads what python's pickle writes, as far as snapshots of PyTorch need it. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "host/trace/trace.h"

enum {
    MAX_MARKS = 200,     /* containers within each other while they are written */
    MAX_STACK = 1 << 20, /* python writes containers in batches of 1000 */
    MIN_PROTOCOL = 2,
    MAX_PROTOCOL = 5,
};

typedef struct machine {
    psti_pickle *pickle;
    uint64_t at, next; /* of the opcode in work, and behind it and what belongs to it */
    psti_value *stack;
    uint64_t num, capacity;
    uint64_t marks[MAX_MARKS];
    uint32_t num_marks;
    bool is_over;
} machine;

/* What an opcode does. A number of so many bytes follows it and, where has_payload, as many bytes
 * more as the number says. */
typedef struct opcode {
    const char *name;
    pst_status (*run)(machine *self, uint32_t argument, uint64_t number); /* NULL: refused */
    uint8_t number_bytes;
    bool has_payload;
    uint8_t argument; /* a type, or how many items */
} opcode;

#define BAD(self, ...) bad(self, __LINE__, __VA_ARGS__)

__attribute__((format(printf, 3, 4))) static pst_status bad(const machine *self, int source_line,
                                                            const char *format, ...)
{
    char text[320];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    return psti_fail(PST_E_INVALID, __FILE__, source_line, "%.200s: byte %" PRIu64 ": %s",
                     self->pickle->name, self->at, text);
}

static pst_status push(machine *self, uint32_t type, uint64_t place)
{
    if (self->num == MAX_STACK)
        return BAD(self, "stack of %d values: allowed are fewer", MAX_STACK);
    PSTI_TRY(
        psti_grow((void **)&self->stack, &self->capacity, self->num + 1, sizeof(*self->stack)));
    self->stack[self->num++] = (psti_value)type << PSTI_PICKLE_TYPE_SHIFT | place;
    return PST_OK;
}

static uint64_t bottom(const machine *self)
{
    return self->num_marks > 0 ? self->marks[self->num_marks - 1] : 0;
}

static pst_status need(const machine *self, uint64_t num_values)
{
    if (self->num - bottom(self) < num_values)
        return BAD(self, "needs %" PRIu64 " values: the stack has %" PRIu64, num_values,
                   self->num - bottom(self));
    return PST_OK;
}

/* Takes the last mark away and says where it was. */
static pst_status pop_mark(machine *self, uint64_t *bottom_out)
{
    if (self->num_marks == 0)
        return BAD(self, "needs a mark: there is none");
    *bottom_out = self->marks[--self->num_marks];
    return PST_OK;
}

static pst_status run_proto(machine *self, uint32_t argument, uint64_t number)
{
    (void)argument;
    if (self->at != 0 || number < MIN_PROTOCOL || number > MAX_PROTOCOL)
        return BAD(self, "protocol %" PRIu64 ": allowed is %d..%d, at byte 0", number, MIN_PROTOCOL,
                   MAX_PROTOCOL);
    return PST_OK;
}

static pst_status run_frame(machine *self, uint32_t argument, uint64_t number)
{
    (void)argument;
    if (number > self->pickle->num_bytes - self->next)
        return BAD(self, "frame of %" PRIu64 " bytes: the file has %" PRIu64 " more", number,
                   self->pickle->num_bytes - self->next);
    return PST_OK;
}

static pst_status run_scalar(machine *self, uint32_t type, uint64_t number)
{
    (void)number;
    return push(self, type, self->at);
}

static pst_status run_empty(machine *self, uint32_t type, uint64_t number)
{
    uint64_t place = 0;
    (void)number;
    if (type != PSTI_PICKLE_TUPLE)
        PSTI_TRY(psti_words_take(&self->pickle->items, 2, &place));
    return push(self, type, place);
}

static pst_status run_mark(machine *self, uint32_t argument, uint64_t number)
{
    (void)argument;
    (void)number;
    if (self->num_marks == MAX_MARKS)
        return BAD(self, "nesting of more than %d: allowed is less", MAX_MARKS);
    self->marks[self->num_marks++] = self->num;
    return PST_OK;
}

/* Moves the values from stack[from] on into the container below them. */
static pst_status gather(machine *self, uint64_t from, psti_pickle_type type)
{
    const uint64_t num_values = self->num - from;
    if (from <= bottom(self) || psti_pickle_type_of(self->stack[from - 1]) != type)
        return BAD(self, "needs %s below the values", psti_pickle_type_name(type));
    if (type == PSTI_PICKLE_DICT && num_values % 2 != 0)
        return BAD(self, "a key without a value");
    PSTI_TRY(psti_pickle_add(self->pickle, self->stack[from - 1], self->stack + from, num_values));
    self->num = from;
    return PST_OK;
}

/* APPEND and SETITEM: `num_values` values. */
static pst_status run_add(machine *self, uint32_t num_values, uint64_t number)
{
    (void)number;
    PSTI_TRY(need(self, num_values + 1));
    return gather(self, self->num - num_values,
                  num_values == 1 ? PSTI_PICKLE_LIST : PSTI_PICKLE_DICT);
}

/* APPENDS and SETITEMS: what stands above the mark. */
static pst_status run_add_all(machine *self, uint32_t type, uint64_t number)
{
    uint64_t from = 0;
    (void)number;
    PSTI_TRY(pop_mark(self, &from));
    return gather(self, from, (psti_pickle_type)type);
}

/* A tuple never grows: its value names its only chunk. */
static pst_status make_tuple(machine *self, uint64_t from)
{
    const psti_value *values = self->num > from ? self->stack + from : NULL;
    uint64_t chunk = 0;
    PSTI_TRY(psti_pickle_chunk(self->pickle, values, self->num - from, &chunk));
    self->num = from;
    return push(self, PSTI_PICKLE_TUPLE, chunk);
}

static pst_status run_tuple(machine *self, uint32_t argument, uint64_t number)
{
    uint64_t from = 0;
    (void)argument;
    (void)number;
    PSTI_TRY(pop_mark(self, &from));
    return make_tuple(self, from);
}

static pst_status run_short_tuple(machine *self, uint32_t num_values, uint64_t number)
{
    (void)number;
    PSTI_TRY(need(self, num_values));
    return make_tuple(self, self->num - num_values);
}

/* Python numbers its memo 0, 1, ...; any other number could ask for any memory. */
static pst_status run_put(machine *self, uint32_t argument, uint64_t number)
{
    psti_words *memo = &self->pickle->memo;
    const uint64_t known = memo->num_words > 0 ? memo->num_words - 1 : 0;
    uint64_t index = number + 1;
    const bool is_next = argument == 0 || number == known; /* MEMOIZE has no number */
    PSTI_TRY(need(self, 1));
    if (!is_next && number > known)
        return BAD(self, "memo %" PRIu64 ": allowed is 0..%" PRIu64, number, known);
    if (is_next)
        PSTI_TRY(psti_words_take(memo, 1, &index));
    *psti_words_at(memo, index) = self->stack[self->num - 1];
    return PST_OK;
}

static pst_status run_get(machine *self, uint32_t argument, uint64_t number)
{
    const psti_words *memo = &self->pickle->memo;
    (void)argument;
    if (memo->num_words == 0 || number >= memo->num_words - 1)
        return BAD(self, "memo %" PRIu64 ": nothing was put there", number);
    const psti_value value = *psti_words_at(memo, number + 1);
    return push(self, 0, value); /* its type is in it */
}

static pst_status run_stop(machine *self, uint32_t argument, uint64_t number)
{
    (void)argument;
    (void)number;
    if (self->num != 1 || self->num_marks != 0)
        return BAD(self, "the end with %" PRIu64 " values and %u marks: allowed is one value",
                   self->num, self->num_marks);
    self->pickle->root = self->stack[0];
    self->is_over = true;
    return PST_OK;
}

static const opcode opcodes[256] = {
    [0x80] = {"PROTO", run_proto, 1, false, 0},
    [0x95] = {"FRAME", run_frame, 8, false, 0},
    ['.'] = {"STOP", run_stop, 0, false, 0},
    ['('] = {"MARK", run_mark, 0, false, 0},
    ['N'] = {"NONE", run_scalar, 0, false, PSTI_PICKLE_NONE},
    [0x88] = {"NEWTRUE", run_scalar, 0, false, PSTI_PICKLE_BOOL},
    [0x89] = {"NEWFALSE", run_scalar, 0, false, PSTI_PICKLE_BOOL},
    ['J'] = {"BININT", run_scalar, 4, false, PSTI_PICKLE_INT},
    ['K'] = {"BININT1", run_scalar, 1, false, PSTI_PICKLE_INT},
    ['M'] = {"BININT2", run_scalar, 2, false, PSTI_PICKLE_INT},
    [0x8a] = {"LONG1", run_scalar, 1, true, PSTI_PICKLE_INT},
    ['G'] = {"BINFLOAT", run_scalar, 8, false, PSTI_PICKLE_FLOAT},
    [0x8c] = {"SHORT_BINUNICODE", run_scalar, 1, true, PSTI_PICKLE_TEXT},
    ['X'] = {"BINUNICODE", run_scalar, 4, true, PSTI_PICKLE_TEXT},
    [0x8d] = {"BINUNICODE8", run_scalar, 8, true, PSTI_PICKLE_TEXT},
    [']'] = {"EMPTY_LIST", run_empty, 0, false, PSTI_PICKLE_LIST},
    ['}'] = {"EMPTY_DICT", run_empty, 0, false, PSTI_PICKLE_DICT},
    [')'] = {"EMPTY_TUPLE", run_empty, 0, false, PSTI_PICKLE_TUPLE},
    ['t'] = {"TUPLE", run_tuple, 0, false, 0},
    [0x85] = {"TUPLE1", run_short_tuple, 0, false, 1},
    [0x86] = {"TUPLE2", run_short_tuple, 0, false, 2},
    [0x87] = {"TUPLE3", run_short_tuple, 0, false, 3},
    ['a'] = {"APPEND", run_add, 0, false, 1},
    ['s'] = {"SETITEM", run_add, 0, false, 2},
    ['e'] = {"APPENDS", run_add_all, 0, false, PSTI_PICKLE_LIST},
    ['u'] = {"SETITEMS", run_add_all, 0, false, PSTI_PICKLE_DICT},
    ['q'] = {"BINPUT", run_put, 1, false, 1},
    ['r'] = {"LONG_BINPUT", run_put, 4, false, 1},
    [0x94] = {"MEMOIZE", run_put, 0, false, 0},
    ['h'] = {"BINGET", run_get, 1, false, 0},
    ['j'] = {"LONG_BINGET", run_get, 4, false, 0},
    /* refused: classes, calls, what lies outside, and what snapshots have no use for */
    ['c'] = {.name = "GLOBAL"},
    [0x93] = {.name = "STACK_GLOBAL"},
    ['R'] = {.name = "REDUCE"},
    ['b'] = {.name = "BUILD"},
    ['i'] = {.name = "INST"},
    ['o'] = {.name = "OBJ"},
    [0x81] = {.name = "NEWOBJ"},
    [0x92] = {.name = "NEWOBJ_EX"},
    [0x82] = {.name = "EXT1"},
    [0x83] = {.name = "EXT2"},
    [0x84] = {.name = "EXT4"},
    ['P'] = {.name = "PERSID"},
    ['Q'] = {.name = "BINPERSID"},
    ['0'] = {.name = "POP"},
    ['1'] = {.name = "POP_MARK"},
    ['2'] = {.name = "DUP"},
    ['I'] = {.name = "INT"},
    ['L'] = {.name = "LONG"},
    [0x8b] = {.name = "LONG4"},
    ['F'] = {.name = "FLOAT"},
    ['S'] = {.name = "STRING"},
    ['T'] = {.name = "BINSTRING"},
    ['U'] = {.name = "SHORT_BINSTRING"},
    ['V'] = {.name = "UNICODE"},
    ['B'] = {.name = "BINBYTES"},
    ['C'] = {.name = "SHORT_BINBYTES"},
    [0x8e] = {.name = "BINBYTES8"},
    [0x96] = {.name = "BYTEARRAY8"},
    [0x97] = {.name = "NEXT_BUFFER"},
    [0x98] = {.name = "READONLY_BUFFER"},
    ['d'] = {.name = "DICT"},
    ['l'] = {.name = "LIST"},
    [0x8f] = {.name = "EMPTY_SET"},
    [0x90] = {.name = "ADDITEMS"},
    [0x91] = {.name = "FROZENSET"},
    ['g'] = {.name = "GET"},
    ['p'] = {.name = "PUT"},
};

/* Moves behind num_bytes bytes that belong to the opcode. */
static pst_status take_bytes(machine *self, const opcode *op, uint64_t num_bytes)
{
    const uint64_t left = self->pickle->num_bytes - self->next;
    if (num_bytes > left)
        return BAD(self, "%s of %" PRIu64 " bytes: the file has %" PRIu64 " more", op->name,
                   num_bytes, left);
    self->next += num_bytes;
    return PST_OK;
}

static pst_status step(machine *self)
{
    const psti_pickle *pickle = self->pickle;
    self->at = self->next;
    if (self->at == pickle->num_bytes)
        return BAD(self, "the file ends within the pickle");
    const unsigned char code = pickle->bytes[self->next++];
    const opcode *op = &opcodes[code];
    if (self->at == 0 && code != 0x80)
        return BAD(self, "no pickle: allowed are protocols %d..%d", MIN_PROTOCOL, MAX_PROTOCOL);
    if (op->run == NULL)
        return BAD(self,
                   "opcode %s (0x%02x): allowed are those of dicts, lists, tuples, texts and "
                   "numbers; classes never",
                   op->name != NULL ? op->name : "unknown", code);
    uint64_t number = 0;
    PSTI_TRY(take_bytes(self, op, op->number_bytes));
    for (uint32_t i = 0; i < op->number_bytes; i++)
        number |= (uint64_t)pickle->bytes[self->at + 1 + i] << (8 * i);
    if (op->has_payload)
        PSTI_TRY(take_bytes(self, op, number));
    return op->run(self, op->argument, number);
}

pst_status psti_pickle_parse(psti_pickle *pickle)
{
    machine self = {.pickle = pickle};
    pst_status status = PST_OK;
    while (status == PST_OK && !self.is_over)
        status = step(&self);
    self.at = self.next;
    if (status == PST_OK && self.next != pickle->num_bytes)
        status = BAD(&self, "%" PRIu64 " bytes behind the end of the pickle",
                     pickle->num_bytes - self.next);
    psti_free(self.stack);
    return status;
}
