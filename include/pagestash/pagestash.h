/* pagestash: keeps the live bytes of oversized MoE buffers in pages until the backward pass.
 *
 * Words: a *pool* owns pages of a device. A *group* describes up to 64 tensors and where their live
 * row counts lie on the device. A *ticket* records one stash. *stash* copies a group's live bytes
 * into pages, *restore* copies them back.
 *
 *   pst_device *device;  pst_pool *pool;  pst_group *group;  pst_ticket *ticket;
 *   pst_device_open("auto", 0, &device);
 *   pst_pool_create(device, &pool_config, &pool);
 *   pst_group_create(device, &group_config, &group);
 *   pst_ticket_create(pool, group, &ticket);           once per stash that can be live at once
 *
 *   pst_ticket_stash(ticket, group, NULL, stream);     after the layer's forward
 *   pst_ticket_restore(ticket, group, NULL, stream);   before its backward
 *   pst_pool_step(pool, stream);                       at the end of the step
 *   pst_pool_poll(pool, &status);                      whenever you like, no synchronisation
 *
 * The last four allocate nothing, never synchronise and can be captured in a CUDA graph. A replayed
 * graph reads the new row counts.
 *
 * Units: sizes in bytes, counts in rows or pages, times in seconds. The stream comes last. Config
 * structs begin with struct_size: start from their _INIT macros (api.h says how structs grow). Zero
 * means the default. "pre:" says what a caller must see to and the library cannot check.
 */
#ifndef PAGESTASH_PAGESTASH_H
#define PAGESTASH_PAGESTASH_H

/* clang-format off */

/* Simple: all that the calls above need. */
#include <pagestash/api.h>
#include <pagestash/status.h>
#include <pagestash/device.h>
#include <pagestash/pool.h>
#include <pagestash/group.h>
#include <pagestash/ticket.h>

/* Advanced: few SMs for a copy, agreement of ranks, test patterns, messages, variables, and sizes of
 * structs. */
#include <pagestash/budget.h>
#include <pagestash/nccl.h>
#include <pagestash/pattern.h>
#include <pagestash/log.h>
#include <pagestash/env.h>
#include <pagestash/structs.h>

/* Expert: static plans from allocation traces, and estimates of a whole training run. */
#include <pagestash/trace.h>
#include <pagestash/plan.h>
#include <pagestash/plan_file.h>
#include <pagestash/arena.h>
#include <pagestash/swap.h>
#include <pagestash/memory_map.h>
#include <pagestash/estimate.h>

/* clang-format on */

#endif
