"""The page in a real browser, on a desktop and on a phone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from widthwise.report import build_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed: the page cannot be looked at"
)

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Measured inside the page, in a frame of the wanted width: a headless window cannot be as narrow as a phone.
MEASURE = """
<script>
addEventListener("load", () => {
  const wide = [...document.querySelectorAll("body *")].filter(e =>
    !e.closest(".scroll") && !e.closest("svg") && !e.matches(".skip")
    && e.getBoundingClientRect().right > innerWidth + 1);
  const plots = [...document.querySelectorAll(".plot svg")].map(e => e.getBoundingClientRect());
  parent.postMessage({
    inner: innerWidth,
    scroll: document.documentElement.scrollWidth,
    wide: wide.map(e => e.tagName + "." + e.className),
    plots: plots.map(b => [b.width, b.height]),
    scrolling: [...document.querySelectorAll(".scroll")].some(e => e.scrollWidth > e.clientWidth),
  }, "*");
});
</script>
"""
FRAME = """<!DOCTYPE html><pre id="found"></pre><script>
addEventListener("message", e => { document.getElementById("found").textContent = JSON.stringify(e.data); });
</script><iframe src="measured.html" style="width:{width}px;height:900px;border:0"></iframe>"""


def _chromium(*arguments: str, profile: Path) -> str:
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.fixture(scope="module")
def page(write_run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browser")
    runs = [
        write_run(root, name, rounds=5, gamma=0.25)
        for name in ("hasfl", "a-method-with-a-very-long-name" * 2)
    ]
    runs.append(write_run(root, "fedavg", rounds=5, capacity_link=None, finished=False))
    return build_report(runs, root / "report.html")


@pytest.mark.parametrize("width", [1280, 390])
def test_report_fits_the_screen(page, tmp_path: Path, width):
    text = page.read_text(encoding="utf-8")
    # The page forbids scripts; the measured copy must allow the one that measures.
    open_text, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert count == 1
    measured = open_text.replace("</body>", f"{MEASURE}</body>")
    (tmp_path / "measured.html").write_text(measured, encoding="utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.replace("{width}", str(width)), encoding="utf-8")
    dom = _chromium("--virtual-time-budget=5000", "--dump-dom", frame.as_uri(), profile=tmp_path / "profile")
    match = re.search(r'<pre id="found">(\{.*?\})</pre>', dom)
    assert match, dom[:500]
    found = json.loads(match.group(1))
    assert found["inner"] == width
    assert found["scroll"] <= width
    assert found["wide"] == []
    assert len(found["plots"]) >= 10
    assert all(shown > 250 and height > 120 for shown, height in found["plots"])
    assert found["scrolling"] or width > 390  # wide tables scroll inside their own box on a phone


def test_report_draws_something_in_every_part_of_the_screen(page, tmp_path: Path):
    from PIL import Image

    shot = tmp_path / "shot.png"
    _chromium(
        "--hide-scrollbars",
        "--window-size=1280,1600",
        f"--screenshot={shot}",
        page.as_uri(),
        profile=tmp_path / "profile",
    )
    with Image.open(shot) as image:
        assert image.width == 1280
        grey = image.convert("L")
        bands = [grey.crop((0, top, 1280, top + 400)).getextrema() for top in range(0, 1600, 400)]
    # Each band of 400 pixels holds dark text or lines on a white ground.
    assert all(low < 110 and high == 255 for low, high in bands)
