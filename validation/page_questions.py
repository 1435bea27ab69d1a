"""Ten questions of strangers, answered on the pages by a script that clicks, types and scrolls.

Called by validation.pages. Seconds are the machine's, by the page's own clock: from the start of
its loading until the answer is drawn in the window. How long a person looks is not in them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from validation.browser import resize

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

WIDTH, HEIGHT = 1440, 900  # px
FOLLOWED = """
(() => {
  const frame = () => new Promise(requestAnimationFrame);
  const parsed = (step) => {
    const [, does, selector, text] = step.match(/^(\\w+) ?(.*?)(?: :: (.*))?$/);
    return {does, selector, text: text ?? ""};
  };
  const taken = {seconds: 0, clicks: 0, typed: 0, screens: 0, said: ""};
  let saved = "", usable = false; // its scripts have run
  addEventListener("DOMContentLoaded", () => { usable = true; });
  HTMLAnchorElement.prototype.click = function () {
    if (this.download) saved = this.download;
    else HTMLElement.prototype.click.call(this);
  };
  const find = ({does, selector, text}) => [...document.querySelectorAll(selector)].find((each) =>
    each.checkVisibility() && (does === "type" || new RegExp(text).test(each.textContent)));
  async function wait(step, comes) {
    const end = performance.now() + 4000;
    for (let come; performance.now() < end; await frame()) if ((come = comes(step))) return come;
    throw new Error(`${step.does} ${step.selector} ${step.text}`);
  }
  const ready = (step) => (step.does === "see" || usable) && find(step);
  const drawn = (element) => !element.matches(".chart") || element.querySelector(".main-svg");
  async function show(element) {
    for (let screens = 0; ; await frame()) {
      const {top, bottom} = element.getBoundingClientRect();
      const beyond = Math.max(-top, Math.min(bottom, top + innerHeight) - innerHeight);
      if (beyond < 1 && drawn(element)) { taken.screens += screens; return; }
      if (beyond < 1) continue;
      screens ||= Math.ceil(beyond / innerHeight);
      element.scrollIntoView({block: "center", behavior: "instant"});
    }
  }
  async function follow(steps) {
    for (const step of steps) {
      if (step.does === "save") { taken.said = await wait(step, () => saved); continue; }
      const element = await wait(step, ready);
      await show(element);
      if (step.does === "click") { element.click(); taken.clicks += 1; }
      if (step.does === "type") {
        element.value = step.text;
        element.dispatchEvent(new Event("input", {bubbles: true}));
        taken.typed += 1;
      }
      if (step.does === "see") taken.said ||= element.textContent.trim().replace(/\\s+/g, " ");
    }
    await frame(); await frame();
    return {...taken, seconds: performance.now() / 1000};
  }
  window.followed = follow(WAY.map(parsed)).catch((error) => ({missing: error.message}));
})();
"""


@dataclass(frozen=True)
class Question:
    """A question, the page that it is asked of, and the way to its answer.

    A way's steps are `click SELECTOR :: TEXT`, `see ...` and `type SELECTOR :: WORDS`, each at the
    first visible element of the selector that has the text, a regular expression; and `save`, which
    waits until a file is handed to the browser.
    """

    asked: str
    page: str
    way: tuple[str, ...]
    older: tuple[str, ...] | None = None  # of pages that lack a part of the way


@dataclass(frozen=True)
class Answer:
    """Effort of an answer, and how the answer begins."""

    seconds: float
    clicks: int
    typed: int  # fields
    screens: int  # of scrolling
    said: str


CAUSE, LAUNCH_ONCE = "see #verdict li :: kernel launches: the CPU", "see #verdict li :: cuda_graphs"
BEST = ("click #table-s0-summary th button :: best val loss", "see #table-s0-summary tbody tr")
QUESTIONS = (
    Question("Why is the GPU idle?", "eager", (CAUSE, "see [data-chart=breakdown]")),
    Question(
        "Which kernel takes most, and where is its longest?",
        "eager",
        (
            "click nav a :: ^Kernels$",
            "click #table-kernels [data-way=longest]",
            "see #timeline-view .details :: .",
        ),
    ),
    Question("Is B faster, how sure?", "demo-compare", ("see .verdict :: is 1.23x faster",)),
    Question("What did I change between these runs?", "demo-dashboard", ("see li :: differ in",)),
    Question(
        "Which of 30 runs is best at lr > 0.002?",
        "thirty",
        ("type [data-where] :: lr>0.002", *BEST),
        ("type #table-s0-summary input :: /learning_rate=0.00[36]/", *BEST),
    ),
    Question(
        "What should I try next, and what would it buy?",
        "eager",
        ("see h2, h3 :: ^Next: .* of .* ms", LAUNCH_ONCE),
        ("see h2, h3 :: ^Next", LAUNCH_ONCE, "see #verdict li :: up to .* ms per step"),
    ),
    Question(
        "How much memory does it take?",
        "demo-dashboard",
        ("see #table-s0-summary tbody tr :: GB",),
    ),
    Question(
        "Which rank is late, and at what cost?",
        "demo-ranks",
        ("see .verdict :: Rank 1 .* by 5.35 ms",),
    ),
    Question("Give me this figure for my slides", "eager", ("click [data-picture=png]", "save")),
    Question(
        "Send me the numbers",
        "eager",
        ("click [popovertarget=export]", "click [data-save=json]", "save"),
    ),
)


def answer(driver: "Chrome", question: Question, pages: Path) -> Answer | None:
    """Answer on the page in this folder; None: it is not to be had."""
    path = pages / f"{question.page}.html"
    taken = follow(driver, question.way, path)
    return follow(driver, question.older, path) if not taken and question.older else taken


def follow(driver: "Chrome", way: Sequence[str], path: Path) -> Answer | None:
    """Answer by this way on the page, opened anew; None where the page lacks a part of the way."""
    resize(driver, WIDTH, HEIGHT)
    driver.get("about:blank")
    source = {"source": FOLLOWED.replace("WAY", json.dumps(way))}
    script = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
    driver.get(path.as_uri())
    driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    driver.set_script_timeout(60)
    taken = driver.execute_async_script("followed.then(arguments[0])")
    return None if "missing" in taken else Answer(**taken)
