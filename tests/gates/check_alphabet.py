#!/usr/bin/env python3
"""check_alphabet.py SOURCE_DIR [--self-test]: each public function that takes a pool or a ticket is in the alphabet
of tests/host/stash/small_letters.c, is called there or in the lockstep, or is named there as what is left out.
--self-test adds a function to a header."""

import pathlib
import re
import sys

HEADERS = ("pool.h", "ticket.h", "glu.h", "nccl.h")
FUNCTION = re.compile(r"^PST_API [^;(]*?\b(pst_\w+?)(?:_sized)?\(", re.M)


def forgotten(headers, alphabet):
    named = set(re.findall(r"\bpst_\w+", alphabet))
    return [name for text in headers for name in FUNCTION.findall(text) if name not in named]


def main():
    root = pathlib.Path(sys.argv[1])
    headers = [(root / "include/pagestash" / name).read_text() for name in HEADERS]
    files = sorted((root / "tests/host/stash").glob("small_*.c")) + sorted((root / "tests/oracle").glob("lockstep*.c"))
    alphabet = "\n".join(path.read_text() for path in files)
    wrong = forgotten(headers, alphabet)
    if wrong:
        sys.exit("\n".join(f"{name}: neither a letter of tests/host/stash/small_letters.c nor left out there"
                           for name in wrong))
    if "--self-test" in sys.argv[2:]:
        new = "PST_API pst_status pst_pool_drain(pst_pool *pool,\n                                  pst_stream stream);\n"
        if forgotten([*headers, new], alphabet) != ["pst_pool_drain"]:
            sys.exit("a function that is in no alphabet was not found")
        print("the function that was added was found")
        return
    print(f"{sum(len(FUNCTION.findall(text)) for text in headers)} functions are letters, or left out")


if __name__ == "__main__":
    main()
