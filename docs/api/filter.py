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
ROW = re.compile(r'X\((\w+), ([^,"]+),[^"]*((?:"(?:\\.|[^"\\])*"\s*)+)\)', re.S)
USE = re.compile(r'#define (\w+)\(name, [^)]*\) name( = value)?,\n\s*(\w+)\(\1\)\n#undef \1\n')
CPLUSPLUS = re.compile(r'^#ifdef __cplusplus\n(?:(?!#endif|#else)[^\n]*\n)*#else\n'
                       r'((?:(?!#endif)[^\n]*\n)*)#endif\n', re.M)
PLUMBING = re.compile(r'^#define PST_(?:API|BEGIN_DECLS|END_DECLS)\b[^\n]*\n', re.M)
INIT = re.compile(r'(?<!\*/)\n(#define PST_\w+_INIT\s(?:\\\n)?\s*(?:PST_INIT(?:_\d)?\((\w+))?)')
SEVERAL = re.compile(rf'^([ ]{{4,}})({COMMENT}\n[ ]+)?((?:const )?\w+ )'
                     rf'(\w[^;(){{}}/]*, [^;(){{}}/]*);([ ]*{COMMENT})?', re.S | re.M)
SIZE = re.compile(r'(size_t struct_size;)(?! */\*)')
PADDING = re.compile(r'(uint\d+_t padding(?:\[\d+\])?;)(?! */\*)')
RUN = re.compile(r'^(/\*(?:(?!\*/)[\s\S])*\*/)\n((?:(?!/\*|\n)[^\n]+\n)+)', re.M)
ENUMERATOR = re.compile(rf'({COMMENT}\s*)?^\s*(\w+)(?: =\s[^,/\n]+)?,?[ ]*({COMMENT})?', re.S | re.M)
LABEL = re.compile(r'(\w+): {2,}(\S.*)')
OPENING = re.compile(r' {2,3}[A-Z][a-z]+ [a-z]')  # the indented first line of a paragraph
BEHIND = re.compile(r'[ ]+/\* ((?:(?!\*/).)*) \*/$', re.S)


def escape(text):
    """Without the characters that Doxygen and HTML take for their own; with links from public names."""
    text = re.sub(r'([\\@<>&#%$])', r'\\\1', text).replace("::", "\\::")
    return re.sub(r'(?<![\w."])((?:pst|PST)_\w*[^\W_])(?![\w(/"]|\.\w)', r'#\1', text)


def lines_of(comment):
    """The lines within /* and */, without the stars in front."""
    lines = comment[2:-2].split("\n")
    rest = [re.sub(r'^\s*\* ?', '', line) if re.match(r'^\s*\*', line) else line.strip()
            for line in lines[1:]]
    return [lines[0].strip()] + [line.rstrip() for line in rest]


def laid_out(lines):
    """Paragraphs as text, `label:  text` as a paragraph with a title, other indented blocks as they are."""
    out, block, label = [], [], None
    for at, line in enumerate(lines + [""]):
        following = lines[at + 1] if at + 1 < len(lines) else ""
        titled = LABEL.match(line)
        if titled:
            out += verbatim(block) + ["", f"@par {titled[1]}", escape(titled[2])]
            block, label = [], titled
        elif label and line.startswith("  "):
            out.append(escape(line.strip()))
        elif not block and OPENING.match(line) and not following.startswith("  "):
            out += ["", escape(line.strip())]
        elif line.startswith("  ") or (block and not line):
            block.append(line)
        else:
            out += verbatim(block) + ([""] if label and line else []) + [escape(line)]
            block, label = [], None
    return "\n".join(out + verbatim(block)).strip()


def verbatim(block):
    """A table, diagram or code, without the empty lines behind it."""
    while block and not block[-1]:
        block = block[:-1]
    return ["@verbatim", *block, "@endverbatim", ""] if block else []


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
        entries = lists.get(found[3])
        if not entries:
            raise SystemExit(f"filter.py: no list {found[3]} in this header")
        texts = ["".join(re.findall(r'"((?:\\.|[^"\\])*)"', text)) for _, _, text in entries]
        return "".join(f"    {name}{' = ' + value if found[2] else ''}, /* {text}. */\n"
                       for (name, value, _), text in zip(entries, texts))
    return USE.sub(rows, source)


def apart(found):
    """Members that are declared at once as one declaration each, all with the comment."""
    indent, above, kind, names, behind = found.groups("")
    return "\n".join(f"{indent}{above}{kind}{name};{behind}" for name in re.split(r',\s+', names))


def with_rules(source):
    """What the rules for names that are alike everywhere say, as plain comments."""
    source = PLUMBING.sub("", CPLUSPLUS.sub(r"\1", source))
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
        code = BEHIND.sub("", line)
        if depth == 0 and (not line.endswith("\\") if is_define else code.endswith((";", "}"))):
            out.append(current)
            current = []
    return out + ([current] if current else [])


def named(declaration):
    """The name that a declaration or macro declares, and what stands behind it as a comment."""
    text = "\n".join(declaration)
    behind = BEHIND.search(text)
    name = re.match(r'#define (\w+)', text) or re.search(r'(\w+)\(', text)
    return name and name[1], behind and behind[1]


def shared(source):
    """Comments of runs of declarations at file level, repeated before each of the run."""
    def run(found):
        comment = found[1]
        members = declarations(found[2].rstrip("\n").split("\n"))
        names = [named(lines) for lines in members]
        is_alike = all(lines[0].startswith(("#define", "PST_API", "static inline")) for lines in members)
        if len(members) < 2 or not all(name for name, _ in names) or not is_alike:
            return found[0]
        own = [name for name, behind in names if behind and name.startswith("PST_")]
        said = ", ".join(name for name, _ in names if name not in own)
        out = []
        for lines, (name, behind) in zip(members, names):
            text = "\n".join(lines) + "\n"
            if name in own:
                out.append(text)
                continue
            more = f"\n *\n * {name}: {behind}." if behind else ""
            out.append(f"{comment[:-2].rstrip()}{more}\n *\n * This is said of {said}. */\n"
                       + BEHIND.sub("", text.rstrip("\n")) + "\n")
        return "".join(out)
    return RUN.sub(run, source)


def bare_enumerators(source):
    """Names of enumerators without a comment, of which Doxygen says nothing."""
    for name, body in re.findall(r'^typedef enum (\w+) \{\n(.*?)^\}', source, re.S | re.M):
        for found in ENUMERATOR.finditer(body):
            above, enumerator, behind = found.groups()
            if not above and not behind:
                yield f"{name}: enumerator {enumerator} is not documented."


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
        elif (is_title(text) or text == "/* X(name, value, text) */" or "clang-format" in text
              or before.rstrip().endswith("\\")):
            out.append("")
        elif is_behind(before):
            out.append(f"/**< {laid_out(lines_of(text))} */")
        else:
            out.append(f"/** {laid_out(lines_of(text))} */")
    out.append(source[at:])
    return "".join(out)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        text = header.read()
    for fault in bare_enumerators(expanded(text)):
        sys.stderr.write(f"{sys.argv[1]}: {fault}\n")
    sys.stdout.write(filtered(text))
