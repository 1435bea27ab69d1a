"""Take the pictures of whole pages in docs/pictures: pages of `demo`, in Chromium.

python -m tests.pictures        takes all of them anew
python -m tests.pictures OUT    those in docs/pictures/pages: pages before and after, side by side,
                                of the folder OUT of `python -m validation pages before=CHECKOUT`
"""

import base64
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from profiling.verbs import demo, report
from tests.helpers.chromium import chromium, load, open_page
from tests.paths import PROJECT
from validation.browser import resize

PICTURES = PROJECT / "docs" / "pictures"
SNAPSHOT = PROJECT / "tests" / "captures" / "memory" / "leaky.pickle"
SHEET = 703  # px between the margins of A4
HERO = "#steps, #waterfall"  # so that verdict and kernel families fit one picture
BUT_GPU = "#verdict, #s0-summary, #s0-loss, #s0-speed"  # so that the GPU's curves come first


@dataclass(frozen=True)
class Picture:
    page: str  # of the demo, `home`, or `memory`, that of section 19 of the guide
    width: int
    height: int
    theme: str = "light"
    media: str = ""  # or print
    without: str = ""  # sections that are left out, as a CSS selector


TAKEN = {
    "compare_light": Picture("compare", 1200, 1012, without=HERO),
    "compare_dark": Picture("compare", 1200, 1012, "dark", without=HERO),
    "report_light": Picture("report", 1200, 1000),
    "report_dark": Picture("report", 1200, 1000, "dark"),
    "report_phone": Picture("report", 390, 1300),
    "report_print": Picture("report", SHEET, 1400, media="print"),
    "ranks_light": Picture("ranks", 1200, 1480, without="#waits"),
    "ranks_dark": Picture("ranks", 1200, 1480, "dark", without="#waits"),
    "memory_light": Picture("memory", 1200, 1000),
    "memory_phone": Picture("memory", 390, 1300),
    "memory_print": Picture("memory", SHEET, 1400, media="print"),
    "dashboard_light": Picture("dashboard", 1200, 1000),
    "dashboard_dark": Picture("dashboard", 1200, 1000, "dark"),
    "dashboard_gpu_light": Picture("dashboard", 1200, 1000, without=BUT_GPU),
    "dashboard_gpu_dark": Picture("dashboard", 1200, 1000, "dark", without=BUT_GPU),
}


SIDES = ("before", "after")
SCREENS = (Picture("", 1440, 900), Picture("", 1440, 900, "dark"))
SMALL = (Picture("", 390, 844), Picture("", SHEET, 994, media="print"))  # a phone, the first sheet
COMPOSED = {"screen": (SCREENS, 2, 760), "small": (SMALL, 4, 0)}  # pictures, columns, width of each
QUALITY = 45  # of WebP; text stays legible
COMPARED = ("report", "compare", "ranks", "dashboard", "home")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, chromium() as driver:
        if len(sys.argv) > 1:
            compose_all(driver, Path(sys.argv[1]), Path(folder))
            return
        demo.main(["-o", folder, "--no-open"])
        report.main([str(SNAPSHOT), "--html", f"{folder}/demo-memory.html"])
        for name, picture in TAKEN.items():
            page = Path(folder) / f"demo-{picture.page}.html"
            put(f"{name}.png", take_picture(driver, page, picture))


def put(name: str, content: bytes) -> None:
    path = PICTURES / name
    path.write_bytes(content)
    print(f"{path.name}  {len(content):,} bytes")


def take_picture(driver, page: Path, picture: Picture) -> bytes:
    """PNG of what a window of the picture's size shows first."""
    size = picture.width, picture.height, picture.theme
    resize(driver, *size)
    if picture.media == "print":  # as soon as it is loaded
        load(driver, page.as_uri())
        resize(driver, *size, picture.media)
        driver.execute_script("dispatchEvent(new Event('beforeprint'))")
        return screenshot(driver)
    open_page(driver, page)
    if picture.without:
        hide = "document.querySelectorAll(arguments[0]).forEach(section => section.remove())"
        driver.execute_script(hide, picture.without)
    time.sleep(1)  # charts take the size of their window
    return screenshot(driver)


def screenshot(driver, **how) -> bytes:
    how = how or {"format": "png"}
    return base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", how)["data"])


def compose_all(driver, out: Path, folder: Path) -> None:
    """Write docs/pictures/pages, NAME-screen.webp and NAME-small.webp of each page."""
    for name in COMPARED:
        for kind, (pictures, columns, width) in COMPOSED.items():
            files = []
            for picture in pictures:
                for side in SIDES:
                    page = out / side / f"{'' if name == 'home' else 'demo-'}{name}.html"
                    if page.exists():
                        file = folder / f"{name}-{kind}-{len(files)}.png"
                        file.write_bytes(take_picture(driver, page, picture))
                        files.append((side, file))
            put(f"pages/{name}-{kind}.webp", compose(driver, folder, files, columns, width))


def compose(driver, folder: Path, files: list[tuple[str, Path]], columns: int, width: int) -> bytes:
    """WebP of pictures side by side, each below its side's name, in rows of so many columns."""
    columns = min(columns, len(files))
    size = f"width: {width}px" if width else "height: 760px"
    shown = "".join(
        f"<figure><figcaption>{side}</figcaption><img src='{file.name}' style='{size}'></figure>"
        for side, file in files
    )
    style = f"display: inline-grid; grid-template-columns: repeat({columns}, auto); gap: 10px"
    page = folder / "composed.html"
    page.write_text(
        "<!DOCTYPE html><style>body {margin: 0; background: #888; font: 16px sans-serif}"
        f"main {{padding: 10px; {style}}} figure {{margin: 0}} img {{display: block}}</style>"
        f"<main>{shown}</main>"
    )
    resize(driver, 3000, 3000)
    load(driver, page.as_uri())
    box = "const {width, height} = document.querySelector('main').getBoundingClientRect();"
    clip = driver.execute_script(f"{box} return {{x: 0, y: 0, width, height, scale: 1}}")
    return screenshot(driver, format="webp", quality=QUALITY, clip=clip)


if __name__ == "__main__":
    main()
