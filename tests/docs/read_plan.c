/* Reads the plan file block.csv: what docs/formats.md shows is one. */
#include <pagestash/pagestash.h>

#include "check.h"

static int64_t read_file(void *source, void *text, size_t capacity)
{
    return (int64_t)fread(text, 1, capacity, source);
}

int main(void)
{
    FILE *file = fopen("block.csv", "r");
    pst_plan_file *plan = NULL;
    if (!file)
        return 1;
    CHECK(pst_plan_file_read("block.csv", read_file, file, &plan));
    pst_plan_file_destroy(plan);
    return fclose(file) != 0;
}
