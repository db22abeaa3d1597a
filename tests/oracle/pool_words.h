/* The words of a pool and of its tickets as they lie on the device, copied to the host and back:
 * for tests that compare them and for tests that damage them. */
#ifndef PAGESTASH_TESTS_POOL_WORDS_H
#define PAGESTASH_TESTS_POOL_WORDS_H

#include <pagestash/pagestash.h>

#include "host/stash/stash.h"

typedef struct ticket_words {
    psti_ticket_record head;
    int64_t *counts;
    uint32_t *table;
    uint32_t num_counts; /* that there is room for */
    uint64_t table_pages;
} ticket_words;

typedef struct pool_words {
    psti_pool_state state;
    pst_pool_status status;
    uint32_t *ring[PSTI_TIERS];
    uint64_t *owner[PSTI_TIERS];
} pool_words;

PST_BEGIN_DECLS

/* Memory for the words of this pool; abort without. */
void pool_words_make(const pst_pool *pool, pool_words *words);
void pool_words_free(pool_words *words);
/* Enqueued on `stream`, and waited for. */
pst_status pool_words_read(const pst_pool *pool, pool_words *words, pst_stream stream);
pst_status pool_words_write(const pst_pool *pool, const pool_words *words, pst_stream stream);

void ticket_words_make(pst_ticket ticket, ticket_words *words);
void ticket_words_free(ticket_words *words);
pst_status ticket_words_read(pst_ticket ticket, ticket_words *words, pst_stream stream);
pst_status ticket_words_write(pst_ticket ticket, const ticket_words *words, pst_stream stream);

/* Conservation, as pst_pool_check defines it but walked over these copies: the number of pages that
 * are not free exactly once or held by exactly one of the live tickets, or whose owner word does
 * not say so; SIZE_MAX where the ring's ends cannot be. */
size_t pool_words_violations(const pst_pool *pool, const pool_words *words,
                             const ticket_words *tickets, uint32_t num_tickets);

PST_END_DECLS

#endif
