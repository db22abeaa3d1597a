#include "tests/ptx/clock_memory.h"

#include <algorithm>

namespace
{

/* Distinct multiples of `unit` that the access touches, in order. */
std::vector<uint64_t> units_of(const clock_access &access, uint32_t unit)
{
    std::vector<uint64_t> units;
    for (uint32_t i = 0; i < access.num; i++)
        for (uint64_t u = access.address[i] / unit;
             u <= (access.address[i] + access.bytes - 1) / unit; u++)
            if (units.empty() || units.back() != u)
                units.push_back(u);
    std::sort(units.begin(), units.end());
    units.erase(std::unique(units.begin(), units.end()), units.end());
    return units;
}

} /* namespace */

void clock_memory::open(const clock_table &what, uint32_t active_sms)
{
    *this = clock_memory();
    table = what;
    const double bytes_per_cycle = table.dram_gb_per_s / table.gigahertz() / active_sms;
    dram_ticks_per_byte = (double)clock_cycle / bytes_per_cycle;
}

void clock_memory::add_bulk(uint64_t address, uint64_t bytes)
{
    ranges.push_back({address, address + bytes});
}

bool clock_memory::is_bulk(uint64_t address) const
{
    for (const range &r : ranges)
        if (address >= r.first && address < r.end)
            return true;
    return false;
}

clock_time clock_memory::rate(uint64_t bytes, uint32_t bytes_per_cycle) const
{
    return bytes * clock_cycle / bytes_per_cycle;
}

/* Returns when the line would be there were there no queue towards the SM. */
clock_time clock_memory::line_latency(clock_time now, uint64_t line)
{
    const clock_time from_l2 = now + table.l2 * clock_cycle;
    if (!is_bulk(line * CLOCK_LINE) && !is_bulk(line * CLOCK_LINE + CLOCK_LINE - 1))
        return from_l2;
    const auto found = arrival.find(line);
    if (found != arrival.end())
        return std::max(from_l2, found->second);
    const clock_time passed = dram.pass(now, (clock_time)(CLOCK_LINE * dram_ticks_per_byte));
    dram_bytes += CLOCK_LINE;
    const clock_time there = passed + table.dram * clock_cycle;
    arrival[line] = there;
    return there;
}

clock_time clock_memory::load(clock_time now, const clock_access &access)
{
    const std::vector<uint64_t> sectors = units_of(access, CLOCK_SECTOR);
    const clock_time begun = l1.pass(
        now, rate(units_of(access, CLOCK_LINE).size() * CLOCK_LINE, table.l1_bytes_per_cycle));
    const clock_time passed =
        l2_read.pass(begun, rate(sectors.size() * CLOCK_SECTOR, table.l2_read_bytes_per_cycle));
    clock_time there = passed + table.l2 * clock_cycle;
    uint64_t last = UINT64_MAX;
    for (const uint64_t sector : sectors) {
        const uint64_t line = sector * CLOCK_SECTOR / CLOCK_LINE;
        if (line != last)
            there = std::max(there, line_latency(passed, line));
        last = line;
    }
    return there;
}

/* What is stored goes to DRAM one day, so it takes its share now. Returns when it has it. */
clock_time clock_memory::write_back(clock_time now, uint64_t address, uint64_t bytes)
{
    if (!is_bulk(address))
        return now;
    dram_bytes += bytes;
    return dram.pass(now, (clock_time)((double)bytes * dram_ticks_per_byte));
}

clock_time clock_memory::store(clock_time now, const clock_access &access, clock_time *done_out)
{
    const std::vector<uint64_t> sectors = units_of(access, CLOCK_SECTOR);
    const clock_time begun = l1.pass(
        now, rate(units_of(access, CLOCK_LINE).size() * CLOCK_LINE, table.l1_bytes_per_cycle));
    const uint64_t bytes = sectors.size() * CLOCK_SECTOR;
    const clock_time passed = l2_write.pass(begun, rate(bytes, table.l2_write_bytes_per_cycle));
    const clock_time written = access.num ? write_back(begun, access.address[0], bytes) : passed;
    *done_out = std::max(passed, written) + table.store_ack * clock_cycle;
    return begun;
}

clock_time clock_memory::atomic(clock_time now, const clock_access &access)
{
    const std::vector<uint64_t> sectors = units_of(access, CLOCK_SECTOR);
    const clock_time passed =
        l2_write.pass(now, rate(sectors.size() * CLOCK_SECTOR, table.l2_write_bytes_per_cycle));
    return passed + table.atomic * clock_cycle;
}

/* Passes: what the bank with the most words has to give. */
clock_time clock_memory::shared(clock_time now, const clock_access &access)
{
    const uint32_t banks = table.shared_bytes_per_cycle / 4;
    std::vector<uint64_t> words = units_of(access, 4);
    std::vector<uint32_t> load(banks, 0);
    uint32_t passes = 1;
    for (const uint64_t word : words)
        passes = std::max(passes, ++load[word % banks]);
    return shared_port.pass(now, passes * clock_cycle) + table.shared * clock_cycle;
}

clock_time clock_memory::bulk_load(clock_time now, uint64_t from, uint32_t bytes)
{
    const clock_time begun = engine.pass(now, table.bulk_issue * clock_cycle);
    const clock_time passed = l2_read.pass(
        begun, rate(bytes, std::min(table.bulk_bytes_per_cycle, table.l2_read_bytes_per_cycle)));
    clock_time there = passed + table.l2 * clock_cycle;
    for (uint64_t line = from / CLOCK_LINE; line <= (from + bytes - 1) / CLOCK_LINE; line++)
        there = std::max(there, line_latency(begun, line));
    return there + (table.bulk_load + table.mbarrier_wake) * clock_cycle;
}

clock_time clock_memory::bulk_store(clock_time now, uint64_t to, uint32_t bytes,
                                    clock_time *done_out)
{
    const clock_time begun = engine.pass(now, table.bulk_issue * clock_cycle);
    clock_time passed = l2_write.pass(
        begun, rate(bytes, std::min(table.bulk_bytes_per_cycle, table.l2_write_bytes_per_cycle)));
    passed = std::max(passed, write_back(begun, to, bytes)) + table.bulk_store_read * clock_cycle;
    *done_out = passed + table.store_ack * clock_cycle;
    return passed;
}
