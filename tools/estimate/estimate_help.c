/* The help of estimate, in the form that argp gives that of the other commands. */
#include "tools/estimate/estimate_flags.h"

#include <stdio.h>
#include <string.h>

enum { HELP_COLUMN = 29, LAST_COLUMN = 79 };

/* Words of text from column on, in lines that begin at HELP_COLUMN. */
static void print_wrapped(const char *text, int column)
{
    if (*text != '\0' && column >= HELP_COLUMN - 1) {
        printf("\n%*s", HELP_COLUMN, "");
        column = HELP_COLUMN;
    } else if (*text != '\0') {
        column += printf("%*s", HELP_COLUMN - column, "");
    }
    bool is_first = true;
    while (*text != '\0') {
        const int length = (int)strcspn(text, " ");
        if (!is_first && column + 1 + length > LAST_COLUMN) {
            printf("\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
            is_first = true;
        }
        column += printf("%s%.*s", is_first ? "" : " ", length, text);
        is_first = false;
        text += length + (text[length] == ' ');
    }
    putchar('\n');
}

static void print_flag(estimate_id id)
{
    const estimate_row *row = &estimate_rows[id];
    char help[160], initial[32] = "";
    const bool is_size = row->kind == ESTIMATE_SIZE;
    if (row->fallback != 0 && row->fallback != UINT64_MAX && row->argument != NULL)
        snprintf(initial, sizeof(initial), "(%llu%s)",
                 (unsigned long long)(row->fallback >> (!is_size                   ? 0
                                                        : row->fallback < 1u << 30 ? 10
                                                                                   : 30)),
                 !is_size                   ? ""
                 : row->fallback < 1u << 30 ? "KiB"
                                            : "GiB");
    snprintf(help, sizeof(help), "%s%s%s", row->help, *row->help && *initial ? " " : "", initial);
    int column = printf("      --%s", estimate_flag(id));
    if (row->argument != NULL)
        column += printf(row->kind == ESTIMATE_JSON ? "[=%s]" : "=%s", row->argument);
    print_wrapped(help, column);
}

void estimate_help(void)
{
    static const char *const titles[ESTIMATE_NUM_GROUPS] = {
        "The model:", "Multi-latent attention:", "Experts:",   "Rows of experts:", "The split:",
        "Training:",  "What layers save:",       "The report:"};
    puts("Usage: pagestash estimate [OPTION...]\n"
         "Memory and traffic of a training run, before it starts. Takes a launch line of\n"
         "Megatron-LM as it stands, torchrun and pretrain_gpt.py included; underscores\n"
         "count as dashes. In brackets, what stands where a flag is not given.");
    for (int group = 0; group < ESTIMATE_NUM_GROUPS; group++) {
        printf("\n %s\n", titles[group]);
        for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS; id++)
            if ((int)estimate_rows[id].group == group && estimate_rows[id].help != NULL)
                print_flag(id);
    }
    puts("  -h, --help                 print this text\n"
         "  -V, --version              print the version\n\n"
         "Of other flags of Megatron-LM, the report names those "
         "that change memory.\n"
         "Exit codes: 0 done, or it fits; 1 it does not fit; 2 usage; 3 bad file.");
}
