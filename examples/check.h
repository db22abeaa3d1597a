/* What the examples do about a call that fails: say so and end. */
#ifndef EXAMPLES_CHECK_H
#define EXAMPLES_CHECK_H

#include <pagestash/status.h>

#include <stdio.h>
#include <stdlib.h>

static void check(pst_status status, const char *what)
{
    if (status == PST_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, pst_status_name(status), pst_last_message());
    exit(1);
}
#define CHECK(call) check(call, #call)

#endif
