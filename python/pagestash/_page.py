"""What the pages of this package share: style.css, and the lines around what they show."""
import functools
import html
import pathlib


@functools.lru_cache(maxsize=None)
def style() -> str:
    """An element with the rules, for a page or beside what stands in a notebook below the class pst."""
    rules = pathlib.Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    return f"<style>\n{rules}</style>"


def page(title: str, body: str, runs: bool = False) -> str:
    """A whole page that loads nothing. A frame in it is under its rules, too; with `runs` it may run scripts."""
    scripts = " script-src 'unsafe-inline'; img-src data:;" if runs else ""
    return ('<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            f'style-src \'unsafe-inline\';{scripts}">'
            '<meta name="viewport" content="width=device-width">'
            f'<title>{html.escape(title)}</title>{style()}</head><body class="pst">{body}</body></html>\n')
