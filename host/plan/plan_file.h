/* What the reader of plan files shares with the rows it fills. */
#ifndef PSTI_HOST_PLAN_FILE_H
#define PSTI_HOST_PLAN_FILE_H

#include <pagestash/plan_file.h>

#include "host/base/handle.h"
#include "host/base/table.h"

/* Fields of a row, in the order of the columns. */
enum { PSTI_ROW_OP, PSTI_ROW_ID, PSTI_ROW_SIZE, PSTI_ROW_STREAM, PSTI_ROW_OFFSET, PSTI_ROW_FIELDS };

extern const char *const psti_row_fields[PSTI_ROW_FIELDS];
extern const char *const psti_plan_ops[PST_PLAN_OP_USE + 1];

typedef struct psti_plan_builder {
    pst_plan_file *file;
    const char *name;
    psti_map indices;         /* of the tensors, by id */
    struct psti_plan_id *ids; /* num_tensors of the file */
    uint64_t room_rows, room_ids;
} psti_plan_builder;

pst_status psti_plan_begin(psti_plan_builder *builder, const char *name);
/* given: set of bits 1 << field; what is not given is not looked at. */
pst_status psti_plan_add(psti_plan_builder *builder, const pst_plan_row *row, unsigned given);
/* Hands the file over, or with file_out NULL frees it. */
void psti_plan_end(psti_plan_builder *builder, pst_plan_file **file_out);

#endif
