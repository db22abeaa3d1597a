#!/usr/bin/env python3
"""generate_abi.py [--check]: makes python/pagestash/_abi.py, the ctypes of the public headers.

Needs gcc and pycparser. --check writes nothing and fails where the file is not what it would write."""

import pathlib
import subprocess
import sys
import tempfile

from pycparser import CParser, c_ast

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "python" / "pagestash" / "_abi.py"
# What Python calls itself. Plans, traces and estimates come from the command, as JSON.
HEADERS = ("api", "status", "structs", "env", "log", "device", "group", "pool", "ticket", "schedule",
           "keep", "glu", "scratch", "scheduler", "simulate", "policy", "swap")
PLAIN = {"_Bool": "c_bool", "char": "c_char", "int": "c_int", "double": "c_double", "float": "c_float",
         "void": None, "size_t": "c_size_t", "unsigned int": "c_uint"}
PLAIN |= {f"{u}int{bits}_t": f"c_{u}int{bits}" for u in ("u", "") for bits in (8, 16, 32, 64)}
HEAD = '''"""The C interface: structs, constants and functions of include/pagestash/*.h.

Made by python/generate_abi.py from the headers; not edited by hand."""
# pylint: disable=too-many-lines
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int,
                    c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p)
'''


def preprocessed():
    """The headers' own lines, in the order of inclusion, with the fixed-width types they use."""
    source = "".join(f"#include <pagestash/{name}.h>\n" for name in HEADERS)
    text = subprocess.run(["gcc", "-std=c11", "-E", "-I", ROOT / "include", "-D__attribute__(x)=", "-"],
                          input=source, text=True, check=True, capture_output=True).stdout
    types = [name for name in PLAIN if name.endswith("_t")]
    kept = [f"typedef int {name};" for name in types] + ["typedef struct pst_arena pst_arena;"]
    ours = False
    for line in text.splitlines():
        if line.startswith("# "):
            path = pathlib.PurePath(line.split('"')[1])
            ours = path.parent.name == "pagestash" and path.stem in HEADERS
        elif ours:
            kept.append(line)
    return "\n".join(kept)


class Headers(c_ast.NodeVisitor):
    """Collects what is declared; `lines` is the Python text."""

    def __init__(self):
        self.structs, self.callbacks, self.constants, self.functions = {}, set(), {}, []
        self.enums, self.opaque, self.lines = set(), set(), []

    def value(self, node):
        if isinstance(node, c_ast.Constant):
            return int(node.value.rstrip("uUlL"), 0)
        if isinstance(node, c_ast.ID):
            return self.constants[node.name]
        if isinstance(node, c_ast.UnaryOp) and node.op == "-":
            return -self.value(node.expr)
        if isinstance(node, c_ast.BinaryOp):
            left, right = self.value(node.left), self.value(node.right)
            return {"+": left + right, "-": left - right, "*": left * right,
                    "<<": left << right}[node.op]
        raise ValueError(f"no constant: {node}")

    def ctype(self, node):
        """The name of a type in Python; None for void."""
        if isinstance(node, c_ast.TypeDecl):
            return self.ctype(node.type)
        if isinstance(node, c_ast.ArrayDecl):
            return f"{self.ctype(node.type)} * {self.value(node.dim)}"
        if isinstance(node, c_ast.PtrDecl):
            if isinstance(node.type, c_ast.FuncDecl):
                return self.callback(node.type)
            inner = self.ctype(node.type)
            if inner is None or inner in self.opaque:
                return "c_void_p"
            return "c_char_p" if inner == "c_char" else f"POINTER({inner})"
        if isinstance(node, c_ast.IdentifierType):
            name = " ".join(node.names)
            if name in PLAIN:
                return PLAIN[name]
            if name in self.enums:
                return "c_int"
            if name in self.structs or name in self.opaque or name in self.callbacks:
                return name
            return "c_void_p"  # pst_stream, pst_event
        raise ValueError(f"no type: {node}")

    def callback(self, function):
        arguments = [self.ctype(p.type) for p in function.args.params]
        return f"CFUNCTYPE({', '.join(map(str, [self.ctype(function.type)] + arguments))})"

    def visit_Typedef(self, node):
        inner = node.type.type
        if isinstance(inner, c_ast.Enum):
            self.enum(inner)
            self.enums.add(node.name)
        elif isinstance(inner, c_ast.Struct) and inner.decls is None:
            if not isinstance(node.type, c_ast.PtrDecl):
                self.opaque.add(node.name)
        elif isinstance(inner, c_ast.Struct):
            self.struct(node.name, inner)
        elif isinstance(inner, c_ast.FuncDecl):
            self.callbacks.add(node.name)
            self.lines += ["", "", f"{node.name} = {self.callback(inner)}"]

    def enum(self, node):
        following = 0
        self.lines += [""]
        for item in node.values.enumerators:
            following = self.value(item.value) if item.value else following
            self.constants[item.name] = following
            self.lines.append(f"{item.name} = {following}")
            following += 1

    def struct(self, name, node):
        self.lines += ["", "", f"class {name}(Structure):", "    _fields_ = ["]
        for field in node.decls:
            self.lines.append(f'        ("{field.name}", {self.ctype(field.type)}),')
        self.lines += ["    ]"]
        self.structs[name] = node

    def visit_Decl(self, node):
        if not isinstance(node.type, c_ast.FuncDecl):
            return
        parameters = node.type.args.params
        arguments = [self.ctype(p.type) for p in parameters]
        arguments = [] if arguments == [None] else arguments
        names = [p.name for p in parameters][:len(arguments)]
        self.functions.append((node.name, self.ctype(node.type.type), arguments, names))

    def visit_FuncDef(self, node):
        """Inline functions: dlsym does not find them."""


def macros():
    """Lines of constants that are macros with a plain integer, valued by the compiler."""
    source = "".join(f"#include <pagestash/{name}.h>\n" for name in HEADERS)
    gcc = ["gcc", "-std=c11", "-I", ROOT / "include", "-x", "c", "-"]
    text = subprocess.run([*gcc, "-E", "-dM"], input=source, text=True, check=True,
                          capture_output=True).stdout
    names = sorted(line.split()[1] for line in text.splitlines() if line.startswith("#define PST_"))
    names = [name for name in names if "(" not in name and
             not name.endswith(("_INIT", "_DECLS", "_API", "_NAMES"))]
    program = ["#include <stdio.h>", source, "int main(void) {"]
    program += [f'printf("{name} = %lld\\n", (long long)({name}));' for name in names] + ["}"]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "macros")
        subprocess.run([*gcc, "-o", path], input="\n".join(program), text=True, check=True)
        return subprocess.run([path], text=True, check=True, capture_output=True).stdout.splitlines()


def generated():
    headers = Headers()
    headers.visit(CParser().parse(preprocessed()))
    lines = [*HEAD.splitlines(), "", *macros(), *headers.lines, "", "",
             "# name: result, arguments, their names", "FUNCTIONS = {"]
    for name, result, arguments, names in headers.functions:
        text = ", ".join(arguments) + ("," if len(arguments) == 1 else "")
        lines.append(f'    "{name}": ({result}, ({text}), {tuple(names)!r}),')
    lines += ["}", "", f"STRUCTS = ({', '.join(headers.structs)})"]
    return "\n".join(lines) + "\n"


def main():
    text = generated()
    if sys.argv[1:] == ["--check"]:
        if OUT.read_text() != text:
            sys.exit(f"{OUT.relative_to(ROOT)} is not what the headers say: run {sys.argv[0]}")
        return
    OUT.write_text(text)


main()
