/* What a user's first program does: run against every way of getting the library. */
#include <pagestash/pagestash.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
    pst_device *device = NULL;

    if (pst_version() != PST_VERSION) {
        printf("library %d, headers %d\n", pst_version(), PST_VERSION);
        return 1;
    }
    if (strcmp(pst_status_name(PST_E_BUSY), "PST_E_BUSY") != 0)
        return 1;
    if (pst_device_open("host", 0, &device) != PST_OK || pst_device_close(device) != PST_OK) {
        printf("%s\n", pst_last_message());
        return 1;
    }
    printf("pagestash %d works\n", pst_version());
    return 0;
}
