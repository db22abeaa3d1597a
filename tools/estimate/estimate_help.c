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

static void print_flag(const estimate_flag_entry *entry)
{
    int column = printf("      --%s", entry->name);
    if (entry->argument != NULL)
        column += printf(entry->kind == ESTIMATE_JSON ? "[=%s]" : "=%s", entry->argument);
    print_wrapped(entry->help, column);
}

void estimate_help(void)
{
    static const char *const titles[ESTIMATE_NUM_GROUPS] = {
        "The model:", "Experts:", "The split:", "Training:", "What layers save:", "The report:"};
    puts("Usage: pagestash estimate [OPTION...]\n"
         "Memory and traffic of a training run, before it starts. Takes a launch line of\n"
         "Megatron-LM as it stands, torchrun and pretrain_gpt.py included; underscores\n"
         "count as dashes. In brackets, what stands where a flag is not given.");
    for (int group = 0; group < ESTIMATE_NUM_GROUPS; group++) {
        printf("\n %s\n", titles[group]);
        for (int i = 0; i < ESTIMATE_NUM_FLAGS; i++)
            if ((int)estimate_flag_table[i].group == group)
                print_flag(&estimate_flag_table[i]);
    }
    puts("  -h, --help                 print this text\n"
         "  -V, --version              print the version\n\n"
         "Of other flags of Megatron-LM, the report names those "
         "that change memory.\n"
         "Exit codes: 0 done, or it fits; 1 it does not fit; 2 usage; 3 bad file.");
}
