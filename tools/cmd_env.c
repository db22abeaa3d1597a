/* pagestash env: the environment variables of the library. */
#include "tools/common/flags.h"
#include "tools/common/json_out.h"
#include "tools/common/tool.h"

enum { SCHEMA_VERSION = 1 };

static int write_json(const char *path)
{
    json_t *object = json_begin("env", SCHEMA_VERSION);
    json_t *list = json_array();
    for (int i = 0; i < pst_env_count(); i++) {
        pst_env_info info;
        TOOL_PST(pst_env_get(i, &info));
        json_t *entry = json_object();
        json_put_text(&entry, "name", info.name);
        json_put_text(&entry, "value", info.value);
        json_put(&entry, "is_set", json_boolean(info.is_set));
        json_put_text(&entry, "default", info.default_value);
        json_put_text(&entry, "allowed", info.allowed);
        json_put_text(&entry, "type", info.type);
        json_put_text(&entry, "help", info.help);
        json_add(&list, entry);
    }
    json_put(&object, "variables", list);
    return json_write(object, path);
}

int cmd_env(int argc, char **argv)
{
    static const help_codes codes = {.done = NULL};
    const flag_table table = {
        .codes = &codes,
        .command = "env",
        .doc = "List the environment variables that the library reads: name, value, where the "
               "value comes from, default, what is allowed, meaning.",
    };
    const char *json = NULL;
    TOOL_TRY(flags_parse(&table, argc, argv, &json));
    if (json != NULL)
        TOOL_TRY(write_json(json));
    for (int i = 0; i < pst_env_count() && !json_is_stdout(json); i++) {
        pst_env_info info;
        TOOL_PST(pst_env_get(i, &info));
        printf("%s=", info.name);
        tool_put(info.value);
        printf("\n    source: %s; default: %s; allowed: %s (%s)\n    %s\n",
               info.is_set ? "environment" : "default", info.default_value, info.allowed, info.type,
               info.help);
    }
    return tool_flush(TOOL_OK);
}
