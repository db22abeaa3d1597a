"""What bad allocation traces get."""
import datetime
import decimal
import os
import pickle

from cli import CommandTest, run
from snapshot import PROTOCOLS, dump, snapshot

HEADER = "op,id,size,stream,phase,layer,micro_batch,rank,tag\n"
BOTH = [(True, 1, 512), (False, 1, 512)]


class BadTraces(CommandTest):
    def check(self, flag, content, *words):
        with self.subTest(flag=flag, content=content[:200]):
            result = run("trace", flag, self.write(content))
            self.refused(result, 3, *words)
            self.assertNotIn("\033", result.stderr)

    def test_csv(self):
        for rows, words in (
                ("free,1,,,,,,,\n", [":2: field id: 1: free before malloc"]),
                ("malloc,1,5,,,,,,\nfree,1,,,,,,,\nfree,1,,,,,,,\n",
                 [":4: field id: 1: double free: freed at 3, malloc'ed at 2"]),
                ("malloc,1,5,,,,,,\nfree,1,,,,,,,\nmalloc,1,5,,,,,,\n",
                 [":4: field id: 1: used twice: the other malloc is at 2"]),
                ("malloc,1,0,,,,,,\n", [':2: field size: "0"', "1..9223372036854775807"]),
                ("malloc,1,-5,,,,,,\n", [':2: field size: "-5"']),
                (f"malloc,1,{2**63},,,,,,\n", [f':2: field size: "{2**63}"']),
                (f"malloc,1,{2**64 + 1},,,,,,\n", [f':2: field size: "{2**64 + 1}"']),
                ("malloc,1,5,,,,,,\n", [":2: field id: 1: never freed"]),
                ("malloc,1,5,,,,,,\nfree,1,6,,,,,,\n", [":3: field size: 6", "or 5"]),
                ("malloc,1,\033[31m5,,,,,,\n", [':2: field size: "?[31m5"']),
                ("malloc,1,5\0,,,,,,\n", [':2: field size: "5?"']),
                ("\n", [":2: field op: missing"]),
                ("mark,1,,,,,,,wait\nmalloc,1,5,,,,,,\nfree,1,,,,,,,\n",
                 [":2: field id: 1: wait before record"]),
                ("mark,1,,,,,,,use\n", [":2: field id: 1: use before malloc"]),
                ("", ["no malloc"]),
                (f"malloc,1,{2**62},,,,,,\nmalloc,2,{2**62},,,,,,\nfree,1,,,,,,,\nfree,2,,,,,,,\n",
                 ["more than 2^62 bytes live at request 1"])):
            self.check("--trace", HEADER + rows, *words)
        self.check("--trace", "", ":1: empty file")
        self.check("--trace", "op,id\n", ":1: field 3 of the header: missing")
        self.check("--trace", b"\xff\xfe" + HEADER.encode("utf-16-le"), ":1: field 1 of the header")

    def test_line_of_more_than_a_mebibyte(self):
        self.check("--trace", HEADER + "malloc," + "0" * (1 << 20) + "1,5,,,,,,\n", ":2:", "1048576")
        self.check("--trace", "x" * ((1 << 20) + 1), ":1:", "1048576")

    def test_minimalloc(self):
        head = "id,lower,upper,size\n"
        for content, words in (
                (head + "1,5,5,9\n", [':2: field upper: "5"', "more than lower"]),
                (head + "1,5,4,9\n", [':2: field upper: "4"']),
                (head + "1,-1,4,9\n", [':2: field lower: "-1"']),
                (head + f"1,0,{2**63},9\n", [":2: field upper"]),
                (head + "1,0,4,0\n", [':2: field size: "0"']),
                (head + "1,0,4,5\n1,9,14,5\n", [":3: field id: 1: used twice"]),
                (head + "1,0,4\n", [":2: field size: missing"]),
                ("id,begin,end,size\n1,0,4,5\n", [":1: field 2 of the header: \"begin\""]),
                ("", [":1: empty file"])):
            self.check("--minimalloc", content, *words)

    def test_lines_of_words(self):
        for content, words in (
                ("malloc 1 5\nfree 2\n", [":2: field id: 2: free before malloc"]),
                ("malloc 1 5 6\n", [":1: field 4"]),
                ("alloc 1 5\n", [':1: field op: "alloc"', "malloc or free"])):
            self.check("--memo", content, *words)
        for content, words in (
                ("0 0x10 5 0\n", [":1: field pointer", "free before malloc"]),
                ("1 0x10 5 0\n1 16 5 0\n", [":2: field pointer", "since line 1"]),
                ("1 0x10 5 0\n0 16 5 0\n0 16 5 0\n", [":3: field pointer", "double free"]),
                ("begin layer\n", [':1: field op: "begin"', "iteration, phase or layer"]),
                ("layer end 3\n", [":1: field layer"]),
                ("1 0x10 5 0\n", [":1: field id: 1: never freed"])):
            self.check("--stalloc", content, *words)


class Evil:
    """What would run a command if it were unpickled."""

    def __reduce__(self):
        return os.system, ("touch evil",)


class HostilePickles(CommandTest):
    def check(self, content, *words):
        with self.subTest(content=content[:80], words=words):
            result = run("trace", "--pytorch", self.write(content), cwd=self.folder)
            self.refused(result, 3, *words)
            self.assertEqual(os.listdir(self.folder), ["trace.csv"])

    def test_classes(self):
        for protocol in PROTOCOLS:
            for value, name in ((Evil(), "GLOBAL"), (datetime.date(2026, 1, 1), "GLOBAL"),
                                (decimal.Decimal(1), "GLOBAL"), (complex(1, 2), "GLOBAL"),
                                (os.system, "GLOBAL"), ({1, 2}, "EMPTY_SET|GLOBAL"),
                                (frozenset([1]), "FROZENSET|GLOBAL"),
                                (b"bytes", "BINBYTES|GLOBAL"), (range(3), "GLOBAL"),
                                (bytearray(b"x"), "BYTEARRAY8|GLOBAL"), (1 << 4000, "LONG4")):
                content = dump(dict(snapshot(BOTH), more=[value]), protocol)
                with self.subTest(protocol=protocol, value=value):
                    result = run("trace", "--pytorch", self.write(content), cwd=self.folder)
                    self.refused(result, 3, ": byte ", "opcode ")
                    opcode = result.stderr.split("opcode ")[1].split()[0]
                    self.assertTrue(any(part in opcode for part in name.split("|")), opcode)
                    self.assertNotIn("evil", os.listdir(self.folder))
        self.check(pickle.dumps(snapshot(BOTH), 0), "byte 0: no pickle")
        self.check(pickle.dumps(snapshot(BOTH), 1), "byte 0: no pickle")

    def test_bounds(self):
        huge = b"\xff" * 7 + b"\x7f"
        for content, words in (
                (b"", ["byte 0: the file ends"]),
                (b"\x80\x04", ["byte 2: the file ends"]),
                (b"\x80\x04" + b"(" * 1000000, ["byte 202: nesting of more than 200"]),
                (b"\x80\x04" + b"]" * 3000000, ["byte 1048578: stack of 1048576 values"]),
                (b"\x80\x04\x8d" + huge + b"x.", ["byte 2: BINUNICODE8 of 9223372036854775807"]),
                (b"\x80\x04\x95" + huge + b"N.", ["byte 2: frame of 9223372036854775807"]),
                (b"\x80\x04Nr\xff\xff\xff\xff.", ["byte 3: memo 4294967295"]),
                (b"\x80\x04Nj\xff\xff\xff\xff.", ["byte 3: memo 4294967295"]),
                (b"\x80\x04N.N.", ["byte 4: 2 bytes behind the end"]),
                (b"\x80\x04N.", ["the snapshot is None"]),
                (b"\x80\x04cos\nsystem\n(S'touch evil'\ntR.", ["byte 2: opcode GLOBAL (0x63)"])):
            self.check(content, *words)

    def test_truncated_anywhere(self):
        whole = dump(snapshot(BOTH))
        for length in range(0, len(whole), 7):
            result = run("trace", "--pytorch", self.write(whole[:length]))
            self.refused(result, 3, ": byte ")

    def test_events(self):
        def events(*changes):
            value = snapshot(BOTH)
            value["device_traces"][0] = [dict(event, **change) for event, change in
                                         zip(value["device_traces"][0][1:], changes)]
            return dump(value)
        for content, words in (
                (events({"addr": "x"}), ["event 1: field addr: a str: allowed is an int"]),
                (events({"addr": -1}), ["event 1: field addr: an int out of range"]),
                (events({"addr": 1 << 64}), ["event 1: field addr: an int out of range"]),
                (events({"size": 0}), ["event 1: field size: 0"]),
                (events({"size": 1 << 63}), ["event 1: field size: 9223372036854775808"]),
                (events({"size": 1.5}), ["event 1: field size: a float"]),
                (events({"action": None}), ["event 1: field action: None"]),
                (events({}, {"action": "alloc"}), ["event 2: field addr", "alloc of what is live"]),
                (events({}, {"action": "free_completed"}, {}),
                 ["event 3: field addr", "double free: free_completed at event 2"]),
                (events({}, {"action": "free_completed", "size": 9}), ["event 2: field size: 9"]),
                (dump(dict(snapshot(BOTH), device_traces=3)), ["field device_traces: an int"]),
                (dump([]), ["the snapshot is a list"]),
                (dump({}), ["field device_traces: nothing"])):
            self.check(content, *words)
