/* How the modes of pagestash estimate show things. */
#ifndef PAGESTASH_ESTIMATE_OUT_H
#define PAGESTASH_ESTIMATE_OUT_H

#include "tools/common/json_out.h"
#include "tools/estimate/estimate.h"

#define ESTIMATE_BYTES_TEXT 64

/* "1234 bytes", or "12884901888 (12.00 GiB)" from a MiB on; returns text. */
const char *estimate_bytes_text(uint64_t bytes, char text[ESTIMATE_BYTES_TEXT]);
/* What is computed anew: of layers, or all of them in groups. */
const char *estimate_recompute_text(const pst_estimate_config *config,
                                    char text[ESTIMATE_BYTES_TEXT]);
/* The stage of --timeline and --html: as given, or the heaviest. */
int estimate_stage_of(const estimate_options *options, uint64_t *stage_out);

/* A list of lines; words of the command line need not be UTF-8. */
json_t *estimate_notes_value(const estimate_notes *notes);
/* Flags that change memory and are not counted: lines on stdout, or on stderr where stdout has a
 * form of its own. */
void estimate_print_unmodelled(const estimate_options *options);
void estimate_warn_unmodelled(const estimate_options *options);

#endif
