/* What the two halves of ptx_selftest share. */
#ifndef PSTI_TESTS_PTX_PTX_SELFTEST_H
#define PSTI_TESTS_PTX_PTX_SELFTEST_H

#include <string>

/* A program whose only kernel, k, begins with the five words of its argument in registers. */
std::string selftest_program(const std::string &code);

/* How many errors are not reported as they should be. */
int selftest_errors();

#endif
