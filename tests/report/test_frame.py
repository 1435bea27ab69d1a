"""Pages in the frame of a notebook's cell, in Chromium."""

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from profiling import open_capture
from profiling.library import shown
from tests.helpers.chromium import load
from tests.paths import CAPTURES

pytestmark = pytest.mark.slow
STATE = """
return {address: location.href, top: scrollY > 100, title: document.title,
  wide: document.documentElement.scrollWidth > innerWidth}
"""
REACH = "try { return parent.document.title } catch (error) { return error.name }"


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """Address of a page with the output of show() in it, as a notebook's server has it."""
    outputs = []
    monkeypatch.setattr(shown, "in_notebook", lambda: True)
    monkeypatch.setattr(shown, "display", lambda bundle: outputs.append(bundle))
    open_capture(CAPTURES / "slow_compile.sqlite.gz").show(height=600)
    (bundle,) = outputs
    assert bundle["text/plain"].startswith("slow_compile.sqlite.gz · NVIDIA H200\n")
    above = '<!doctype html><title>a notebook</title><div style="height: 2000px"></div>'
    page = f"{above}{bundle['text/html']}"
    (tmp_path / "notebook.html").write_text(page, "utf-8")
    handler = functools.partial(SimpleHTTPRequestHandler, directory=tmp_path)
    handler.log_message = lambda *_: None
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/notebook.html"
    server.shutdown()
    server.server_close()


def test_a_page_in_a_cell_is_whole_and_apart(notebook, browser):
    browser.set_window_size(1280, 900)
    load(browser, notebook)
    frame = browser.find_element("tag name", "iframe")
    assert frame.size["height"] == 600
    assert "Bound by GPU memory bandwidth" in frame.get_attribute("title")
    browser.execute_script("arguments[0].scrollIntoView()", frame)
    browser.switch_to.frame(frame)
    try:
        assert browser.execute_script(REACH) == "SecurityError"
        browser.find_element("css selector", "nav a[href='#kernels']").click()
        state = browser.execute_script(STATE)
    finally:
        browser.switch_to.default_content()
    assert state["address"].startswith("about:srcdoc#kernels") and state["top"]
    assert state["title"].startswith("Bound by GPU memory bandwidth") and not state["wide"]
    policies = [line for line in browser.get_log("browser") if "Policy" in line["message"]]
    assert not policies
