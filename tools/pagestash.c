/* The command pagestash: a table of subcommands. */
#include "tools/common/flags.h"
#include "tools/common/tool.h"

#include <argp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tool_command commands[] = {
    {"replay", "replay a routing trace through pool, stash and restore; check every byte",
     cmd_replay},
    {"trace", "read, derive, expand and sum up an allocation trace", cmd_trace},
    {"plan", "compute an address for every tensor of an allocation trace, with a proof", cmd_plan},
    {"simulate", "what a pipeline schedule with paged layers costs: pages, stalls, makespan",
     cmd_simulate},
    {"estimate", "memory and traffic of a training run, before it starts", cmd_estimate},
    {"top", "watch the pools of running jobs: pages in use, demand, spills, faults", cmd_top},
    {"env", "list the environment variables that the library reads", cmd_env},
};
enum {
    NUM_COMMANDS = sizeof(commands) / sizeof(commands[0]),
    STDOUT_BYTES = 1 << 16, /* a report fits: it is written at once */
};

static int print_help(void)
{
    static const help_codes codes = {
        .no = "the answer is no", .has_device = true, .interrupted = "plan was ended by Ctrl-C"};
    puts("Usage: pagestash COMMAND [OPTION...]\n"
         "Keeps the live bytes of oversized MoE buffers in pages until the backward pass.\n");
    for (int i = 0; i < NUM_COMMANDS; i++)
        printf("  %-9s %s\n", commands[i].name, commands[i].summary);
    puts("  help      this text, or the options of a command: pagestash help replay\n\n"
         "Options: -h, --help, -V, --version");
    help_put_codes(&(help_line){.last = INT_MAX}, &codes);
    return tool_flush(TOOL_OK);
}

static int run_command(const char *name, int argc, char **argv)
{
    for (int i = 0; i < NUM_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) {
            char full_name[64];
            if (argc < 2 || flags_asked(argv[1]) == FLAG_ASKED_NOTHING)
                TOOL_PST(pst_env_check());
            snprintf(full_name, sizeof(full_name), "pagestash %s", name);
            argv[0] = full_name;
            return commands[i].run(argc, argv);
        }
    char allowed[256] = "";
    for (int i = 0; i < NUM_COMMANDS; i++) {
        strncat(allowed, commands[i].name, sizeof(allowed) - strlen(allowed) - 1);
        strncat(allowed, ", ", sizeof(allowed) - strlen(allowed) - 1);
    }
    return tool_fail(TOOL_USAGE, "command \"%.40s\": allowed are %shelp", name, allowed);
}

/* Warnings are shown, an unknown PAGESTASH_* name, say; failures already have their one line. */
static void show_warning(pst_log_level level, const char *message, void *user)
{
    (void)user;
    if (level == PST_LOG_WARN)
        fprintf(stderr, "pagestash: %s\n", message);
}

int main(int argc, char **argv)
{
    /* A reader that goes away must not leave half a report behind: writes fail instead. */
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOFBF, STDOUT_BYTES);
    argp_err_exit_status = TOOL_USAGE;
    if (getenv("PAGESTASH_LOG") == NULL)
        pst_log_set_callback(PST_LOG_WARN, show_warning, NULL);

    if (argc < 2)
        return tool_fail(TOOL_USAGE, "no command given: see pagestash --help");
    const flag_asked asked = flags_asked(argv[1]);
    if (asked == FLAG_ASKED_VERSION) {
        flags_print_version();
        return tool_flush(TOOL_OK);
    }
    if (asked == FLAG_ASKED_NOTHING && strcmp(argv[1], "help") != 0)
        return run_command(argv[1], argc - 1, argv + 1);
    if (argc == 2)
        return print_help();
    char help_option[] = "--help";
    char *help_argv[] = {argv[0], help_option, NULL};
    return run_command(argv[2], 2, help_argv);
}
