/* The command pagestash: a table of subcommands. */
#include "tools/common/tool.h"

#include <argp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tool_command commands[] = {
    {"replay", "replay a routing trace through pool, stash and restore; check every byte",
     cmd_replay},
    {"trace", "read, derive, expand and sum up an allocation trace", cmd_trace},
    {"plan", "compute an address for every tensor of an allocation trace, with a proof", cmd_plan},
    {"estimate", "memory and traffic of a training run, before it starts", cmd_estimate},
    {"env", "list the environment variables that the library reads", cmd_env},
};
enum {
    NUM_COMMANDS = sizeof(commands) / sizeof(commands[0]),
    STDOUT_BYTES = 1 << 16, /* a report fits: it is written at once */
};

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    const int version = pst_version();
    fprintf(stream, "pagestash %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
}

static int print_help(void)
{
    puts("Usage: pagestash COMMAND [OPTION...]\n"
         "Keeps the live bytes of oversized MoE buffers in pages until the backward pass.\n");
    for (int i = 0; i < NUM_COMMANDS; i++)
        printf("  %-8s %s\n", commands[i].name, commands[i].summary);
    puts("  help     this text, or the options of a command: pagestash help replay\n\n"
         "Options: --help, --version\n"
         "Exit codes: 0 done; 1 the answer is no; 2 usage; 3 bad input file; 4 device absent or "
         "failed");
    return tool_flush(TOOL_OK);
}

static int run_command(const char *name, int argc, char **argv)
{
    for (int i = 0; i < NUM_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) {
            char full_name[64];
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

/* Warnings (an unknown PAGESTASH_* name) are shown; failures already have their one line. */
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
    argp_program_version_hook = print_version;
    argp_err_exit_status = TOOL_USAGE;
    if (getenv("PAGESTASH_LOG") == NULL)
        pst_log_set_callback(PST_LOG_WARN, show_warning, NULL);

    if (argc < 2)
        return tool_fail(TOOL_USAGE, "no command given: see pagestash --help");
    const char *first = argv[1];
    if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0) {
        print_version(stdout, NULL);
        return tool_flush(TOOL_OK);
    }
    const bool wants_help =
        strcmp(first, "help") == 0 || strcmp(first, "--help") == 0 || strcmp(first, "-?") == 0;
    if (!wants_help)
        return run_command(first, argc - 1, argv + 1);
    if (argc == 2)
        return print_help();
    char help_option[] = "--help";
    char *help_argv[] = {argv[0], help_option, NULL};
    return run_command(argv[2], 2, help_argv);
}
