"""Take the pictures of whole pages in docs/pictures: pages of `demo`, in Chromium.

python -m tests.pictures        takes all of them anew
"""

import base64
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from profiling.verbs import demo
from tests.helpers.chromium import chromium, open_page
from tests.paths import PROJECT

PICTURES = PROJECT / "docs" / "pictures"
SHEET = 703  # px between the margins of A4
HERO = "#steps, #waterfall"  # so that verdict and kernel families fit one picture
BUT_GPU = "#verdict, #s0-summary, #s0-loss, #s0-speed"  # so that the GPU's curves come first


@dataclass(frozen=True)
class Picture:
    page: str  # of the demo
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
    "dashboard_light": Picture("dashboard", 1200, 1000),
    "dashboard_dark": Picture("dashboard", 1200, 1000, "dark"),
    "dashboard_gpu_light": Picture("dashboard", 1200, 1000, without=BUT_GPU),
    "dashboard_gpu_dark": Picture("dashboard", 1200, 1000, "dark", without=BUT_GPU),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, chromium() as driver:
        demo.main(["-o", folder, "--no-open"])
        for name, picture in TAKEN.items():
            path = PICTURES / f"{name}.png"
            path.write_bytes(take_picture(driver, Path(folder), picture))
            print(f"{path.name}  {path.stat().st_size:,} bytes")


def take_picture(driver, folder: Path, picture: Picture) -> bytes:
    """PNG of what a window of the picture's size shows first."""
    size = {"width": picture.width, "height": picture.height, "deviceScaleFactor": 1}
    theme = {"name": "prefers-color-scheme", "value": picture.theme}
    send = driver.execute_cdp_cmd
    send("Emulation.setScrollbarsHidden", {"hidden": True})
    send("Emulation.setDeviceMetricsOverride", size | {"mobile": False})
    send("Emulation.setEmulatedMedia", {"media": picture.media, "features": [theme]})
    driver.get("about:blank")
    open_page(driver, folder / f"demo-{picture.page}.html")
    if picture.without:
        hide = "document.querySelectorAll(arguments[0]).forEach(section => section.remove())"
        driver.execute_script(hide, picture.without)
    if picture.media == "print":
        driver.execute_script("dispatchEvent(new Event('beforeprint'))")
    time.sleep(1)  # charts take the size of their window
    return base64.b64decode(send("Page.captureScreenshot", {"format": "png"})["data"])


if __name__ == "__main__":
    main()
