/* pagestash env: the environment variables of the library. */
#include "tools/common/tool.h"

#include <argp.h>
#include <stdio.h>

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    switch (key) {
    case ARGP_KEY_INIT:
        state->err_stream = NULL; /* getopt's line says it all */
        return 0;
    case ARGP_KEY_ARG:
        tool_fail(TOOL_USAGE, "env: argument \"%s\": allowed are options only", argument);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int cmd_env(int argc, char **argv)
{
    const struct argp parser = {
        .parser = parse_option,
        .doc = "List the environment variables that the library reads: name, value, where the "
               "value comes from, default, what is allowed, meaning.",
    };
    if (argp_parse(&parser, argc, argv, 0, NULL, NULL) != 0)
        return TOOL_USAGE;
    TOOL_PST(pst_env_check());
    for (int i = 0; i < pst_env_count(); i++) {
        pst_env_info info;
        TOOL_PST(pst_env_get(i, &info));
        printf("%s=%s\n    source: %s; default: %s; allowed: %s (%s)\n    %s\n", info.name,
               info.value, info.is_set ? "environment" : "default", info.default_value,
               info.allowed, info.type, info.help);
    }
    return tool_flush(TOOL_OK);
}
