/* The report of an estimate: one tree, which is its JSON and of which its text is printed. */
#ifndef PAGESTASH_TOOL_ESTIMATE_REPORT_H
#define PAGESTASH_TOOL_ESTIMATE_REPORT_H

#include "tools/common/json_out.h"
#include "tools/estimate/estimate.h"

/* estimate_tree.c: to be released by the caller. TOOL_NO: out of memory. TOOL_USAGE: a figure exceeds
 * what JSON can hold. */
int estimate_tree(const estimate_options *options, json_t **tree_out);
/* A new object of a name, if there is a key for it, and numbers. */
json_t *estimate_item(const char *key, const char *name, const json_whole *items, size_t num);
#define ESTIMATE_ITEM(key, name, ...)                               \
    estimate_item((key), (name), (const json_whole[]){__VA_ARGS__}, \
                  sizeof((const json_whole[]){__VA_ARGS__}) / sizeof(json_whole))
#define ESTIMATE_OBJECT(...) ESTIMATE_ITEM(NULL, NULL, __VA_ARGS__)

/* estimate_table.c: the run as it was understood. */
json_t *estimate_config_value(const pst_estimate_config *config);
/* A new list of numbers. */
json_t *estimate_list(const uint64_t *words, uint64_t num);

/* estimate_whatif.c: `whatif`, a list of objects: change, cost, saved_bytes, extra_wire_bytes, peak_bytes,
 * fits; and `together`, the first few of them that fit, where the run does not and no single one does. */
int estimate_put_whatifs(const estimate_options *options, uint64_t stage, bool fits, json_t **tree);

/* estimate_traffic.c: transfers of each stage, of all GPUs, and who takes part. */
void estimate_put_traffic(const estimate_options *options, const estimate_stage *stages,
                          uint64_t heaviest, json_t **tree);

/* estimate_text.c: rows of a list of objects as a table, those that are alike but for the first column
 * once. Values are bytes, shown in GiB or MiB; numbers; lists of them as 1+2; or texts, to the left. */
typedef enum estimate_form { IN_GIB, IN_MIB, AS_MS, AS_NUMBER, AS_TEXT } estimate_form;

typedef struct estimate_column {
    const char *path; /* keys with points between them */
    const char *title;
    estimate_form form;
    int width;
} estimate_column;

void estimate_print_rows(const json_t *rows, const estimate_column *columns, size_t num_columns);
#define ESTIMATE_PRINT_ROWS(rows, ...)                                \
    estimate_print_rows(rows, (const estimate_column[]){__VA_ARGS__}, \
                        sizeof((const estimate_column[]){__VA_ARGS__}) / sizeof(estimate_column))
/* The value that keys with points between them lead to. */
const json_t *estimate_at(const json_t *from, const char *path);
uint64_t estimate_whole_at(const json_t *from, const char *path);
/* In lines of at most 100 columns. */
void estimate_print_wrapped(const char *title, const char *text);
void estimate_print_notes(const json_t *tree, const char *key, const char *title);

/* What is not shown otherwise. */
void estimate_print_details(const json_t *tree);

/* estimate_summary.c: the report's first lines; more: a line besides, or NULL. */
void estimate_print_summary(const estimate_options *options, const json_t *tree, const char *more);

#endif
