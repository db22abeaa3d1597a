/* What ptxas would do to the order of instructions, as far as the clock has to know it: short
 * bodies of branches become predicated, and within a basic block instructions go in the order in
 * which they are soonest done. nvcc's PTX has every load beside its use; the SASS of these kernels
 * has not. Registers are taken to be enough. */
#ifndef PSTI_TESTS_PTX_CLOCK_COMPILE_H
#define PSTI_TESTS_PTX_CLOCK_COMPILE_H

#include "tests/ptx/clock_table.h"
#include "tests/ptx/ptx.h"

/* Of each register whether it holds the address of the arguments, or one at a fixed distance: loads
 * from there are operands of the instruction that wants them. */
std::vector<bool> clock_fixed_arguments(const ptx_kernel &kernel);

/* The same program, in another order. */
ptx_kernel clock_compile(const clock_table &table, const ptx_kernel &kernel);

#endif
