/* Messages about fields of the configuration, said in flags or in the words of a config.json. */
#include "tools/estimate/estimate_flags.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sentence {
    const estimate_line *line;
    FILE *out;
    bool names_file, names_flag; /* of what was given */
} sentence;

static bool print_in_file(const sentence *self, const char *names)
{
    char name[64];
    while (names != NULL && *names != '\0') {
        const size_t length = strcspn(names, "|");
        snprintf(name, sizeof(name), "%.*s", (int)length, names);
        if (json_object_get(self->line->file, name) != NULL) {
            fprintf(self->out, "%s (%s)", name, estimate_text(self->line, ESTIMATE_F_HF_CONFIG));
            return true;
        }
        names += length + (names[length] == '|');
    }
    return false;
}

static void print_flag(sentence *self, const estimate_field *field)
{
    const estimate_line *line = self->line;
    const estimate_flag id = field->flag;
    const char *in_file = field->kind == ESTIMATE_IS_CHOICE ? NULL : field->words;
    self->names_flag = self->names_flag || estimate_has(line, id);
    if (!estimate_has(line, id) && print_in_file(self, in_file)) {
        self->names_file = true;
        return;
    }
    if (id == ESTIMATE_F_WORLD_SIZE && !estimate_has(line, id) &&
        (estimate_has(line, ESTIMATE_F_NPROC_PER_NODE) || estimate_has(line, ESTIMATE_F_NNODES))) {
        fputs("--nproc-per-node * --nnodes", self->out);
        self->names_flag = true;
        return;
    }
    if (id == ESTIMATE_F_VIRTUAL_STAGES && estimate_has(line, ESTIMATE_F_LAYERS_PER_VIRTUAL)) {
        fputs("--num-layers-per-virtual-pipeline-stage: virtual stages", self->out);
        self->names_flag = true;
        return;
    }
    fprintf(self->out, "%s--%s", field->from == ESTIMATE_TAKE_OFF ? "no " : "",
            estimate_flag_table[id].name);
    if (in_file != NULL && !estimate_has(line, id) && estimate_has(line, ESTIMATE_F_PRESET))
        fprintf(self->out, " (--preset %s)", estimate_text(line, ESTIMATE_F_PRESET));
}

static void print_word(sentence *self, const char *word, size_t length)
{
    for (int i = 0; i < ESTIMATE_NUM_FIELDS; i++) {
        const estimate_field *field = &estimate_field_table[i];
        if (field->flag != ESTIMATE_F_NONE && strlen(field->name) == length &&
            memcmp(field->name, word, length) == 0) {
            print_flag(self, field);
            return;
        }
    }
    fwrite(word, 1, length, self->out);
}

static void print_message(sentence *self, const char *message)
{
    self->names_flag = strstr(message, "--") != NULL;
    while (*message != '\0' && strncmp(message, " [", 2) != 0) { /* then: where in our sources */
        const size_t length = strspn(message, "abcdefghijklmnopqrstuvwxyz_");
        print_word(self, message, length);
        message += length;
        if (length == 0)
            fputc(*message++, self->out);
    }
}

int estimate_refuse(const estimate_line *line, const char *format, ...)
{
    char message[1024];
    char *text = NULL;
    size_t bytes = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    sentence self = {.line = line, .out = open_memstream(&text, &bytes)};
    if (self.out == NULL)
        return tool_fail(TOOL_USAGE, "%s", message);
    print_message(&self, message);
    fclose(self.out);
    const bool is_of_file = self.names_file && !self.names_flag;
    const int code =
        tool_fail(is_of_file ? TOOL_INPUT : TOOL_USAGE, "%s", text != NULL ? text : message);
    free(text);
    return code;
}
