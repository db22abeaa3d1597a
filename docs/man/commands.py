#!/usr/bin/env python3
"""Man pages and shell completions of the commands, made from what the commands say of themselves.

Usage: commands.py PAGESTASH OUTDIR

Runs PAGESTASH with --help, and each of its subcommands, and `env --json`, and writes under OUTDIR
man1/*.1.gz, completions/pagestash (bash) and completions/_pagestash (zsh). Nothing about a flag is written down
here: what stands in the pages is what --help prints.
"""
import gzip
import json
import os
import re
import subprocess
import sys

FLAG = re.compile(r"^ {2}(?:-(\w), | {4})--([\w/-]+)(\[?=\S.*?)?(?: {2,}(.*))?$")


def run(program, *arguments):
    """What it prints; its failure is ours."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PAGESTASH_")}
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True,
                          env=environment).stdout


class Flag:
    def __init__(self, letter, name, argument, words):
        self.letter, self.name, self.words = letter, name, words
        self.is_optional = argument.startswith("[")
        self.argument = argument.strip("[]=")

    @property
    def choices(self):
        """What is allowed where that is a list of words."""
        words = self.argument.split("|")
        return words if len(words) > 1 and all(re.fullmatch(r"[\w.-]+", word) and word.lower() == word
                                               for word in words) else []

    @property
    def is_file(self):
        return self.argument in ("FILE", "FOLDER", "DIR", "PATH")


class Command:
    """A name, what it is for, and its flags in groups: (title or None, flags)."""

    def __init__(self, name, text):
        self.name, self.groups, self.below = name, [(None, [])], ""
        head, _, rest = text.partition("\n\n")
        self.doc = " ".join(head.split("\n")[1:])
        for line in rest.split("\n"):
            found = FLAG.match(line)
            flags = self.groups[-1][1]
            if found:
                flags.append(Flag(found[1], found[2], found[3] or "", found[4] or ""))
            elif re.match(r"^ \S.*:$", line):
                self.groups.append((line.strip()[:-1], []))
            elif line.startswith(" ") and flags:
                flags[-1].words = f"{flags[-1].words} {line.strip()}".strip()
            elif line.strip():
                self.below = f"{self.below} {line.strip()}".strip()
        self.below, _, codes = self.below.partition("Exit codes: ")
        self.codes = codes_of(codes.removesuffix(".")) if codes else None

    @property
    def flags(self):
        return [flag for _, flags in self.groups for flag in flags]


def codes_of(text):
    """"0 done; 1 the answer is no": each number and what it means."""
    return [code.split(" ", 1) for code in text.split("; ")]


def parsed(program):
    """The subcommands with what each is for, and the exit codes."""
    text = run(program, "--help")
    purposes = dict(re.findall(r"^ {2}(\w+) +(\S.*)$", text, re.M))
    purposes.pop("help", None)
    codes = re.search(r"^Exit codes: (.*)$", text, re.M)
    if not purposes or codes is None:
        raise SystemExit(f"commands.py: {program} --help: no commands or no exit codes found")
    return text.split("\n")[1], purposes, codes_of(codes[1].removesuffix("."))


# ---- man pages ----

def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)


def head(name, version, purpose):
    # Long names of choices and columns cannot be broken: lines are not stretched to the right margin.
    return (f'.TH "{name.upper()}" 1 "" "pagestash {version}" "pagestash"\n.ad l\n.SH NAME\n'
            f"{roff(name)} \\- {roff(purpose)}\n")


def exits(codes):
    return ".SH EXIT STATUS\n" + "".join(f".TP\n.B {code}\n{roff(words)}\n" for code, words in codes)


def option(flag):
    term = ", ".join(([f"\\fB\\-{flag.letter}\\fR"] if flag.letter else []) + [f"\\fB\\-\\-{roff(flag.name)}\\fR"])
    if flag.argument:
        value = f"=\\fI{roff(flag.argument)}\\fR"
        term += f"[{value}]" if flag.is_optional else value
    return f".TP\n{term}\n{roff(flag.words)}\n"


def command_page(command, purpose, version, codes):
    text = head(f"pagestash-{command.name}", version, purpose)
    text += f".SH SYNOPSIS\n.B pagestash {command.name}\n[\\fIOPTION\\fR...]\n.SH DESCRIPTION\n{roff(command.doc)}\n"
    options = ".SH OPTIONS\n"
    if any(flag.words.endswith(")") for flag in command.flags):
        options += "Parentheses at the end of a description hold the default.\n"
    for title, flags in command.groups:
        if flags:
            text += options if title is None else ""
            text += f".SS {roff(title)}\n" if title else ""
            text += "".join(option(flag) for flag in flags)
    if command.groups[0][1] == []:
        text = text.replace(".SS ", f"{options}.SS ", 1)
    if command.below:
        text += f".SH NOTES\n{roff(command.below.strip())}\n"
    return text + exits(command.codes or codes) + ".SH SEE ALSO\n.BR pagestash (1)\n"


def main_page(doc, purposes, version, codes, variables):
    text = head("pagestash", version, "pages for the live bytes of MoE layers: the command line")
    text += ".SH SYNOPSIS\n.B pagestash\n\\fICOMMAND\\fR [\\fIOPTION\\fR...]\n"
    text += f".SH DESCRIPTION\n{roff(doc)}\n.SH COMMANDS\n"
    for name, purpose in purposes.items():
        text += f".TP\n.BR pagestash\\-{name} (1)\n{roff(purpose)}\n"
    text += ".SH OPTIONS\n" + option(Flag("h", "help", "", "print a list of the commands"))
    text += option(Flag("V", "version", "", "print the version")) + exits(codes) + ".SH ENVIRONMENT\n"
    for entry in variables:
        text += f".TP\n.B {roff(entry['name'])}\n{roff(entry['help'])}. "
        text += roff(f"Allowed: {entry['allowed']}; default: {entry['default']}.") + "\n"
    pages = ", ".join(f"\n.BR pagestash\\-{name} (1)" for name in purposes)
    return text + f".SH SEE ALSO{pages}\n".replace(", \n", ",\n")


# ---- completions ----

def bash(commands):
    cases = []
    for command in commands:
        words = " ".join(f"--{flag.name}" + ("=" if flag.argument and not flag.is_optional else "")
                         for flag in command.flags)
        cases.append(f"        {command.name}) flags='{words}' ;;")
    values = {}
    for command in commands:
        for flag in command.flags:
            if flag.choices:
                values.setdefault(" ".join(flag.choices), []).append(f"{command.name}:--{flag.name}")
            elif flag.is_file:
                values.setdefault("", []).append(f"{command.name}:--{flag.name}")
    choices = [f"        {'|'.join(names)}) choices='{words}' ;;" for words, names in values.items() if words]
    files = "|".join(values.get("", ["-"]))
    return f"""# bash completion of pagestash; made by docs/man/commands.py

_pagestash() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}} flag='' flags='' choices=''
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W '{" ".join(c.name for c in commands)} help --help --version' -- "$word"))
        return
    fi
    case $command in
        help) COMPREPLY=($(compgen -W '{" ".join(c.name for c in commands)}' -- "$word")) && return ;;
{chr(10).join(cases)}
    esac
    # `--flag=value` comes in three words, as = parts them
    if [ "$word" = = ]; then
        flag=${{COMP_WORDS[COMP_CWORD-1]}} word=''
    elif [ "${{COMP_WORDS[COMP_CWORD-1]}}" = = ]; then
        flag=${{COMP_WORDS[COMP_CWORD-2]}}
    elif [[ ${{COMP_WORDS[COMP_CWORD-1]}} == --* && $word != -* ]]; then
        flag=${{COMP_WORDS[COMP_CWORD-1]}}
    fi
    case $command:$flag in
{chr(10).join(choices)}
        {files}) compopt -o filenames && mapfile -t COMPREPLY < <(compgen -f -- "$word") && return ;;
    esac
    if [ -n "$choices" ]; then
        COMPREPLY=($(compgen -W "$choices" -- "$word"))
        return
    fi
    COMPREPLY=($(compgen -W "$flags" -- "$word"))
    [[ ${{COMPREPLY[0]-}} != *= ]] || compopt -o nospace
}}
complete -F _pagestash pagestash
"""


def zsh_text(text):
    return re.sub(r"([\[\]:\\'])", lambda found: "'\\''" if found[1] == "'" else "\\" + found[1], text)


def zsh_flag(flag):
    spec = f"--{flag.name}"
    if flag.argument:
        spec += "=-" if flag.is_optional else "="
    spec += f"[{zsh_text(flag.words)}]"
    if flag.argument:
        action = "_files" if flag.is_file else f"({' '.join(flag.choices)})" if flag.choices else " "
        spec += f"{'::' if flag.is_optional else ':'}{zsh_text(flag.argument)}:{action}"
    return f"            '{spec}'"


def zsh(commands, purposes):
    names = "\n".join(f"        '{name}:{zsh_text(purpose)}'" for name, purpose in purposes.items())
    cases = "\n".join(f"        {command.name})\n            _arguments \\\n" +
                      " \\\n".join(zsh_flag(flag) for flag in command.flags) + " ;;" for command in commands)
    return f"""#compdef pagestash
# zsh completion of pagestash; made by docs/man/commands.py

_pagestash() {{
    local -a commands=(
{names}
        'help:the options of a command'
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    local command=$words[2]
    shift words
    (( CURRENT-- ))
    case $command in
{cases}
        help) _describe command commands ;;
    esac
}}

_pagestash "$@"
"""


def main(program, folder):
    doc, purposes, codes = parsed(program)
    version = run(program, "--version").split()[1]
    commands = [Command(name, run(program, name, "--help")) for name in purposes]
    variables = json.loads(run(program, "env", "--json"))["variables"]
    files = {"man1/pagestash.1.gz": main_page(doc, purposes, version, codes, variables),
             "completions/pagestash": bash(commands), "completions/_pagestash": zsh(commands, purposes)}
    for command in commands:
        if not command.flags:
            raise SystemExit(f"commands.py: pagestash {command.name} --help: no flags found")
        files[f"man1/pagestash-{command.name}.1.gz"] = command_page(command, purposes[command.name], version, codes)
    for name, text in files.items():
        os.makedirs(os.path.join(folder, os.path.dirname(name)), exist_ok=True)
        data = text.encode()
        with open(os.path.join(folder, name), "wb") as file:
            file.write(gzip.compress(data, 9, mtime=0) if name.endswith(".gz") else data)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(sys.argv[1], sys.argv[2])
