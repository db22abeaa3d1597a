/* One SM of the model and what it knows of its blocks and warps: clock_run.cc says who is next,
 * clock_issue.cc what an instruction costs. */
#ifndef PSTI_TESTS_PTX_CLOCK_SM_H
#define PSTI_TESTS_PTX_CLOCK_SM_H

#include <algorithm>

#include "tests/ptx/clock_run.h"

namespace clock_model
{

typedef std::vector<uint32_t> register_list;

/* What the scheduler knows of an instruction before it runs. */
struct code_facts {
    clock_cost cost;
    register_list reads, writes;
    int32_t guard = -1;
};

/* How long a chain of memory trips is, and of membars. */
struct chain {
    uint32_t trips = 0, membars = 0;
    void join(const chain &other)
    {
        trips = std::max(trips, other.trips);
        membars = std::max(membars, other.membars);
    }
};

struct spin {
    const ptx_instruction *what = nullptr;
    uint64_t address = 0;
    chain before;
};

struct warp_state {
    clock_time next = 0;           /* its last instruction is out of the way */
    std::vector<clock_time> ready; /* of registers */
    std::vector<chain> depth;
    chain here;            /* of everything that it waited for */
    clock_time stored = 0; /* all its stores are in L2 */
    bool ends = false;
    clock_time ready_at = 0; /* its next instruction, where known */
    bool is_known = false;
    bool is_float = false; /* the next instruction, as clock_cost has it */
    chain at_store;        /* at its last store of a tile */
    bool has_stored = false, has_loaded = false;
    clock_time first_load = 0, last_store = 0, in_flight_until = 0, in_flight = 0;
    spin last;
};

struct bulk_load_state {
    clock_time there;
    uint32_t barrier;
    chain depth;
    ptx_bulk_load what;
};

struct bulk_store_state {
    clock_time read, done;
};

struct block_state {
    ptx_block block;
    std::vector<warp_state> warps;
    std::vector<bulk_load_state> loads;      /* as block.loads */
    std::vector<bulk_store_state> stores;    /* as block.stores */
    std::map<uint32_t, chain> barrier_depth; /* of mbarriers: what has landed */
    bool runs = false;
};

/* One store of a tile, as the steady state sees it. */
struct tile_mark {
    clock_time at;
    uint64_t bytes;
};

class sm
{
  public:
    sm(const clock_table &table, const clock_launch &launch);
    clock_report run();

  private:
    void start_block(uint32_t id, clock_time now);
    clock_time free_at(const warp_state &w, size_t scheduler) const;
    void occupy(const clock_cost &cost, size_t scheduler, clock_time now);
    bool pick(size_t *block_out, size_t *warp_out, clock_time *at_out);
    clock_time ready_at(block_state &b, size_t w);
    clock_time wait_for_bulk(block_state &b, const ptx_warp &warp, const ptx_instruction &i,
                             uint32_t group, clock_time at);
    void settle_bulk(block_state &b, clock_time now);
    void issue(block_state &b, size_t w, clock_time now);
    void memory(warp_state &w, const code_facts &facts, clock_time now);
    void note_tile(warp_state &w, uint64_t address, uint64_t bytes, bool loads, clock_time now,
                   clock_time there);
    void bulk(block_state &b, warp_state &w, clock_time now, size_t loads_before,
              size_t stores_before);
    bool polls(warp_state &w) const;
    clock_access access_of() const;
    static bool within(const std::vector<clock_range> &ranges, uint64_t address);
    [[noreturn]] void fail_hung(const block_state &b) const;
    clock_report conclude();

    const clock_table &table;
    const clock_launch &launch;
    clock_memory mem;
    std::vector<code_facts> facts;
    std::vector<block_state> blocks;
    std::vector<clock_time> schedulers, float_pipes; /* of each: free from then on */
    uint32_t next_block = 0, running = 0;
    ptx_step step;
    clock_report report;
    clock_time first_load = 0, last_store = 0, end = 0;
    bool any_load = false, any_store = false;
    chain before_first, before_end;
    std::vector<tile_mark> marks;
    size_t last_block = 0;
};

} /* namespace clock_model */

#endif
