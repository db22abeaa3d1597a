/* The pools of a folder as a table, and as JSON. */
#include "tools/common/json_out.h"
#include "tools/common/tool.h"
#include "tools/top/top.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SCHEMA_VERSION = 2 };

/* "12s", "3m", "5h", "2d" */
static const char *age(uint64_t ns, char out[16])
{
    static const struct {
        uint64_t seconds;
        char unit;
    } units[] = {{86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}};
    const uint64_t seconds = ns / 1000000000u;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (seconds >= 2 * units[i].seconds || units[i].seconds == 1) {
            snprintf(out, 16, "%" PRIu64 "%c", seconds / units[i].seconds, units[i].unit);
            break;
        }
    return out;
}

/* "4096/8192", and in how much of it: "50%"; "-" without pages. */
static const char *share(uint64_t used, uint64_t all, char out[40])
{
    if (all == 0)
        snprintf(out, 40, "-");
    else
        snprintf(out, 40, "%" PRIu64 "/%" PRIu64 " %3u%%", used, all,
                 (unsigned)(100.0 * (double)used / (double)all));
    return out;
}

static void print_row(const top_pool *pool)
{
    const psti_top_file *file = &pool->file;
    const pst_pool_status *status = &file->poll.status;
    char when[16], device[40], host[40], faults[24], state[16] = "";
    if (pool->state == TOP_UNREADABLE) {
        fputs("  ", stdout);
        tool_put(pool->name);
        puts(": unreadable, or of another version");
        return;
    }
    if (pool->state == TOP_DEAD || pool->state == TOP_ELSEWHERE)
        snprintf(state, sizeof(state), " %s", top_state_name(pool->state));
    if (!pool->was_polled) {
        printf("%7" PRId64 " %4" PRIu64 " %4s  nothing was polled%s%s\n", file->process, file->pool,
               "-", state[0] != '\0' ? "," : "", state);
        return;
    }
    snprintf(faults, sizeof(faults), "%u%s", status->num_faults, status->step_valid ? "" : " lost");
    printf("%7" PRId64 " %4" PRIu64 " %4s %7" PRIu64 " %17s %7" PRIu64 " %7" PRIu64
           " %15s %7" PRIu64 " %s%s\n",
           file->process, file->pool, pool->has_age ? age(pool->age_ns, when) : "-", status->steps,
           share(status->in_use[0], file->poll.num_pages[0], device), status->high_water[0],
           status->demand_high_water, share(status->in_use[1], file->poll.num_pages[1], host),
           status->spilled_pages, faults, state);
}

void top_print(const char *folder, const top_list *list)
{
    char text[16];
    const time_t now = time(NULL);
    struct tm parts;
    localtime_r(&now, &parts);
    strftime(text, sizeof(text), "%H:%M:%S", &parts);
    printf("%s  %zu pool%s in ", text, list->num, list->num == 1 ? "" : "s");
    tool_put(folder);
    puts("; pages of each tier in use and in all\n");
    printf("process pool  age    step      device pages    most  demand"
           "      host pages spilled faults\n");
    for (size_t i = 0; i < list->num; i++)
        print_row(&list->pools[i]);
}

static json_t *json_pool(const top_pool *pool)
{
    const psti_top_file *file = &pool->file;
    const pst_pool_status *status = &file->poll.status;
    json_t *object = json_object();
    json_put_text(&object, "file", pool->name);
    json_put_text(&object, "state", top_state_name(pool->state));
    if (pool->state == TOP_UNREADABLE)
        return object;
    JSON_PUT(&object, {"process", (uint64_t)file->process}, {"pool", file->pool});
    json_put_text(&object, "device", file->device);
    JSON_PUT(&object, {"page_bytes", file->page_bytes}, {"num_pages", file->poll.num_pages[0]},
             {"num_host_pages", file->poll.num_pages[1]});
    if (!pool->was_polled)
        return object;
    if (pool->has_age)
        json_put(&object, "age_seconds", json_number((double)pool->age_ns * 1e-9));
    JSON_PUT(&object, {"steps", status->steps}, {"in_use", status->in_use[0]},
             {"host_in_use", status->in_use[1]}, {"high_water", status->high_water[0]},
             {"host_high_water", status->high_water[1]},
             {"demand_high_water", status->demand_high_water},
             {"spilled_pages", status->spilled_pages}, {"offloaded_pages", status->offloaded_pages},
             {"num_faults", status->num_faults});
    json_put(&object, "step_valid", json_boolean(status->step_valid != 0));
    if (status->num_faults > 0)
        json_put_text(&object, "first_fault", pst_fault_text((pst_fault)status->fault));
    return object;
}

int top_write_json(const char *folder, const top_list *list, const char *path)
{
    json_t *object = json_begin("top", SCHEMA_VERSION);
    json_t *pools = json_array();
    for (size_t i = 0; i < list->num; i++)
        json_add(&pools, json_pool(&list->pools[i]));
    json_put_text(&object, "folder", folder);
    json_put(&object, "pools", pools);
    return json_write(object, path);
}
