/* When what an SM asks of memory is done: latencies by where a line is, and queues for shared
 * memory, L2 and DRAM. One SM; the others are a share of DRAM that it does not get. */
#ifndef PSTI_TESTS_PTX_CLOCK_MEMORY_H
#define PSTI_TESTS_PTX_CLOCK_MEMORY_H

#include <unordered_map>

#include "tests/ptx/clock_table.h"

#define CLOCK_LINE 128u
#define CLOCK_SECTOR 32u

/* One warp instruction's accesses. */
struct clock_access {
    uint32_t num = 0;   /* lanes that take part */
    uint32_t bytes = 0; /* of each lane */
    uint64_t address[32];
};

/* Cycles are counted in 1/64, so that bytes per cycle need not divide. */
typedef uint64_t clock_time;
static const clock_time clock_cycle = 64;

/* What one resource can do: a request waits for those before it. */
struct clock_queue {
    clock_time free = 0;
    /* Returns when the request is through. */
    clock_time pass(clock_time now, clock_time takes)
    {
        free = (free > now ? free : now) + takes;
        return free;
    }
};

class clock_memory
{
  public:
    /* active_sms: that share the DRAM. */
    void open(const clock_table &table, uint32_t active_sms);

    /* Bytes of rows and pages: DRAM when their line is touched for the first time in the launch.
     * Everything else, the metadata of the pool, counts and arguments, is in L2. */
    void add_bulk(uint64_t address, uint64_t bytes);
    bool is_bulk(uint64_t address) const;

    clock_time load(clock_time now, const clock_access &access);
    /* When the registers are read and the warp may go on; *done_out: when L2 has it. */
    clock_time store(clock_time now, const clock_access &access, clock_time *done_out);
    clock_time atomic(clock_time now, const clock_access &access);
    clock_time shared(clock_time now, const clock_access &access);
    clock_time bulk_load(clock_time now, uint64_t from, uint32_t bytes);
    /* *done_out: when memory has it. Returns when shared memory was read. */
    clock_time bulk_store(clock_time now, uint64_t to, uint32_t bytes, clock_time *done_out);

    uint64_t dram_bytes = 0;

  private:
    struct range {
        uint64_t first, end;
    };
    clock_time line_latency(clock_time now, uint64_t address);
    clock_time write_back(clock_time now, uint64_t address, uint64_t bytes);
    clock_time rate(uint64_t bytes, uint32_t bytes_per_cycle) const;

    clock_table table;
    double dram_ticks_per_byte = 0;
    std::vector<range> ranges;
    std::unordered_map<uint64_t, clock_time> arrival; /* of lines that came from DRAM */
    clock_queue shared_port, l1, l2_read, l2_write, dram, engine;
};

#endif
