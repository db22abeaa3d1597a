#!/usr/bin/env python3
"""test_torch.py LIBRARY SOURCE_DIR DRIVER [COMMAND]: libpagestash_torch.so on the host device,
without torch: the driver plays torch's part. Its Python has its tests in tests/python."""
import os
import random
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
LIBRARY, SOURCE, DRIVER = map(os.path.abspath, sys.argv[1:4])
COMMAND = sys.argv[4] if len(sys.argv) > 4 else None  # pagestash, where it is built
del sys.argv[1:]
sys.path.insert(1, os.path.join(SOURCE, "tests", "tools", "common"))
import cli  # pylint: disable=wrong-import-position
HEADER = "op,id,size,stream,phase,layer,micro_batch,rank,tag"


def malloc(number, size, stream=0):
    return f"malloc,{number},{size},{stream},,,,0,static"


def free(number, stream=0):
    return f"free,{number},,{stream},,,,0,"


def mark(number):
    return f"mark,{number},,,,,,0,iteration"


def use(number, stream):
    return f"mark,{number},,{stream},,,,0,use"


def iteration_rows(draw, first, tensors=60, streams=3):
    """One iteration: streams appear in order, what lives is freed at the end."""
    rows, live = [], {}
    number = first
    while number < first + tensors or live:
        if number < first + tensors and (not live or draw.random() < 0.55):
            stream = (number - first) if number - first < streams else draw.randrange(streams)
            rows.append(malloc(number, draw.choice((100, 512, 2000, 4096, 9000)), stream))
            live[number] = stream
            number += 1
        else:
            gone = draw.choice(sorted(live))
            if draw.random() < 0.1:
                rows.append(use(gone, (live[gone] + 1) % streams))
            rows.append(free(gone, live.pop(gone)))
    return rows


def program(iterations=3, seed=1, **shape):
    """A trace: the same iteration again and again."""
    rows = []
    for k in range(iterations):
        rows.append(mark(k))
        rows += iteration_rows(random.Random(seed), k * shape.get("tensors", 60), **shape)
    return rows


def plan_of(rows):
    """The first iteration, each tensor at the lowest address that is free."""
    out, live, offsets = ["op,id,size,stream,offset"], {}, {}
    for row in rows:
        op, number, size, stream = row.split(",")[:4]
        if op == "mark" and row.endswith("iteration"):
            if number != "0":
                break
            out.append(f"mark,{number},,,")
        elif op == "mark":
            out.append(f"use,{number},,{stream},")
        elif op == "free":
            del live[number]
            out.append(f"free,{number},,,")
        else:
            at, bytes_ = 0, -(-int(size) // 512) * 512
            for begin, end in sorted(live.values()):
                if at + bytes_ > begin:
                    at = max(at, end)
            live[number] = (at, at + bytes_)
            offsets[int(number)] = at
            out.append(f"malloc,{number},{size},{stream},{at}")
    return out, offsets


class TorchTest(cli.CommandTest):
    def write(self, name, lines):
        return super().write("".join(line + "\n" for line in lines), name)

    def read(self, name):
        with open(self.path(name), encoding="ascii") as file:
            return file.read().splitlines()

    def environment(self, **variables):
        out = {key: value for key, value in os.environ.items() if not key.startswith("PAGESTASH_")}
        out.update({f"PAGESTASH_{key}": value for key, value in variables.items()})
        return out

    def drive(self, rows, code=0, threads=None, **variables):
        """The driver's addresses by id and figures; PAGESTASH_TORCH_DEVICE=host."""
        script = self.write("script.csv", [HEADER] + rows)
        variables = {"TORCH_DEVICE": "host", "LOG": "error", **variables}
        command = [DRIVER, LIBRARY, script] + ([str(threads)] if threads else [])
        result = subprocess.run(command, capture_output=True, text=True,
                                timeout=600, env=self.environment(**variables))
        self.assertEqual(result.returncode, code, result)
        self.error = result.stderr
        places, figures = {}, {}
        for line in result.stdout.splitlines():
            name, equals, value = line.partition("=")
            if equals:
                figures[name] = int(value) if value.isdigit() else value
            else:
                number, place = line.split()
                places[int(number)] = place
        return places, figures


class Whole(TorchTest):
    """Record, plan with the command, replay."""

    def test_round(self):
        if COMMAND is None:
            return
        for streams in (1, 3):
            rows = program(streams=streams)
            taken = self.drive(rows, TORCH="record",
                               TORCH_TRACE=self.path("t.csv"))[1]["taken_bytes"]
            result = subprocess.run(
                [COMMAND, "plan", "--trace", self.path("t.csv"), "--iteration", "1", "--out",
                 self.path("p.csv")], capture_output=True, text=True, timeout=600,
                env=self.environment())
            self.assertEqual((result.returncode, result.stderr), (0, ""), result)
            figures = self.drive(rows, TORCH="plan", TORCH_PLAN=self.path("p.csv"))[1]
            self.assertEqual((figures["planned"], figures["taken_bytes"]),
                             (figures["requests"], 0), figures)
            self.assertEqual(figures["first_deviation"], "")
            self.assertIn(f"peak: {figures['arena_bytes']}", result.stdout)
            self.assertLessEqual(figures["arena_bytes"], taken)


class Record(TorchTest):
    def record(self, rows, **variables):
        figures = self.drive(rows, TORCH="record", TORCH_TRACE=self.path("t.csv"), **variables)[1]
        self.assertEqual(self.error, "")
        self.assertEqual(figures["failures"], 0)
        return self.read("t.csv"), figures

    def test_the_trace_is_what_was_asked_for(self):
        for seed in range(3):
            rows = program(seed=seed)
            trace, figures = self.record(rows)
            self.assertEqual(trace, [HEADER] + rows)
            self.assertEqual(figures["requests"], 180)
            self.assertEqual(figures["iterations"], 3)
            self.assertEqual(figures["live"], 0)

    def test_many_live_tensors_and_what_is_never_freed(self):
        draw = random.Random(1)  # addresses as they come
        rows = [mark(0)] + [malloc(k, draw.randrange(1, 5000)) for k in range(3000)]
        rows += [free(k) for k in range(0, 3000, 3)] + [mark(1)]
        rows += [malloc(3000 + k, 64) for k in range(500)] + [free(k) for k in range(1, 3000, 3)]
        trace, figures = self.record(rows)
        self.assertEqual(trace, [HEADER] + rows)
        self.assertEqual(figures["live"], 1500)

    def test_without_marks(self):
        rows = [malloc(0, 5), malloc(1, 6, 1), free(0), free(1, 1)]
        self.assertEqual(self.record(rows)[0], [HEADER] + rows)

    def test_a_mark_after_requests_is_where_it_was_made(self):
        rows = [malloc(0, 5), mark(0), free(0), mark(1), malloc(1, 5), free(1)]
        self.assertEqual(self.record(rows)[0], [HEADER] + rows)

    def test_graph_pools_are_not_recorded(self):
        before = [mark(0), malloc(0, 4096), free(0)]
        graph = ["begin,1,,,,,,,", malloc(1, 4096), malloc(2, 512), free(2), malloc(3, 512),
                 "end,1,,,,,,,"]
        after = [free(1), malloc(4, 4096), malloc(5, 4096)]
        late = ["release,1,,,,,,,", free(3), malloc(6, 9000), free(6), "reset,0,,,,,,,"]
        trace, figures = self.record(before + graph + after + late)
        self.assertEqual(trace, [HEADER] + before + [
            malloc(1, 4096), malloc(2, 4096), malloc(3, 9000), free(3)])
        self.assertEqual(figures["live"], 2)
        self.assertEqual(figures["taken_bytes"], 2 * 4096)

    def test_a_pool_is_its_graphs_until_it_is_released(self):
        rows = ["begin,1,,,,,,,", malloc(1, 4096), free(1), "end,1,,,,,,,", "begin,1,,,,,,,",
                malloc(2, 4096), free(2), "end,1,,,,,,,", "release,1,,,,,,,"]
        for number in range(3, 9):
            rows += [malloc(number, 4096), "replay,1,,,,,,,", "replay,2,,,,,,,"]
        rows += [free(number) for number in range(3, 9)]
        self.assertEqual(self.record(rows)[1]["requests"], 6)

    def test_released_pools_leave_room_for_others(self):
        rows = []
        for number in range(200):
            last = [free(number), f"release,{number},,,,,,,"]
            rows += [f"begin,{number},,,,,,,", malloc(number, 512), f"end,{number},,,,,,,"]
            rows += last if number % 2 else reversed(last)
        self.record(rows)
        many = [f"begin,{number},,,,,,," for number in range(65)]
        figures = self.drive(many)[1]
        self.assertIn("more than 64 pools", figures["last_failure"])

    def test_a_trace_that_cannot_be_written(self):
        for path in (self.path("no/t.csv"), "/dev/full"):
            full = path == "/dev/full"
            places, figures = self.drive(program(), TORCH="record", TORCH_TRACE=path)
            self.assertEqual(set(places.values()), {"-"} if full else {"null"})
            self.assertEqual(figures["failures"] == 0, full)
            self.assertIn("the trace ends here: No space" if full else "cannot be written: No such",
                          self.error)


class Plan(TorchTest):
    def replay(self, rows, plan, **variables):
        return self.drive(rows, TORCH="plan", TORCH_PLAN=self.write("p.csv", plan), **variables)

    def deviations(self, figures):
        names = ("size", "stream", "extra", "order", "missing", "blocked", "nomem", "late", "early",
                 "use")
        return {name: figures[name] for name in names if figures[name]}

    def test_what_was_recorded_is_replayed_as_planned(self):
        for seed in range(3):
            self.drive(program(seed=seed), TORCH="record", TORCH_TRACE=self.path("t.csv"))
            rows = self.read("t.csv")[1:]
            plan, offsets = plan_of(rows)
            places, figures = self.replay(rows, plan)
            self.assertEqual(self.error, "")
            self.assertEqual(places, {k: str(offsets[k % 60]) for k in range(180)})
            self.assertEqual(figures["planned"], 180)
            self.assertEqual(figures["taken_bytes"], 0)
            self.assertEqual(self.deviations(figures), {})

    def test_a_mark_before_the_first_request_is_the_plans_first(self):
        plan = ["op,id,size,stream,offset", "malloc,1,9000,0,0", "mark,0,,,", "malloc,2,512,0,9216"]
        places, figures = self.replay([mark(0), malloc(5, 512)], plan)
        self.assertEqual(places, {5: "9216"})
        self.assertEqual(self.deviations(figures), {"missing": 1})

    def test_what_lives_before_the_first_iteration_is_not_in_the_plan_of_one(self):
        weights = [malloc(1000 + k, 4096, k % 2) for k in range(8)] + [free(1007, 1)]
        graph = ["begin,1,,,,,,,", malloc(1100, 4096), "end,1,,,,,,,"]
        late = [free(1000), mark(3), malloc(1200, 100000), free(1200), "reset,0,,,,,,,"]
        rows = program(streams=1)
        plan, offsets = plan_of(rows)
        places, figures = self.replay(weights + graph + rows + late, plan)
        self.assertEqual(self.error, "")
        early = [1000 + k for k in range(8)] + [1100]
        self.assertEqual([places.pop(number) for number in early], ["-"] * 9)
        self.assertEqual(places.pop(1200), "-")
        self.assertEqual(places, {k: str(offsets[k % 60]) for k in range(180)})
        self.assertEqual(self.deviations(figures), {"size": 1})
        self.assertEqual((figures["requests"], figures["planned"], figures["live"]), (189, 180, 6))
        self.assertEqual(figures["taken_bytes"], 6 * 4096)

    def test_another_program_keeps_its_bytes(self):
        for seed in range(6):
            draw = random.Random(seed)
            rows = program(iterations=4, seed=seed)
            plan = plan_of(rows)[0]
            number = 1000
            for _ in range(12):
                at = draw.randrange(len(rows))
                fields = rows[at].split(",")
                if fields[0] == "malloc" and draw.random() < 0.5:
                    fields[2] = str(int(fields[2]) + 700)
                    rows[at] = ",".join(fields)
                elif fields[0] == "malloc":  # the driver has nothing to free then
                    del rows[at]
                else:
                    rows[at:at] = [malloc(number, 4096)]
                    rows[at + 5:at + 5] = [free(number)]
                    number += 1
            figures = self.replay(rows, plan)[1]
            self.assertEqual(self.error, "")
            self.assertGreater(sum(self.deviations(figures).values()), 6)
            self.assertNotEqual(figures["first_deviation"], "")
            self.assertLess(figures["planned"], figures["requests"])
            self.assertGreater(figures["planned"], figures["requests"] // 3)

    def test_graph_pools_are_not_planned(self):
        rows = program(iterations=2, streams=1)
        plan, offsets = plan_of(rows)
        graph = ["begin,1,,,,,,,", malloc(1000, 4096), "end,1,,,,,,,"]
        places, figures = self.replay(rows[:30] + graph + rows[30:], plan)
        self.assertEqual(places.pop(1000), "-")
        self.assertEqual(places, {k: str(offsets[k % 60]) for k in range(120)})
        self.assertEqual(self.deviations(figures), {})

    def test_what_cannot_work_gives_no_memory_and_says_why(self):
        wrong = ["op,id,size,stream,offset", "malloc,0,12x,0,0"]
        good = plan_of(program())[0]
        cases = (
            (dict(TORCH="plan", TORCH_PLAN=self.write("w.csv", wrong)),
             'w.csv:2: field size: "12x"'),
            (dict(TORCH="plan", TORCH_PLAN=self.path("none.csv")), "none.csv: No such file"),
            (dict(TORCH="plan", TORCH_PLAN=self.write("g.csv", good + ["malloc,999,9,0,7"])),
             "offset 7: allowed are multiples"),
            (dict(TORCH="plan", TORCH_PLAN=self.write("b.csv", good + [
                "malloc,999,512,0,1125899906842624"])), "bytes wanted"),
            (dict(TORCH="replay"), "PAGESTASH_TORCH='replay' is not one of off|record|plan"))
        for variables, message in cases:
            places, figures = self.drive(program(), **variables)
            self.assertEqual(set(places.values()), {"null"})
            self.assertGreaterEqual(figures["failures"], 180)
            self.assertIn(message, figures["last_failure"])
            self.assertIn(message, self.error)

    def test_threads_get_in_each_others_way_and_lose_no_byte(self):
        rows = program(iterations=5)
        plan = self.write("p.csv", plan_of(rows)[0])
        rows[100:100] = ["begin,1,,,,,,,", malloc(1000, 4096), "end,1,,,,,,,", free(1000),
                         "release,1,,,,,,,"]
        for variables in (dict(TORCH="plan", TORCH_PLAN=plan),
                          dict(TORCH="record", TORCH_TRACE=self.path("t.csv"))):
            figures = self.drive(rows, threads=4, **variables)[1]
            self.assertEqual(self.error, "")
            self.assertEqual(figures["failures"], 0)
            self.assertEqual(figures["live"], 0)
            self.assertGreater(figures["requests"], 600)
            self.assertEqual(figures["iterations"], 20)
        said = self.read("t.csv")
        self.assertEqual(sum(row.startswith("malloc,") for row in said), figures["requests"])
        self.assertEqual(sum(row.startswith("free,") for row in said), figures["requests"])

    def test_off_serves(self):
        places, figures = self.drive(program())
        self.assertEqual(set(places.values()), {"-"})
        self.assertEqual(figures["failures"], 0)
        self.assertEqual(figures["requests"], 180)


if __name__ == "__main__":
    unittest.main()
