/* Moves under the clock: one is timed, everything else is run by the host's kernels. */
#include "tests/ptx/clock_case.h"

#include <cstring>

#include "tests/ptx/clock_scene.h"

namespace
{

struct move_case {
    enum : uint32_t {
        only_last = 1, /* all tensors but the last are empty */
        budget = 2,    /* one SM of many is asked for */
        all_sms = 4,   /* DRAM is shared with all SMs, else with few */
        in_short = 8,  /* in the short selection */
        migrates = 16, /* migrations are timed, too */
        gaps = 32      /* of 17 bytes between rows */
    };
    const char *name;
    const char *what; /* in words */
    uint32_t flags;
    uint32_t num_tensors;
    uint32_t num_segments;    /* 0: a prefix */
    uint32_t row_bytes, rows; /* capacity; of one segment */
    uint32_t live;            /* rows; of one segment */
    uint32_t offset;          /* of the first row from 256 bytes */
    uint32_t page_bytes;
};

#define ONLY_LAST move_case::only_last
#define BUDGET move_case::budget
#define ALL_SMS move_case::all_sms
#define SHORT move_case::in_short
#define MIGRATES move_case::migrates
#define GAPS move_case::gaps

const move_case cases[] = {
    /* name, what, flags, tensors, segments, row bytes, rows, live, offset, page bytes */
    {"live0", "nothing is live", SHORT, 1, 0, 4096, 256, 0, 0, 262144},
    {"tiles64", "64 tiles of one tensor", SHORT | MIGRATES, 1, 0, 4096, 256, 256, 0, 262144},
    {"tiles64_all_sms", "64 tiles, and DRAM shared with all SMs", ALL_SMS, 1, 0, 4096, 256, 256, 0,
     262144},
    {"tiles64_budget", "64 tiles under a budget of one SM", SHORT | BUDGET, 1, 0, 4096, 256, 256, 0,
     262144},
    {"live0_budget", "nothing live under a budget of one SM", BUDGET, 1, 0, 4096, 256, 0, 0,
     262144},
    {"pages256", "256 pages of one tile", MIGRATES, 1, 0, 4096, 1024, 1024, 0, 16384},
    {"pages1024", "1,024 pages of one tile", MIGRATES, 1, 0, 4096, 4096, 4096, 0, 16384},
    {"tensors64", "64 tensors, 16 tiles in the last", ONLY_LAST, 64, 0, 4096, 64, 64, 0, 262144},
    {"segments2", "2 segments of 32 tiles", 0, 1, 2, 4096, 128, 128, 0, 262144},
    {"segments64", "64 segments of 12,000 bytes", 0, 1, 64, 2400, 8, 5, 0, 262144},
    {"rows4", "16 tiles at an address that 4 divides", 0, 1, 0, 4096, 64, 64, 4, 262144},
    {"odd", "16 tiles at an odd address", 0, 1, 0, 4096, 64, 64, 1, 262144},
    {"odd_segments", "16 segments of 36,891 bytes at odd addresses", 0, 1, 16, 4099, 10, 9, 1,
     262144},
    {"odd_gaps", "64 rows of 4 KiB at odd addresses, with gaps", GAPS, 1, 0, 4096, 64, 64, 1,
     262144},
};

const psti_op ops[] = {PSTI_OP_STASH, PSTI_OP_RESTORE, PSTI_OP_MIGRATE};
const struct backend_row {
    pst_backend backend;
    const char *name;
} backends[] = {
    {PST_BACKEND_LDG, "ldg"}, {PST_BACKEND_BULK, "bulk"}, {PST_BACKEND_SQUEEZE, "squeeze"}};

clock_form form_of(const move_case &what)
{
    clock_form form;
    form.num_segments = what.num_segments;
    form.rows = what.rows;
    form.live = what.live;
    form.offset = what.offset;
    form.tensors.assign(what.num_tensors, clock_tensor(what.row_bytes));
    if (what.flags & GAPS)
        form.tensors[0].row_stride = what.row_bytes + 17;
    for (uint32_t t = 0; t + 1 < what.num_tensors; t++)
        form.tensors[t].space = what.flags & ONLY_LAST ? 1 : 0;
    return form;
}

/* Bytes that differ in the end. */
uint64_t stash_and_restore(clock_scene &s, const pst_launch_options &launch, psti_op op)
{
    const pst_pattern pattern = {1, 7, nullptr};
    pst_stash_options stash = PST_STASH_OPTIONS_INIT;
    pst_migrate_options migrate = PST_MIGRATE_OPTIONS_INIT;
    pst_restore_options restore = PST_RESTORE_OPTIONS_INIT;
    stash.launch = migrate.launch = restore.launch = launch;
    CLOCK_CHECK(pst_group_fill(s.device, s.group, &s.buffers, &pattern, s.stream));
    clock_arm(true);
    CLOCK_CHECK(pst_ticket_stash(s.ticket, s.group, &s.buffers, &stash, s.stream));
    for (size_t t = 0; t < s.bases.size(); t++)
        CLOCK_CHECK(pst_device_fill(s.device, s.bases[t], 0xee, s.bytes[t], s.stream));
    if (op == PSTI_OP_MIGRATE)
        CLOCK_CHECK(pst_ticket_demote(s.ticket, &migrate, s.stream));
    CLOCK_CHECK(pst_ticket_restore(s.ticket, s.group, &s.buffers, &restore, s.stream));
    clock_arm(false);
    CLOCK_CHECK(
        pst_group_verify(s.device, s.group, &s.buffers, &pattern, 0xee, s.mismatches, s.stream));
    return *s.mismatches;
}

clock_report time_move(const clock_setting &setting, const move_case &what, psti_op op,
                       const backend_row &with, pst_pool_mode mode)
{
    const std::string kernel = std::string(psti_op_name(op)) + "_" + with.name + "_kernel";
    const clock_wanted wanted = {op, kernel.c_str(), (what.flags & ALL_SMS) != 0, what.name};
    clock_scene scene;
    pst_launch_options launch;
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    memset(&launch, 0, sizeof(launch));
    launch.backend = with.backend;
    launch.num_sms = what.flags & BUDGET ? 1 : 0;
    config.page_bytes = what.page_bytes;
    config.mode = mode;
    clock_open_scene(scene, setting, wanted, form_of(what));
    clock_make_pool(scene, config, op == PSTI_OP_MIGRATE);
    const uint64_t wrong = stash_and_restore(scene, launch, op);
    return clock_close_scene(scene, wanted, wrong);
}

bool has_launch(const clock_setting &setting, const move_case &what, psti_op op,
                const backend_row &with)
{
    /* a migration knows pages, and no rows; finding none is a fault */
    if (op == PSTI_OP_MIGRATE && !(what.flags & MIGRATES))
        return false;
    if (with.backend == PST_BACKEND_LDG)
        return true;
    /* the others have one block an SM anyway */
    return setting.program.architecture >= 90 && !(what.flags & BUDGET);
}

} /* namespace */

void clock_each_move(const clock_setting &setting, const clock_visitor &visit)
{
    for (const move_case &what : cases)
        for (const psti_op op : ops)
            for (const backend_row &with : backends)
                for (const pst_pool_mode mode : {PST_POOL_ORDERED, PST_POOL_CONCURRENT}) {
                    const bool is_ordered = mode == PST_POOL_ORDERED;
                    if (has_launch(setting, what, op, with))
                        visit({psti_op_name(op), with.name, is_ordered ? "ordered" : "concurrent",
                               what.name,
                               what.flags & SHORT && is_ordered && op != PSTI_OP_MIGRATE},
                              [&] { return time_move(setting, what, op, with, mode); });
                }
}
