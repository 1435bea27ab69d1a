"""Faults of a page for readers who hear it, use keys or see little, as axe-core finds them.

The package axe-playwright-python holds axe's script, which runs in any browser.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from validation.browser import AXE as PACKAGE

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

UNFOLD = """
const all = (selector) => [...document.querySelectorAll(selector)];
const few = all('.numbers').slice(0, 3);  // of the tables of a dashboard's curves three are enough
for (const each of [...all('details:not(.numbers)'), ...few]) each.open = true;
document.getElementById('export')?.showPopover();
"""
RUN = """
const [rules, done] = arguments, mismatch = {"label-content-name-mismatch": {enabled: true}};
const how = {rules: mismatch, resultTypes: ["violations"], ...(rules && {runOnly: rules})};
const drawn = window.Plotly ? turn : Promise.resolve();
drawn.then(() => axe.run(document, how)).then(({violations, incomplete}) => done(
  [...violations, ...incomplete.filter(({id}) => id in mismatch)].map(({id, impact, nodes}) =>
    [id, impact, ...nodes.map(({target}) => target.join(" "))])));
"""


@cache
def script() -> str:
    package = find_spec(PACKAGE)
    assert package and package.origin, f"{PACKAGE} is not installed"
    return (Path(package.origin).parent / "axe.min.js").read_text(encoding="utf-8")


def violations(driver: "Chrome") -> list[list[str]]:
    """[rule, impact, selectors of the elements...] of each fault of the open page, unfolded.

    The second theme is searched for faults of contrast alone.
    """
    driver.execute_script(script())
    driver.execute_script(UNFOLD)
    driver.set_script_timeout(300)
    found: list[list[str]] = driver.execute_async_script(RUN, None)
    driver.execute_script("document.getElementById('theme').click()")
    found += driver.execute_async_script(RUN, ["color-contrast"])
    driver.execute_script("localStorage.clear()")
    return found
