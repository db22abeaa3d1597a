#!/usr/bin/env python3
"""Doxygen's input filter: a public header, whose comments are plain C, as Doxygen wants to read it.

The headers stay as they are. Comments before a declaration and behind a member become Doxygen's; text that is
laid out by hand (indented) stays so; lists of X(name, value, text) become enumerators with their texts; the
comment that opens a header is that of the file. Four rules stand in for comments that would say the same
each time: an _INIT macro without one, `struct_size` and `padding`, several members declared at once, and
declarations at file level that follow a commented one without an empty line between: these share its
comment, and it says so in each. Usage: filter.py HEADER
"""
import re
import sys

COMMENT = r'/\*(?:(?!\*/).)*\*/'
TOKEN = re.compile(COMMENT + r'|"(?:\\.|[^"\\])*"|//[^\n]*', re.S)
LIST = re.compile(r'#define (\w+)\(\w+\)((?:[^\n]*\\\n)+[^\n]*)')
ROW = re.compile(r'\w+\((\w+), (-?\w+),\s*((?:"(?:\\.|[^"\\])*"\s*)+)\)', re.S)
USE = re.compile(r'#define (\w+)\(name, value, text\) name = value,\n\s*(\w+)\(\1\)\n#undef \1\n')
PLUMBING = re.compile(r'^#define PST_(?:API|BEGIN_DECLS|END_DECLS)\b[^\n]*\n', re.M)
INIT = re.compile(r'(?<!\*/)\n(#define PST_\w+_INIT\s(?:\\\n)?\s*(?:PST_INIT(?:_\d)?\((\w+))?)')
SEVERAL = re.compile(rf'^([ ]{{4,}})({COMMENT}\n[ ]+)?((?:const )?\w+ )(\w[^;(){{}}/]*, [^;(){{}}/]*);([ ]*{COMMENT})?',
                     re.S | re.M)
SIZE = re.compile(r'(size_t struct_size;)(?! */\*)')
PADDING = re.compile(r'(uint\d+_t padding(?:\[\d+\])?;)(?! */\*)')
RUN = re.compile(r'^(/\*(?:(?!\*/)[\s\S])*\*/)\n((?:(?!/\*|\n)[^\n]+\n)+)', re.M)
DECLARED = re.compile(r'(\w+)\(')


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
    """Paragraphs as text, indented blocks and tables as they are."""
    out, block = [], []
    for line in lines + [""]:
        if line.startswith("  ") or re.match(r'\w+: {2,}\S', line) or (block and not line):
            block.append(line)
            continue
        if block:
            out += verbatim(block)
            block = []
        out.append(escape(line))
    return "\n".join(out + (verbatim(block) if block else [])).strip()


def verbatim(block):
    """A block of lines that begin with spaces: text if it is a paragraph's indented first line."""
    while block and not block[-1]:
        block = block[:-1]
    return ["@verbatim"] + block + ["@endverbatim", ""]


def is_title(comment):
    return re.fullmatch(r'/\* -+ .*? -+ \*/', comment, re.S) is not None


def is_behind(before):
    """Whether a comment stands behind a member or enumerator of its line."""
    line = before[before.rfind("\n") + 1:].rstrip()
    return bool(line) and re.search(r'[;,)\w"]$', line) is not None


def expanded(source):
    """Enumerations by X lists with their enumerators written out."""
    lists = {}
    for found in LIST.finditer(source):
        lists[found[1]] = ROW.findall(found[2].replace("\\\n", "\n"))

    def rows(found):
        entries = lists.get(found[2])
        if not entries:
            raise SystemExit(f"filter.py: no list {found[2]} in this header")
        texts = [(name, value, "".join(re.findall(r'"((?:\\.|[^"\\])*)"', text)))
                 for name, value, text in entries]
        return "".join(f"    {name} = {value}, /* {text}. */\n" for name, value, text in texts)
    return USE.sub(rows, source)


def apart(found):
    """Members that are declared at once as one declaration each, all with the comment."""
    indent, above, kind, names, behind = found.groups("")
    return "".join(f"{indent}{above}{kind}{name};{behind}\n" for name in re.split(r',\s+', names)).rstrip("\n")


def with_rules(source):
    """What the rules for names that are alike everywhere say, as plain comments."""
    source = PLUMBING.sub("", source)
    source = INIT.sub(lambda found: "\n/* Initialiser of one " + (found[2] or "element")
                      + ": sizes are set, every other field is 0, its default (api.h). */\n" + found[1], source)
    source = SIZE.sub(r'\1 /* sizeof of the struct, set by its _INIT (api.h) */', source)
    source = PADDING.sub(r'\1 /* 0 */', source)
    return SEVERAL.sub(apart, source)


def declarations(chunk):
    """The declarations of a run of lines at file level: each a list of lines."""
    out, current, depth = [], [], 0
    for line in chunk:
        current.append(line)
        depth += line.count("{") - line.count("}")
        is_define = current[0].startswith("#")
        if depth == 0 and (not line.endswith("\\") if is_define else line.rstrip().endswith((";", "}"))):
            out.append(current)
            current = []
    return out + ([current] if current else [])


def shared(source):
    """Comments of runs of declarations at file level, repeated before each of the run."""
    def run(found):
        comment, body = found[1], found[2]
        members = declarations(body.rstrip("\n").split("\n"))
        names = [DECLARED.search(" ".join(lines)) for lines in members]
        if len(members) < 2 or not all(names) or any("typedef" in lines[0] for lines in members):
            return found[0]
        said = ", ".join(name[1] for name in names)
        text = comment[:-2].rstrip() + f"\n *\n * This is said of {said}. */\n"
        return "".join(text + "\n".join(lines) + "\n" for lines in members)
    return RUN.sub(run, source)


def filtered(source):
    source = shared(with_rules(expanded(source)))
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
