"""Puts a page into an inline frame, for the output of a notebook's cell."""

from html import escape

from cli.plain import without_controls

# scripts of the page get no access to the notebook that it is in
SANDBOX = "allow-scripts allow-downloads"
# in a frame, links to the page's own sections would lead to the notebook's address
BASE = '<base href="about:srcdoc">'


def frame(page: str, sentence: str, height: int) -> str:
    """HTML text of the page in a frame `height` CSS pixels high, on which its own policy holds.

    It is loaded once it is near the screen. The `sentence` is seen where frames are taken out: in a
    notebook that is not trusted, on GitHub.
    """
    content = escape(page.replace("<head>", f"<head>\n{BASE}", 1))
    said = escape(without_controls(sentence))
    return (
        f'<div style="position:relative;height:{height}px"><p>{said}</p>'
        f'<iframe title="{said}" sandbox="{SANDBOX}" loading="lazy" srcdoc="{content}" '
        'style="position:absolute;inset:0;width:100%;height:100%;border:0"></iframe></div>\n'
    )
