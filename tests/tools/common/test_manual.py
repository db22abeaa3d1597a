#!/usr/bin/env python3
"""Man pages and completions: test_manual.py PAGESTASH SOURCE_DIR. They say all that --help says, man programs
read them without a warning, and shells complete by them."""
import contextlib
import gzip
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import unittest

BINARY, SOURCE = sys.argv[1:3]
COMMANDS = ("replay", "trace", "plan", "simulate", "estimate", "top", "env")
sys.path.insert(0, os.path.join(SOURCE, "docs", "man"))
import commands  # noqa: E402


def need(tool):
    if shutil.which(tool) is None:
        if os.environ.get("PSTI_TEST_ALL_TOOLS"):
            raise AssertionError(f"{tool} is not here")
        raise unittest.SkipTest(f"{tool} is not here")


class ManualTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        subprocess.run([sys.executable, os.path.join(SOURCE, "docs/man/commands.py"), BINARY, cls.folder.name],
                       check=True)
        cls.help = {name: subprocess.run([BINARY, name, "--help"], text=True, capture_output=True).stdout
                    for name in COMMANDS}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def file(self, name):
        return os.path.join(self.folder.name, name)

    def text(self, name):
        with (gzip.open if name.endswith(".gz") else open)(self.file(name), "rt", encoding="utf-8") as file:
            return file.read()

    def flags(self, command):
        """By a reading of its own."""
        return set(re.findall(r"^ .{5}--([\w/-]+)", self.help[command], re.M))

    def test_pages_have_every_flag_and_every_word(self):
        for name in COMMANDS:
            page = self.text(f"man1/pagestash-{name}.1.gz").replace("\\-", "-").replace("\\e", "\\")
            self.assertTrue(self.flags(name) >= {"json", "help", "version"})
            for flag in self.flags(name):
                self.assertIn(f"\\fB--{flag}\\fR" if "\\fB--" in page else f"--{flag}", page)
            told = re.sub(r"\\f[BRI]|[^\w]+", " ", page)
            text = re.sub(r"Exit\s+codes: ", "", self.help[name].split("\n\n", 1)[1])  # a section's title there
            for word in re.findall(r"[A-Za-z]{4,}", text):
                self.assertIn(word, told, f"{name}: {word}")

    def test_main_page(self):
        page = self.text("man1/pagestash.1.gz").replace("\\-", "-")
        for name in COMMANDS:
            self.assertIn(f".BR pagestash-{name} (1)", page)
        self.assertIn(".B PAGESTASH_LOG\n", page)
        self.assertIn(".B 4\ndevice absent or failed\n", page)

    def test_exit_codes_are_the_commands_own(self):
        """Those that its --help ends with, in a section of their own and nowhere else."""
        for name in COMMANDS:
            page = self.text(f"man1/pagestash-{name}.1.gz").replace("\\-", "-")
            said = re.search(r"Exit\s+codes: (.*)\.", self.help[name], re.S)
            codes = dict(re.findall(r"\.B (\d+)\n(.*)\n", page.split(".SH EXIT STATUS\n")[1]))
            self.assertNotIn("Exit codes", page)
            self.assertEqual("; ".join(" ".join(code) for code in codes.items()), " ".join(said[1].split()))
            others = {"replay": {"4"}, "simulate": {"4"}, "plan": {"130"}}.get(name, set())
            self.assertEqual(set(codes), {"0", "1", "2", "3"} | others)
            self.assertTrue(codes["1"].endswith("memory is out"), codes)
            self.assertTrue(codes["3"].endswith("a file that cannot be read or written"), codes)
            self.assertEqual(page.count("hold the default"), 0 if name == "env" else 1, name)

    def test_mandoc_has_no_errors(self):
        need("mandoc")
        for name in os.listdir(self.file("man1")):
            result = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", self.file(f"man1/{name}")], text=True,
                                    capture_output=True)
            told = [line for line in result.stdout.splitlines() if "missing date" not in line]
            self.assertEqual(told, [])

    def test_lines_are_not_stretched(self):
        """Words that cannot be broken, as columns of a trace, would leave gaps in the lines above them."""
        for name in os.listdir(self.file("man1")):
            self.assertRegex(self.text(f"man1/{name}"), r"\A\.TH .*\n\.ad l\n\.SH NAME\n")

    def completed(self, *words):
        """What bash offers for the last word."""
        need("bash")
        listed = " ".join(f"'{word}'" for word in words)
        script = (f"compopt() {{ :; }}; . {self.file('completions/pagestash')}; COMP_WORDS=({listed}); "
                  f"COMP_CWORD={len(words) - 1}; _pagestash; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        return subprocess.run(["bash", "-c", script], text=True, capture_output=True, check=True).stdout.split()

    def test_bash_completes(self):
        self.assertEqual(self.completed("pagestash", "pl"), ["plan"])
        self.assertEqual(set(self.completed("pagestash", "help", "")), set(COMMANDS))
        for name in COMMANDS:
            offered = {word.strip("-=") for word in self.completed("pagestash", name, "--")}
            self.assertEqual(offered, self.flags(name))
        self.assertEqual(self.completed("pagestash", "plan", "--mode", "=", ""), ["flat", "bilevel"])
        self.assertEqual(self.completed("pagestash", "plan", "--mode", "=", "b"), ["bilevel"])
        self.assertEqual(self.completed("pagestash", "plan", "--mode", "="), ["flat", "bilevel"])
        self.assertEqual(self.completed("pagestash", "replay", "--capacity-f"), ["--capacity-factor="])
        self.assertIn(__file__, self.completed("pagestash", "trace", "--trace", "=", __file__[:-3]))

    def test_zsh_reads_its_own(self):
        need("zsh")
        subprocess.run(["zsh", "-n", self.file("completions/_pagestash")], check=True)
        text = self.text("completions/_pagestash")
        for name in COMMANDS:
            body = text.split(f"\n        {name})\n")[1].split(" ;;\n")[0]
            self.assertEqual(set(re.findall(r"^ +'--([\w/-]+)", body, re.M)), self.flags(name))

    def on_terminal(self, typed, folder, command, **environment):
        """What the shell has left in FOLDER/line, after the prompt that its set-up makes and what was typed."""
        main, terminal = os.openpty()
        with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
                              cwd=folder, env={**os.environ, **environment, "TERM": "dumb"}) as shell:
            os.close(terminal)
            shown = b""
            while b"ready> " not in shown and select.select([main], [], [], 60)[0]:
                shown += os.read(main, 4096)
            os.write(main, typed.encode() + b"\a")
            with contextlib.suppress(OSError):  # the other side was closed
                while select.select([main], [], [], 60)[0]:
                    os.read(main, 4096)
            shell.kill()
        os.close(main)
        with open(os.path.join(folder, "line"), encoding="utf-8") as file:
            return file.read()

    def completed_by_zsh(self, typed):
        """The line after what was typed, on a terminal."""
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, ".zshrc"), "w", encoding="utf-8") as file:
                file.write(f"fpath=({self.file('completions')} $fpath)\nautoload -Uz compinit && compinit -u -D\n"
                           f"told() {{ print -rn -- $BUFFER >{folder}/line; exit; }}\nzle -N told\n"
                           "bindkey '^I' complete-word\nbindkey '^G' told\nPS1='ready> '\n")
            return self.on_terminal(typed, folder, ["zsh", "-d", "-i"], ZDOTDIR=folder)

    def completed_by_bash(self, typed):
        """Likewise, beside a folder with a file and a file whose name has a space."""
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "traces"))
            for name in ("traces/first.csv", "my trace.csv"):
                with open(os.path.join(folder, name), "w", encoding="utf-8"):
                    pass
            with open(os.path.join(folder, "rc"), "w", encoding="utf-8") as file:
                file.write(f". {self.file('completions/pagestash')}\nPS1='ready> '\n"
                           "told() { printf %s \"$READLINE_LINE\" >line; exit; }\nbind -x '\"\\C-g\": told'\n")
            return self.on_terminal(typed, folder, ["bash", "--noprofile", "--rcfile", "rc", "-i"])

    def test_bash_completes_files(self):
        """A folder is followed by a slash and no space, so that typing goes on; spaces do not part a name."""
        need("bash")
        for typed, line in (("pagestash trace --trace=tr\t", "pagestash trace --trace=traces/"),
                            ("pagestash trace --trace=tr\tfi\t", "pagestash trace --trace=traces/first.csv "),
                            ("pagestash trace --trace=my\t", "pagestash trace --trace=my\\ trace.csv ")):
            self.assertEqual(self.completed_by_bash(typed), line)

    def test_zsh_completes(self):
        need("zsh")
        for typed, line in (("pagestash pl\t", "pagestash plan "),
                            ("pagestash replay --capacity-f\t", "pagestash replay --capacity-factor="),
                            ("pagestash plan --mode=b\t", "pagestash plan --mode=bilevel ")):
            self.assertEqual(self.completed_by_zsh(typed), line)

    def test_what_it_cannot_read_is_refused(self):
        with self.assertRaises(SystemExit):
            commands.main("/bin/true", self.folder.name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
