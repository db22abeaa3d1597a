/* The figures of a replay: one list becomes text and JSON. */
#ifndef PAGESTASH_REPORT_H
#define PAGESTASH_REPORT_H

#include "tools/common/metrics.h"
#include "tools/replay/replay.h"

/* Writes the object to options->json: the whole of it, or nothing. */
int report_json(const replay_options *options, const replay_trace *trace,
                const replay_result *result, const metric_list *list);

#endif
