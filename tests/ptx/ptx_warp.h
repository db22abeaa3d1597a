/* Executes PTX, one instruction of one warp at a time; who is next, and when an asynchronous copy
 * is done, is for the caller to say. Addresses of global memory are those of this process. */
#ifndef PSTI_TESTS_PTX_PTX_WARP_H
#define PSTI_TESTS_PTX_PTX_WARP_H

#include <map>

#include "tests/ptx/ptx.h"

#define PTX_LANES 32u

struct ptx_warp {
    uint32_t number = 0;  /* in its block */
    uint32_t alive = 0;   /* lanes that have not ended */
    uint32_t waiting = 0; /* lanes at a barrier */
    uint32_t pc[PTX_LANES];
    uint32_t waits_for[PTX_LANES];   /* number of the barrier */
    std::vector<uint64_t> registers; /* [number * PTX_LANES + lane] */
    std::vector<uint32_t> defined;   /* lanes of each register whose value somebody wrote */
    std::vector<uint32_t> returns[PTX_LANES];
    uint32_t num_calls = 0; /* that have not returned, of all lanes */
    bool gave_way = false;  /* at its last step it slept, or a wait was not over */
    uint32_t meetings = 0;  /* barriers of the block or team that are behind it */
    uint32_t turns = 0;     /* barriers of the warp */
};

#define PTX_NOBODY UINT32_MAX

/* Who last wrote a byte of shared memory, and when by its own count of barriers. */
struct ptx_touch {
    uint32_t meetings = 0, turns = 0, thread = PTX_NOBODY;
};

/* What of this process's memory a launch may touch. */
class ptx_memory
{
  public:
    virtual ~ptx_memory() = default;
    virtual bool holds(uint64_t address, uint64_t bytes) const = 0;
};

struct ptx_mbarrier {
    uint32_t phase = 0, arrivals = 1, expected = 1;
    int64_t bytes = 0; /* that are still to come */
};

struct ptx_bulk_load {
    uint64_t from;
    uint32_t to, bytes, barrier;
};

struct ptx_bulk_store {
    uint64_t to;
    uint32_t from, bytes, thread;
    uint32_t group; /* of that thread */
    bool is_read = false;
    std::vector<unsigned char> data; /* once it is read */
};

/* Marks of lanes that wait at a shuffle for the others; below are numbers of barriers. */
#define PTX_AT_SHUFFLE 0x80000000u

/* What is looked at besides: bounds of global memory, copies for which nobody waits, what another
 * thread of the block wrote to shared memory with no barrier in between, and values that depend on
 * registers or shared memory that nobody wrote. Those may be handed on, but nothing may be decided
 * by them: no predicate, address or operand of what leaves the block. */
struct ptx_checks {
    const ptx_memory *memory = nullptr; /* NULL: global memory is not looked at */
    uint64_t args_bytes = 0;
    uint64_t seed = 0; /* for messages */
};

struct ptx_block {
    const ptx_kernel *kernel = nullptr;
    const ptx_checks *checks = nullptr; /* NULL: only alignment and the bounds of shared memory */
    uint64_t args = 0;
    std::vector<unsigned char> written; /* of shared memory: by someone */
    std::vector<ptx_touch> stored;      /* likewise: who did last */
    std::map<uint32_t, uint32_t>
        waited; /* groups of bulk stores of each thread that it knows done */
    uint32_t id = 0, num_threads = 0, live = 0;
    std::vector<unsigned char> shared;
    std::vector<ptx_warp> warps;
    std::map<uint32_t, ptx_mbarrier> mbarriers;
    std::vector<ptx_bulk_load> loads; /* not there yet */
    std::vector<ptx_bulk_store> stores;
    std::map<uint32_t, uint32_t> groups; /* that each thread has committed */
};

/* What one step did. */
struct ptx_step {
    const ptx_instruction *what = nullptr;
    uint32_t group = 0;             /* lanes that were there together */
    uint32_t active = 0;            /* of them those that their predicate lets */
    uint64_t address[PTX_LANES];    /* of memory, where it has an address */
    std::vector<uint32_t> released; /* warps that a barrier let go */
};

void ptx_start(ptx_block &block, const ptx_kernel &kernel, uint32_t id, uint32_t num_blocks,
               uint32_t num_threads, uint32_t dynamic_bytes, const void *args,
               const ptx_checks *checks = nullptr);

/* Lanes that go next: those deepest in calls, of them those with the smallest pc, but none that
 * stand at a shuffle, vote or barrier of the warp before all that it names are there. 0: all wait
 * or have ended. */
uint32_t ptx_next(const ptx_kernel &kernel, const ptx_warp &warp, uint32_t *pc_out);

/* lane's value of an operand, of so many bits */
uint64_t ptx_value(const ptx_warp &warp, uint32_t lane, const ptx_operand &operand, uint32_t bits);

/* Executes what ptx_next says. A bulk_wait needs those of ptx_must_end to have ended. */
void ptx_execute(ptx_block &block, ptx_warp &warp, ptx_step *step);
/* Likewise these lanes, all of which are ready at pc. A warp's operation whose lanes have not all
 * come holds those that have, as a barrier does. */
void ptx_execute_group(ptx_block &block, ptx_warp &warp, uint32_t group, uint32_t pc,
                       ptx_step *step);

/* With checks: that a block that has ended left no copy for which nobody waited. */
void ptx_check_end(const ptx_block &block);

/* What a bulk_wait of this thread for all but the last `pending` groups waits for: indices of
 * stores. */
std::vector<size_t> ptx_must_end(const ptx_block &block, uint32_t thread, uint32_t pending,
                                 bool reads_only);
bool ptx_phase_is_over(const ptx_block &block, uint32_t barrier, uint32_t parity);

void ptx_land(ptx_block &block, size_t load); /* and forgets it */
void ptx_read_shared(ptx_block &block, size_t store);
void ptx_write_global(ptx_block &block, size_t store); /* and forgets it */

#endif
