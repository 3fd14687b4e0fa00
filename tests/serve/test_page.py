"""The page in a real browser: what it shows, by mouse and keyboard, wide and narrow, and what stays text."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Page, expect, sync_playwright
from tests.serve.asking import Browser
from tests.serve.conftest import Start

from millpond.serve.page import TYPES, _files

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)
WIDTHS = [1600, 400]
VIEWS = ["", "tables", "tables/users", "tables/users/changes", "flows", "sources", "dead-letters", "sql", "plan"]
# Whatever of it becomes HTML would set a mark on the window.
HOSTILE = "<img src=x onerror=\"window.marked='yes'\"><script>window.marked='yes'</script>"
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("there is no Chromium: scripts/system.sh chromium installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Chromium) -> Iterator[Open]:
    """Opens a page at the URL of an app. At the end of the test: nothing went wrong in it, and nothing was loaded from
    elsewhere."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def open_at(url: str, path: str = "", *, width: int = 1600, expects: bool = False, **more: Any) -> Page:
        limit = 500 if expects else 400
        context = chromium.new_context(viewport={"width": width, "height": 900}, **more)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("request", lambda r: None if r.url.startswith((url, "blob:")) else wrong.append(r.url))
        page.on("response", lambda r: wrong.append(f"{r.status} {r.url}") if r.status >= limit else None)
        page.goto(f"{url}#/{path}")
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert wrong == []


def within(page: Page) -> bool:
    """Whether nothing is wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def see(page: Page, text: str | re.Pattern[str]) -> None:
    expect(page.locator("#view")).to_contain_text(text)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_view_fits_the_window_light_and_dark(start: Start, open_page: Open, width: int) -> None:
    app, _ = start()
    colours = set()
    for scheme in ("light", "dark"):
        page = open_page(app.http_url, width=width, color_scheme=scheme)
        for view in VIEWS:
            page.evaluate(f"location.hash = '#/{view}'")
            expect(page.locator("#view > *").first).to_be_visible()
            assert within(page), view
        colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_that_nothing_feeds_do_not_hide_the_graph(start: Start, open_page: Open, width: int) -> None:
    alone = "".join(f"CREATE TABLE alone_{n:02} (id INT PRIMARY KEY);" for n in range(40))
    long = "a_table_with_a_name_that_is_much_longer_than_others"
    text = f"CREATE TABLE orders (id INT PRIMARY KEY); CREATE TABLE {long} AS SELECT COUNT(*) AS n FROM orders; {alone}"
    app, _ = start(text)
    page = open_page(app.http_url, width=width)
    expect(page.locator(".node")).to_have_count(43)
    names = (long, "alone_00", "alone_39")
    boxes = {name: page.locator(f"[data-node='table:{name}']").bounding_box() for name in names}
    tops = [box["y"] for box in boxes.values() if box is not None]
    assert tops == sorted(tops), "what is connected comes first"
    assert page.locator(".graph").evaluate("graph => graph.getBoundingClientRect().height") < 2000
    page.evaluate("location.hash = '#/tables'")
    state = page.locator("#view tr", has_text=long).locator(".pill")
    box = state.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] < width, "a long name leaves room for the state"


def test_the_button_changes_light_and_dark_for_good(start: Start, open_page: Open) -> None:
    app, _ = start()
    page = open_page(app.http_url, color_scheme="light")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Light or dark").click()
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert before != after
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after


def test_numbers_move_and_a_flow_that_fails_turns_red(start: Start, open_page: Open) -> None:
    text = """
    CREATE STREAM orders (id INT, parts INT) FROM memory://orders;
    CREATE TABLE shares (id INT PRIMARY KEY, share INT);
    INSERT INTO shares SELECT id, 100 / parts FROM orders;
    """
    app, _ = start(text, http_write="true")
    page = open_page(app.http_url, expects=True)
    table = page.locator("[data-node='table:shares']")
    flow = page.locator(".node.flow")
    expect(table).to_contain_text("0 rows")
    expect(flow).to_have_class(re.compile(r"\bok\b"))
    app.feed("memory://orders").send([{"id": n, "parts": 4} for n in range(10)])
    expect(table).to_contain_text("10 rows")
    app.feed("memory://orders").send([{"id": 1, "parts": 0}])
    expect(flow).to_have_class(re.compile(r"\bbad\b"))
    see(page, "MP701")
    expect(page.locator("#top")).to_contain_text("1 failure")
    flow.click()
    expect(page.locator("[data-flow]")).to_contain_text("failed")
    expect(page.locator("[data-flow] .problem")).to_contain_text("Guard it with CASE")
    expect(page.locator("pre.sql")).to_contain_text("100 / parts")
    page.get_by_role("button", name="Restart").click()
    expect(page.locator("[data-flow]")).to_contain_text("Division by zero")


def test_a_table_shows_its_rows_filtered_and_its_changes_as_they_come(start: Start, open_page: Open) -> None:
    app, _ = start()
    page = open_page(app.http_url, "tables", expects=True)
    page.get_by_role("link", name="users", exact=True).click()
    rows = page.locator("#view tbody tr")
    expect(rows).to_have_count(3)
    expect(page.locator("#view")).to_contain_text("NULL")
    app.execute("INSERT INTO users VALUES ('u4', 'Di', 'GOLD', 1)")
    expect(rows).to_have_count(4)
    page.get_by_label("Condition").fill("tier = 'GOLD'")
    page.get_by_label("Condition").press("Enter")
    expect(rows).to_have_count(3)
    page.get_by_label("Condition").fill("teir = 'GOLD'")
    page.get_by_label("Condition").press("Enter")
    see(page, "MP202")
    page.get_by_role("tab", name="Changes").click()
    see(page, "Waiting for a commit")
    app.execute("DELETE FROM users WHERE user_id = 'u4'")
    expect(page.locator("tr.change.delete")).to_contain_text("u4")
    page.get_by_role("tab", name="Columns").click()
    see(page, "DECIMAL(12,2)")
    page.get_by_role("tab", name="Statistics").click()
    see(page, "bytes memory")


def test_a_query_answers_completes_names_and_shows_its_mistakes(start: Start, open_page: Open) -> None:
    app, _ = start()
    page = open_page(app.http_url, "sql", expects=True)
    box = page.get_by_label("SQL", exact=True)
    box.fill("")
    box.press_sequentially("SELECT u.na")
    box.fill("")
    page.wait_for_function("fetch('/api/completions').then(() => true)")
    box.press_sequentially("SELECT * FROM us")
    expect(page.get_by_role("option").first).to_contain_text("users")
    box.press("Tab")
    box.press_sequentially(" u WHERE u.ti")
    expect(page.get_by_role("option").first).to_contain_text("tier")
    box.press("Enter")
    box.press_sequentially(" = 'GOLD'")
    box.press("Control+Enter")
    expect(page.locator("#view tbody tr")).to_have_count(2)
    box.fill("SELECT *\nFROM usres")
    page.get_by_role("button", name="Run").click()
    see(page, "MP201")
    expect(page.locator(".excerpt")).to_contain_text("^^^^^")
    box.fill("DELETE FROM users")
    page.get_by_role("button", name="Run").click()
    see(page, "read-only")
    assert len(app.table("users")) == 3


def test_with_http_write_the_box_changes_tables(start: Start, open_page: Open) -> None:
    app, _ = start(http_write="true")
    page = open_page(app.http_url, "sql")
    page.get_by_label("SQL", exact=True).fill("DELETE FROM users WHERE tier = 'GOLD'")
    page.get_by_role("button", name="Run").click()
    see(page, "2 rows changed.")
    assert len(app.table("users")) == 1


def test_dead_letters_show_their_bytes_and_are_sent_again(start: Start, open_page: Open) -> None:
    text = """
    CREATE STREAM readings (id INT, n INT) FROM memory://readings;
    CREATE TABLE kept (id INT PRIMARY KEY, n INT NOT NULL);
    INSERT INTO kept SELECT id, n FROM readings;
    """
    app, _ = start(text, http_write="true")
    app.feed("memory://readings").send([{"id": 1, "n": None}, {"id": 2, "n": 2}])
    app.drain()
    page = open_page(app.http_url, "dead-letters")
    letter = page.locator("details.letter")
    expect(letter).to_have_count(1)
    letter.locator("summary").click()
    expect(letter.locator("pre")).to_contain_text('"id"')
    page.get_by_role("button", name="Replay all").click()
    see(page, "1 record sent again, 1 rejected again")


def test_names_values_and_errors_stay_text(start: Start, open_page: Open) -> None:
    name = f"`{HOSTILE}`"
    app, _ = start(f"CREATE TABLE {name} (id INT PRIMARY KEY, {name} STRING);")
    app.table(HOSTILE).insert([{"id": 1, HOSTILE: HOSTILE}])
    page = open_page(app.http_url, expects=True)
    expect(page.locator(".node.table")).to_have_count(2)
    for view in ("", "tables", "sources", "plan"):
        page.evaluate(f"location.hash = '#/{view}'")
        expect(page.locator("#view > *").first).to_be_visible()
    page.evaluate("location.hash = '#/tables'")
    page.get_by_role("link", name=HOSTILE).click()
    expect(page.locator("#view td").nth(1)).to_have_text(HOSTILE)
    page.get_by_role("tab", name="Changes").click()
    see(page, "Waiting for a commit")
    app.table(HOSTILE).upsert([{"id": 2, HOSTILE: HOSTILE}])
    expect(page.locator("tr.change")).to_contain_text(HOSTILE)
    page.evaluate("location.hash = '#/sql'")
    page.get_by_label("SQL", exact=True).fill(f"SELECT `{HOSTILE}` FROM {name} AS x WHERE nothing")
    page.get_by_role("button", name="Run").click()
    see(page, "MP202")
    assert page.evaluate("window.marked") is None
    assert page.locator("#view img, #view script").count() == 0


def test_the_page_is_used_by_keyboard(start: Start, open_page: Open) -> None:
    app, _ = start()
    page = open_page(app.http_url)
    expect(page.locator("[data-node='table:users']")).to_be_visible()
    page.keyboard.press("2")
    expect(page.locator("nav [aria-current]")).to_contain_text("Tables")
    page.keyboard.press("/")
    page.keyboard.type("use")
    expect(page.locator("#view tbody tr")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator("#view tbody tr")).to_have_count(2)
    link = page.get_by_role("link", name="users", exact=True)
    link.focus()
    # The figures are written anew each second; what has the focus keeps it.
    for _ in range(2):
        page.wait_for_event("requestfinished", lambda request: request.url.endswith("/api/stats"))
    expect(link).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#view h2")).to_have_text("users")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("1")
    expect(page.locator(".graph")).to_be_visible()


def test_an_app_with_a_token_asks_for_it_once(start: Start, open_page: Open) -> None:
    app, _ = start(http_token="sesame")
    page = open_page(app.http_url, expects=True)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    see(page, "The token is wrong.")
    page.get_by_label("Token").fill("sesame")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("[data-node='table:users']")).to_be_visible()
    page.reload()
    expect(page.locator("[data-node='table:users']")).to_be_visible()
    assert "sesame" not in page.evaluate("document.cookie + JSON.stringify(localStorage)")


def test_an_app_that_stops_is_shown_as_not_connected(start: Start, open_page: Open) -> None:
    app, _ = start()
    page = open_page(app.http_url)
    expect(page.locator("#top")).to_contain_text("running")
    app.stop()
    expect(page.locator("#top")).to_contain_text("not connected")


def test_the_files_of_the_page_name_nothing_elsewhere(browser: Browser) -> None:
    for name, (content, tag) in _files().items():
        found = browser.get(f"/page/{name}")
        assert (found.body, found.headers["content-type"]) == (content, TYPES[Path(name).suffix])
        assert browser.get(f"/page/{name}", if_none_match=tag).status == 304
        addresses = set(re.findall(r"(?:https?:)?//[\w.]+\.\w+", content.decode())) - {"http://www.w3.org"}
        assert addresses == set(), name
    assert browser.get("/").text.startswith("<!doctype html>")
    assert browser.get("/page/nothing.js").status == 404
    assert browser.get("/page/..%2f..%2fserver.py").status == 404


def test_tables_alone_are_enough_for_the_graph(browser: Browser) -> None:
    found = browser.get("/api/graph").json
    assert {node["id"] for node in found["nodes"]} == {"table:users", "table:dead_letters"}
