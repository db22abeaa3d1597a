/* The kernels of the host once more, with the seam of simt_points.h in their atomics. */
#define PSTI_SIMT_POINTS 1
#include "tests/simt/simt_points.h"

#define psti_host_stash simt_host_stash
#define psti_host_restore simt_host_restore
#define psti_host_stash_with simt_host_stash_with
#define psti_host_restore_with simt_host_restore_with
#define psti_host_migrate simt_host_migrate
#include "kernels/host/migrate.c"
#include "kernels/host/restore.c"
#include "kernels/host/stash.c"

#include "host/device/device.h"
#include "tests/simt/simt_device.h"

simt_point_hook simt_point_is;
void *simt_point_user;

pst_status psti_simt_host_open(pst_device **device_out)
{
    static psti_runners runners; /* the same each time */
    runners = psti_host_runners;
    runners.run[PSTI_OP_STASH] = simt_host_stash;
    runners.run[PSTI_OP_RESTORE] = simt_host_restore;
    runners.run[PSTI_OP_MIGRATE] = simt_host_migrate;
    return psti_host_device_make("host", 1, &runners, device_out);
}
