"""A real headless Chromium for the tests of pages, driven by its DevTools protocol over a pipe."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]
_PATIENCE = 60.0
CONTRAST = """(() => {
  const light = c => c.map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const ground = e => { for (; e; e = e.parentElement) {
    const c = numbers(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c.slice(0, 3); }
    return [255, 255, 255]; };
  const bad = [];
  for (const e of document.querySelectorAll('h1,h2,h3,p,li,td,th,dt,dd,b,span,code,summary,small')) {
    if (!e.innerText || !e.getClientRects().length) continue;
    const [a, b] = [light(numbers(getComputedStyle(e).color).slice(0, 3)), light(ground(e))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) bad.push(e.tagName + '.' + e.className + ': ' + e.innerText.slice(0, 30));
  }
  return [...new Set(bad)];
})()"""
"""The words on a page whose contrast is below 4.5 to 1."""


class Browser:
    """One tab. Everything that the page logs, and everything that it asks for, is kept."""

    def __init__(self, profile: Path) -> None:
        to_browser, from_us = os.pipe()
        to_us, from_browser = os.pipe()
        self._write, self._read, self._buffer, self._number = from_us, to_us, b"", 0
        self.events: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "-", str(PROGRAM), *_FLAGS,
             f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        tab = self._call("Target.createTarget", None, url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", None, targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One call of the protocol."""
        return self._call(method, self._session, **params)

    def _call(self, method: str, session: str | None, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {
            "id": self._number,
            "method": method,
            "params": params,
            **({"sessionId": session} if session else {}),
        }
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + _PATIENCE
        while (answer := self._next(until)).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return dict(answer["result"])

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self._read, 1 << 20)
            assert piece, "the browser has ended"
            self._buffer += piece
        message, self._buffer = self._buffer.split(b"\0", 1)
        return dict(json.loads(message))

    def open(self, page: Path) -> None:
        """Loads a file and waits until it is there."""
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        until = time.monotonic() + _PATIENCE
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next(until))

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript is on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def show(self, width: int, height: int = 900, dark: bool = False, media: str = "screen") -> None:
        """The size of the window, and what the reader prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def press(self, key: str) -> None:
        """Presses a key such as `ArrowLeft`."""
        codes = {"Tab": 9, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40}
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def picture(self, width: int, height: int) -> bytes:
        """The upper part of the page as a PNG."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        return base64.b64decode(self.call("Page.captureScreenshot", clip=clip)["data"])

    def pdf(self) -> bytes:
        """The page as it prints."""
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True)["data"])

    def complaints(self) -> list[str]:
        """What the page or the browser logged: errors, warnings, violations of its policy."""
        self.value("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
        words = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"])[:500] for event in self.events if event.get("method") in words]

    def requests(self) -> list[str]:
        """The addresses that were asked for."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def close(self) -> None:
        """Ends the browser."""
        os.close(self._write)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()
        os.close(self._read)


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own."""
    with tempfile.TemporaryDirectory(prefix="slurmopt-browser-", ignore_cleanup_errors=True) as profile:
        started = Browser(Path(profile))
        try:
            yield started
        finally:
            started.close()
