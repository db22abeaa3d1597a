/* The launches that are timed, in the order in which they are reported. */
#ifndef PSTI_TESTS_PTX_CLOCK_CASE_H
#define PSTI_TESTS_PTX_CLOCK_CASE_H

#include <functional>

#include "tests/ptx/clock_timed.h"

/* What the gate knows a launch by; "none" where it has no such thing. */
struct clock_name {
    std::string op, backend, pool, what;
    bool is_short; /* is in the short selection */
};

typedef std::function<clock_report()> clock_timing;
typedef std::function<void(const clock_name &, const clock_timing &)> clock_visitor;

/* Stash, restore and migrate; gated activations; control, pattern and product. Whoever is visited
 * decides whether to run the timing, which also checks the bytes. */
void clock_each_move(const clock_setting &setting, const clock_visitor &visit);
void clock_each_glu(const clock_setting &setting, const clock_visitor &visit);
void clock_each_other(const clock_setting &setting, const clock_visitor &visit);

#endif
