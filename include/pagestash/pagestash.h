/* pagestash: keeps the live bytes of oversized MoE buffers in pages until the backward pass.
 *
 * Words: a *pool* owns pages of a device. A *group* describes the form of up to 64 tensors and how
 * their live rows are counted, without addresses. A *ticket* records one stash. *stash* copies the
 * live bytes of a group's buffers into pages, *restore* copies them back.
 *
 *   pst_device *device;  pst_pool *pool;  pst_group *group;  pst_ticket ticket;
 *   pst_device_open("auto", 0, &device);
 *   pst_pool_create(device, &pool_config, &pool);      with slab_tickets
 *   pst_group_create(&group_config, &group);           once for all layers of a form
 *
 *   pst_ticket_take(pool, stream, &ticket);
 *   pst_ticket_stash(ticket, group, &buffers, NULL, stream);    after the layer's forward
 *   pst_ticket_restore(ticket, group, &buffers, NULL, stream);  before its backward
 *   pst_ticket_give(ticket, stream);
 *   pst_pool_step(pool, stream);                       at the end of the step
 *   pst_pool_poll(pool, &status);                      whenever you like, no synchronisation
 *
 * From take to step nothing allocates device memory or synchronises, and all can be captured in a
 * CUDA graph. A replayed graph reads the new row counts.
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

/* Advanced: activations that page as they compute, few SMs for a copy, what ranks exchange and
 * agree on, buffers that are used for a moment, test patterns, messages, variables, and sizes of structs. */
#include <pagestash/glu.h>
#include <pagestash/budget.h>
#include <pagestash/nccl.h>
#include <pagestash/scratch.h>
#include <pagestash/comm.h>
#include <pagestash/product.h>
#include <pagestash/linear.h>
#include <pagestash/pattern.h>
#include <pagestash/log.h>
#include <pagestash/env.h>
#include <pagestash/structs.h>

/* Expert: static plans from allocation traces, orders of passes, and estimates of a whole training
 * run. */
#include <pagestash/trace.h>
#include <pagestash/plan.h>
#include <pagestash/plan_file.h>
#include <pagestash/arena.h>
#include <pagestash/swap.h>
#include <pagestash/memory_map.h>
#include <pagestash/keep.h>
#include <pagestash/schedule.h>
#include <pagestash/scheduler.h>
#include <pagestash/simulate.h>
#include <pagestash/policy.h>
#include <pagestash/estimate_config.h>
#include <pagestash/estimate.h>
#include <pagestash/step.h>

/* clang-format on */

#endif
