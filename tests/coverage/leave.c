/* _exit for builds that count: what a child of fork has counted is written first. */
#include <unistd.h>

extern void __gcov_dump(void);
_Noreturn void __real__exit(int status);
_Noreturn void __wrap__exit(int status);

void __wrap__exit(int status)
{
    __gcov_dump();
    __real__exit(status);
}
