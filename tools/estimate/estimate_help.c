/* The help of estimate, group by group. */
#include "tools/common/help.h"
#include "tools/estimate/estimate_flags.h"

#include <stdio.h>

static void print_flag(estimate_id id)
{
    const estimate_row *row = &estimate_rows[id];
    const bool has_default =
        row->fallback != 0 && row->fallback != UINT64_MAX && row->argument != NULL;
    const int power = row->kind != ESTIMATE_SIZE ? 0 : row->fallback < 1u << 30 ? 10 : 30;
    char initial[32];
    snprintf(initial, sizeof(initial), "%llu%s", (unsigned long long)(row->fallback >> power),
             power == 0    ? ""
             : power == 10 ? "KiB"
                           : "GiB");
    help_put(&(help_row){.name = estimate_flag(id),
                         .argument = row->argument,
                         .is_optional = row->kind == ESTIMATE_JSON,
                         .help = row->help,
                         .initial = has_default ? initial : NULL});
}

void estimate_help(void)
{
    static const char doc[] =
        "Memory and traffic of a training run, before it starts. Takes a launch line of "
        "Megatron-LM "
        "as it stands, torchrun and pretrain_gpt.py included; underscores count as dashes. In "
        "brackets, what stands where a flag is not given.\v"
        "Of other flags of Megatron-LM, the report names those that change memory. Exit codes: 0 "
        "done, or it fits; 1 it does not fit; 2 usage; 3 bad file.";
    static const char *const titles[ESTIMATE_NUM_GROUPS] = {
        "The model:", "Multi-latent attention:", "Experts:",   "Rows of experts:", "The split:",
        "Training:",  "What layers save:",       "The report:"};
    help_begin("pagestash estimate", doc);
    for (int group = 0; group < ESTIMATE_NUM_GROUPS; group++) {
        printf("%s %s\n", group > 0 ? "\n" : "", titles[group]);
        for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS; id++)
            if ((int)estimate_rows[id].group == group && estimate_rows[id].help != NULL)
                print_flag(id);
    }
    help_put(&(help_row){.letter = 'h', .name = "help", .help = "print this text"});
    help_put(&(help_row){.letter = 'V', .name = "version", .help = "print the version"});
    help_end(doc);
}
