"""The console of a running cluster: three brokers, a topic under load, and what a user does by mouse or by keys."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from milena.steering.caller import NodeCommands
from milena.testing.local_cluster import LocalCluster
from milena.up import http_files
from milena.up.layout import ClusterDir
from tests.wire.hanging import UNVERIFIED, make_transactions

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.browser.conftest import Opener

VIEWS = ("overview", "groups", "transactions", "tier", "records", "faults", "scenarios")
TIERED = {"remote.log.storage.system.enable": "true", "remote.log.manager.task.interval.ms": "500"}
TIERED_TOPIC = {"remote.storage.enable": "true", "internal.segment.bytes": "20000"}
PICTURED_STEP = 4


class Console(NamedTuple):
    """A cluster with its console."""

    cluster: LocalCluster
    open: Callable[..., Page]

    def view(self, name: str, **options: object) -> Page:
        """Open a view, signed in, with live data."""
        page = self.open(**options)
        page.evaluate("view => { location.hash = view }", f"#/{name}")
        page.locator("[data-connection=live]").wait_for()
        return page


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    pytest.importorskip("fastapi", reason="needs the extra console")
    started = LocalCluster.start(
        tmp_path_factory.mktemp("console"),
        brokers=3,
        overrides=TIERED | UNVERIFIED,
        topics=["orders:6:3", "letters:1:1", "notes:1:1"],
        lab=True,
        options=["--console", "--http=0"],
    )
    yield started
    started.stop()


@pytest.fixture
def console(cluster: LocalCluster, open_page: Opener) -> Console:
    folder = ClusterDir(cluster.directory)

    def opened(**options: object) -> Page:
        address = http_files.address(folder)
        assert address is not None
        page = open_page(http_files.link(folder, address), width=1280, height=800, **options)
        page.set_default_timeout(60_000)
        return page

    return Console(cluster, opened)


@pytest.fixture
def load(cluster: LocalCluster) -> Iterator[None]:
    """Records for ``orders`` and a group that reads them, until the test ends."""
    ended = threading.Event()
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])

    def work() -> None:
        count = 0
        while not ended.is_set():
            for _ in range(20):
                count += 1
                producer.produce("orders", key=f"customer-{count % 40}", value=json.dumps({"order": count}))
            producer.poll(0)
            consumer.consume(10, 0.05)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    ended.set()
    thread.join()
    consumer.close()
    producer.flush(10)


def number(place: Locator) -> int:
    return int(re.sub(r"\D", "", place.inner_text()) or -1)


def rises(place: Locator) -> None:
    """Wait until the number in an element is greater than it is now."""
    before = number(place)
    place.page.wait_for_function(
        "([place, before]) => Number(place.innerText.replace(/\\D/g, '')) > before",
        arg=[place.element_handle(), before],
    )


def choose(page: Page, name: str) -> Locator:
    """Choose a partition in the list of the overview; its details."""
    page.get_by_role("searchbox", name="Name").fill(name)
    page.get_by_role("option", name=re.compile(f"^{name} ")).click()
    return page.get_by_role("region", name=f"Partition {name}")


@pytest.mark.usefixtures("load")
def test_the_overview_follows_records_as_they_are_appended(
    console: Console, picture: Callable[[Page, str], None]
) -> None:
    page = console.view("overview")
    assert page.locator("[data-node]").count() == 4
    details = choose(page, "orders-1")
    rises(details.locator("tbody tr").first.locator("td").nth(5))
    page.locator("figcaption", has_text="Appended").filter(has_text=re.compile("[1-9]")).wait_for()
    assert re.search(r"\d@\d+ \d@\d+ \d@\d+", details.inner_text())
    page.get_by_role("searchbox", name="Name").fill("")
    page.get_by_text("all in ISR", exact=False).first.wait_for()
    picture(page, "console-overview")


def test_a_paused_broker_is_shown_and_resumes_by_its_button(console: Console) -> None:
    page = console.view("overview")
    broker = page.locator("[data-node=broker-3]")
    broker.get_by_role("button", name="Pause broker-3").click()
    page.locator("[data-node=broker-3][data-state=paused]").wait_for()
    page.get_by_role("list", name="Events, newest first").get_by_text("paused").first.wait_for()
    broker.get_by_role("button", name="Resume broker-3").click()
    page.locator("[data-node=broker-3][data-state=up]").wait_for()


def test_a_rule_holds_requests_until_it_is_released(console: Console, picture: Callable[[Page, str], None]) -> None:
    page = console.view("faults?node=broker-1")
    card = page.locator("[data-command=hold]")
    card.get_by_label("api").fill("FETCH")
    card.get_by_label("peer").fill("2")
    card.get_by_role("button", name="Hold requests").click()
    active = page.get_by_role("region", name="Active faults")
    rule = active.get_by_role("listitem").filter(has_text=re.compile(r"hold FETCH .*peer=2.*\([1-9]\d* hits"))
    rule.wait_for()
    page.evaluate("scrollTo(0, 0)")
    picture(page, "console-faults")
    assert [one["command"] for one in commands(console, 1).call("rules")] == ["hold"]
    rule.get_by_role("button", name="Release").click()
    active.get_by_text("none that the nodes show").wait_for()
    assert commands(console, 1).call("rules") == []


def commands(console: Console, node: int) -> NodeCommands:
    return console.cluster.lab_commands(node)


def test_a_command_names_what_undoes_it_and_a_cut_link_heals(console: Console) -> None:
    page = console.view("faults?node=broker-1")
    card = page.locator("[data-command=cut]")
    assert "Undo: heal" in card.inner_text()
    card.get_by_label("peer").fill("2")
    card.get_by_role("button", name=re.compile("^Cut a link")).click()
    active = page.get_by_role("region", name="Active faults")
    active.get_by_text("link with 2 cut").wait_for()
    active.get_by_role("button", name="Heal").click()
    active.get_by_text("none that the nodes show").wait_for()


@pytest.mark.parametrize(
    ("command", "field", "value", "shown"),
    [
        ("slow_disk", "ms", "2", r"disk is slow \(path=.*, ms=2\)"),
        ("jump_clock", "ms", "5000", r"clock moved \(ms=5000\)"),
        ("break_tier", "delay_ms", "3", r"tier has a fault \(delay_ms=3\)"),
    ],
)
def test_a_fault_of_disk_clock_or_tier_is_listed_until_its_button_ends_it(
    console: Console, command: str, field: str, value: str, shown: str
) -> None:
    page = console.view("faults?node=broker-2")
    card = page.locator(f"[data-command={command}]")
    card.get_by_label(re.compile(f"^{field}")).fill(value)
    card.locator("button:not([type=button])").click()
    active = page.get_by_role("region", name="Active faults")
    fault = active.get_by_role("listitem").filter(has_text=re.compile(f"^broker-2: {shown}"))
    fault.get_by_role("button", name="End broker-2").click()
    active.get_by_text("none that the nodes show").wait_for()
    assert commands(console, 2).call("faults") == []


def test_records_are_found_by_offset_and_key_and_shown_as_text_json_and_hex(
    console: Console, picture: Callable[[Page, str], None]
) -> None:
    producer = Producer({"bootstrap.servers": console.cluster.bootstrap})
    for at in range(12):
        producer.produce("letters", key=f"k{at % 3}", value=json.dumps({"at": at}), headers=[("from", b"a test")])
    producer.produce("letters", key="bytes", value=b"\xff\x00\x01")
    producer.flush(10)
    page = console.view("records?topic=letters&partition=0")
    rows = page.locator("table.record tbody tr")
    rows.filter(has_text="ff 00 01").wait_for()
    assert '"at": 0' in rows.first.inner_text()
    assert "from: a test" in rows.first.inner_text()
    page.get_by_label("Format").select_option("hex")
    assert "7b 22 61 74 22" in rows.first.inner_text()
    page.get_by_label("Format").select_option("auto")
    picture(page, "console-records")
    page.get_by_label("Search by").select_option("key")
    page.get_by_label("Key", exact=True).first.fill("k1")
    page.get_by_role("button", name="Read").click()
    page.get_by_text("4 records").wait_for()
    page.get_by_label("Search by").select_option("offset")
    page.get_by_label("From").fill("10")
    page.get_by_role("button", name="Read").click()
    page.locator("table.record tbody tr").first.get_by_text("10", exact=True).first.wait_for()


def test_a_produced_record_is_read_with_its_header(console: Console) -> None:
    page = console.view("records?topic=notes&partition=0")
    page.get_by_label("Key (empty: null)").fill("greeting")
    page.get_by_label("Value", exact=True).fill("a new note")
    page.get_by_label("Headers").fill("language: English")
    page.get_by_role("button", name="Produce").click()
    page.get_by_text("Produce to notes").first.wait_for()
    page.get_by_role("button", name="Read").click()
    row = page.locator("table.record tbody tr").filter(has_text="a new note")
    row.wait_for()
    assert "language: English" in row.inner_text()


@pytest.mark.usefixtures("load")
def test_a_group_is_shown_with_its_member_and_its_lag(console: Console) -> None:
    page = console.view("groups?group=billing")
    details = page.get_by_role("region", name="Group billing")
    details.get_by_text("orders: 0, 1, 2, 3, 4, 5").wait_for()
    page.get_by_role("row", name=re.compile("billing Stable")).wait_for()


@pytest.fixture
def transactions(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """A topic with an ended, an ongoing and a hanging transaction, whose ids begin with its name."""
    words = [word for word in re.split(r"[\W_]+", request.node.name) if word]
    name = "-".join([*words[2:4], words[-1]])
    thread = threading.Thread(target=make_transactions, args=(cluster.bootstrap, name))  # it needs an event loop
    thread.start()
    thread.join()
    return name


def test_a_hanging_transaction_is_marked_until_its_button_aborts_it(
    console: Console, transactions: str, picture: Callable[[Page, str], None]
) -> None:
    page = console.view("transactions")
    held = page.get_by_role("region", name="Partitions with open transactions")
    row = held.get_by_role("row", name=re.compile(f"^{transactions}-0 "))
    row.get_by_text("✗ hanging").wait_for()
    assert held.get_by_role("row", name=re.compile(f"^{transactions}-1 ")).get_by_text("✗ hanging").count() == 0
    picture(page, "console-transactions")
    page.get_by_role("link", name=f"{transactions}-ongoing").first.click()
    details = page.get_by_role("region", name=f"Transactional id {transactions}-ongoing")
    details.get_by_role("row", name=re.compile(f"^{transactions}-1 ")).wait_for()
    row.get_by_role("button", name=f"Abort the transaction in {transactions}-0").click()
    row.wait_for(state="detached")
    page.get_by_text("✓ Abort the transaction of producer id").wait_for()


def test_force_terminate_ends_the_transaction_of_an_id_which_is_an_event(console: Console, transactions: str) -> None:
    name = f"{transactions}-ongoing"
    page = console.view(f"transactions?id={name}")
    page.get_by_role("searchbox", name="Id").fill(transactions)
    row = page.get_by_role("group", name="Table of transactional ids").get_by_role("row", name=re.compile(name))
    row.get_by_text("▶ Ongoing").wait_for()
    details = page.get_by_role("region", name=f"Transactional id {name}")
    assert "This cannot be undone." in details.inner_text()
    details.get_by_role("button", name=f"Force-terminate {name}").click()
    row.get_by_text("· Empty").wait_for()
    page.get_by_role("combobox", name="State").select_option("CompleteCommit")
    page.get_by_role("button", name="Search all ids").click()
    page.get_by_text("1 of 1 ids found").wait_for()
    page.keyboard.press("Escape")
    page.evaluate("location.hash = '#/overview'")
    page.get_by_label("Show").nth(1).select_option("transactions")
    events = page.get_by_role("list", name="Events, newest first")
    events.get_by_text(f"{name}: producer fenced by InitProducerId").wait_for()


def test_records_say_what_became_of_their_transaction(console: Console, transactions: str) -> None:
    page = console.view(f"records?topic={transactions}&partition=1")
    rows = page.locator("table.record tbody tr")
    rows.filter(has_text="▶ open").filter(has_text="ongoing").wait_for()
    assert rows.count() == 3
    assert "✓ committed" in rows.nth(0).inner_text()
    assert "COMMIT marker" in rows.nth(1).inner_text()
    page.get_by_label("Isolation").select_option("read_committed")
    page.get_by_role("button", name="Read").click()
    page.get_by_text("2 records").wait_for()
    assert rows.filter(has_text="ongoing").count() == 0


def test_segments_are_shown_with_their_lineage_once_they_are_copied(console: Console) -> None:
    admin = AdminClient({"bootstrap.servers": console.cluster.bootstrap})
    admin.create_topics([NewTopic("cold", 1, 3, config=TIERED_TOPIC)])["cold"].result(60)
    page = console.view("tier?topic=cold")
    producer = Producer({"bootstrap.servers": console.cluster.bootstrap})
    for _ in range(60):
        producer.produce("cold", value=b"x" * 1000)
        producer.flush(10)  # a batch for each record, so that segments are rolled
    rows = page.get_by_role("group", name="Table of segments").locator("tbody tr")
    rows.nth(1).wait_for()
    assert "✓ the leader's" in rows.first.inner_text()
    assert "LE-0 from 0" in rows.first.inner_text()
    page.get_by_role("group", name="Segments of cold-0").get_by_text("remote tier").wait_for()


def test_a_scenario_is_stepped_through(console: Console, picture: Callable[[Page, str], None]) -> None:
    page = console.view("scenarios?scenario=kip405_5")
    page.get_by_role("button", name="Start", exact=True).click()
    title = page.locator("#step-title")
    title.filter(has_text=re.compile("^1\\. ")).wait_for()
    more = page.get_by_role("button", name="Next step")
    at = 1
    while more.is_enabled():
        at += 1
        more.click()
        title.filter(has_text=re.compile(f"^{at}\\. ")).wait_for()
        page.wait_for_function("() => !document.querySelector('.stepping .bar').innerText.includes('running')")
        if at == PICTURED_STEP:
            picture(page, "console-scenario")
    assert at > 3
    assert "OFFSET_MOVED_TO_TIERED_STORAGE" in "".join(whole_text(page, at))


def whole_text(page: Page, steps: int) -> list[str]:
    """The texts of all steps of the scenario on the page."""
    found = []
    for _ in range(steps):
        found.append(page.locator(".step-body").inner_text())
        page.keyboard.press("ArrowLeft")
    return found


def test_the_keyboard_alone_reaches_a_partition_and_pauses_a_broker(console: Console) -> None:
    page = console.view("overview")
    page.keyboard.press("/")
    page.keyboard.type("orders-4")
    page.get_by_text(re.compile("^1 of ")).wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.get_by_role("region", name="Partition orders-4").wait_for()
    page.keyboard.press("2")
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    page.locator("[data-node=broker-2]").wait_for()
    reach(page, "Pause broker-2")
    page.keyboard.press("Enter")
    page.locator("[data-node=broker-2][data-state=paused]").wait_for()
    reach(page, "Resume broker-2")
    page.keyboard.press("Enter")
    page.locator("[data-node=broker-2][data-state=up]").wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0


def reach(page: Page, name: str) -> None:
    """Press Tab until the button with this name has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.replace(/\\s+/g, ' ').trim()") == name:
            return
    pytest.fail(f"Tab does not reach {name}")


def test_a_list_of_a_thousand_partitions_has_elements_for_those_in_view(console: Console) -> None:
    admin = AdminClient({"bootstrap.servers": console.cluster.bootstrap})
    admin.create_topics([NewTopic("many", 1000, 3)])["many"].result(60)
    page = console.view("overview")
    page.get_by_role("searchbox", name="Name").fill("many-")
    page.get_by_text(re.compile("^1,000 of ")).wait_for()
    rows = page.get_by_role("listbox", name="Partitions").get_by_role("option")
    assert 5 < rows.count() < 60
    page.get_by_role("listbox", name="Partitions").evaluate("box => { box.scrollTop = box.scrollHeight }")
    page.get_by_role("option", name=re.compile("^many-999 ")).click()
    page.get_by_role("region", name="Partition many-999").get_by_role("row", name=re.compile("^1 ")).wait_for()


@pytest.mark.usefixtures("transactions")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_has_a_serious_finding_of_accessibility(
    console: Console, axe: Callable[[Page], list[str]], scheme: str
) -> None:
    page = console.view("overview", scheme=scheme)
    choose(page, "orders-0")
    findings = {"overview": axe(page)}
    for view in VIEWS[1:]:
        page.evaluate("view => { location.hash = view }", f"#/{view}")
        page.get_by_role("heading", level=2, name=view.capitalize()).wait_for()
        findings[view] = axe(page)
    assert findings == {view: [] for view in VIEWS}


def test_without_the_link_the_page_says_how_to_get_one(cluster: LocalCluster, browser: object) -> None:
    address = http_files.address(ClusterDir(cluster.directory))
    page = browser.new_page()  # type: ignore[attr-defined]
    page.goto(address)
    page.get_by_text("Open the link that milena up --console printed").wait_for()
    page.close()
