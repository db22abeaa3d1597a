/* What the parts of the oracle have in common. */
#ifndef PAGESTASH_TESTS_ORACLE_PARTS_H
#define PAGESTASH_TESTS_ORACLE_PARTS_H

#include "tests/oracle/oracle.h"

uint32_t oracle_tier_of(uint32_t id);
/* From the beginning and to the end of the free ids of a tier. */
uint32_t oracle_take_first(oracle_pool *pool, uint32_t tier);
void oracle_put_last(oracle_pool *pool, uint32_t id);
/* Makes the ticket one that holds nothing; its pages go nowhere. */
void oracle_empty(oracle_ticket *ticket);
/* The high-water marks, after something was taken or wanted. */
void oracle_note_marks(oracle_pool *pool);

#endif
