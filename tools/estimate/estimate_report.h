/* Parts of the report of an estimate, in two forms. */
#ifndef PAGESTASH_TOOL_ESTIMATE_REPORT_H
#define PAGESTASH_TOOL_ESTIMATE_REPORT_H

#include "tools/common/json_out.h"
#include "tools/estimate/estimate_figures.h"

void estimate_print_config(const pst_estimate_config *config);
json_t *estimate_config_value(const pst_estimate_config *config);
json_t *estimate_list_value(const uint64_t *words, uint64_t num);

/* "12.345 GiB": rounded to the nearest, in integers. */
const char *estimate_gib(uint64_t bytes, char out[32]);
const char *estimate_mib(uint64_t bytes, char out[32]);

/* Calls on_group for each group of the kind, by its lowest rank; ranks are gone through, so only
 * where members are shown. */
pst_status estimate_each_group(const pst_estimate_config *config, pst_parallel parallel,
                               void (*on_group)(void *user,
                                                const pst_estimate_process_group *group),
                               void *user);

/* estimate_names.c: words for what the figures are of. */
const char *estimate_parallel_name(pst_parallel parallel);
const char *estimate_transfer_name(pst_transfer transfer);

/* estimate_tables.c: the text's tables of products and of transfers. */
void estimate_print_modules(const estimate_figures *figures);
void estimate_print_products(const estimate_figures *figures);
int estimate_print_traffic(const estimate_figures *figures);

/* The share of a GPU's multiprocessors that work on a product's tiles, and of a tile's elements
 * that are wanted, both in thousandths; and the operations for each byte moved at least. */
typedef struct estimate_product {
    uint64_t tiles, wave_permille, tile_permille, intensity;
} estimate_product;

estimate_product estimate_product_of(uint64_t rows, uint64_t outputs, uint64_t inputs,
                                     uint64_t count, uint64_t element_bytes, uint64_t num_sms);

#endif
