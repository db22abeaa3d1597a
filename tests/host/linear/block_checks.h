/* Blocks of one rank on any device: with pages and without the same results, also replayed. */
#ifndef PAGESTASH_TESTS_BLOCK_CHECKS_H
#define PAGESTASH_TESTS_BLOCK_CHECKS_H

#include "tests/host/linear/block.h"

PST_BEGIN_DECLS

/* Form i of these, in which they differ by dtype and pages; num_experts 0: dense. */
enum { BLOCK_FORMS = 4 };
void block_check_form(pst_device *device, uint32_t num_experts, int i);
/* Experts in fp16, or dense, in a graph that is launched several times. */
void block_check_graph(pst_device *device, uint32_t num_experts);

PST_END_DECLS

#endif
