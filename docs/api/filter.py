#!/usr/bin/env python3
"""Doxygen's input filter: a public header, whose comments are plain C, as Doxygen wants to read it.

The headers stay as they are. Comments before a declaration and behind a member become Doxygen's; text that is
laid out by hand (indented) stays so; lists of X(name, value, text) become enumerators with their texts; the
comment that opens a header is that of the file. Usage: filter.py HEADER
"""
import re
import sys

TOKEN = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"|//[^\n]*', re.S)
LIST = re.compile(r'#define (\w+)\(\w+\)((?:[^\n]*\\\n)+[^\n]*)')
ROW = re.compile(r'\w+\((\w+), (-?\w+), "((?:\\.|[^"\\])*)"\)', re.S)
USE = re.compile(r'#define (\w+)\(name, value, text\) name = value,\n\s*(\w+)\(\1\)\n#undef \1\n')


def escape(text):
    """Without the characters that Doxygen and HTML take for their own."""
    return re.sub(r'([\\@<>&#%$])', r'\\\1', text).replace("::", "\\::")


def lines_of(comment):
    """The lines within /* and */, without the stars in front."""
    lines = comment[2:-2].split("\n")
    rest = [re.sub(r'^\s*\* ?', '', line) if re.match(r'^\s*\*', line) else line.strip()
            for line in lines[1:]]
    return [lines[0].strip()] + [line.rstrip() for line in rest]


def laid_out(lines):
    """Paragraphs as text, indented blocks as they are."""
    out, block = [], []
    for line in lines + [""]:
        if line.startswith("  ") or (block and not line and lines):
            block.append(line)
            continue
        if block:
            out += ["@verbatim"] + block + ["@endverbatim"]
            block = []
        out.append(escape(line))
    return "\n".join(out).strip()


def is_title(comment):
    return re.fullmatch(r'/\* -+ .*? -+ \*/', comment, re.S) is not None


def is_behind(before):
    """Whether a comment stands behind a member or enumerator of its line."""
    line = before[before.rfind("\n") + 1:].rstrip()
    return bool(line) and line[-1] in ";,)" or bool(re.search(r'[\w]$', line))


def expanded(source):
    """Enumerations by X lists with their enumerators written out."""
    lists = {}
    for found in LIST.finditer(source):
        body = found[2].replace("\\\n", "\n")
        lists[found[1]] = ROW.findall(body)

    def rows(found):
        entries = lists.get(found[2])
        if not entries:
            raise SystemExit(f"filter.py: no list {found[2]} in this header")
        return "".join(f"    {name} = {value}, /* {text}. */\n" for name, value, text in entries)
    return USE.sub(rows, source)


def filtered(source):
    source = expanded(source)
    out, at, is_first = [], 0, True
    for found in TOKEN.finditer(source):
        text = found[0]
        before = source[:found.start()]
        out.append(source[at:found.start()])
        at = found.end()
        if not text.startswith("/*"):
            out.append(text)
        elif is_first:
            out.append(f"/** @file\n{laid_out(lines_of(text))}\n*/")
            is_first = False
        elif is_title(text) or "X(name" in text or "clang-format" in text or before.rstrip().endswith("\\"):
            out.append("")
        elif is_behind(before):
            out.append(f"/**< {laid_out(lines_of(text))} */")
        else:
            out.append(f"/** {laid_out(lines_of(text))} */")
    out.append(source[at:])
    return "".join(out)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        sys.stdout.write(filtered(header.read()))
