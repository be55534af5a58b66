"""`milena scenario`: list, show and run, and the errors that it reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from milena.command_line.errors import UsageError, UserError
from milena.commands.scenario import choice
from milena.commands.scenario.command import main
from milena.lab.scenarios.heads import GROUPS, all_scenarios
from milena.lab.scenarios.script import is_comparison, source

THREE = """
id: mine
title: Three replicas
replicas: [A, B, C]
steps:
  - title: all have it
    do:
      - start: [A, B, C]
      - topic: {replicas: [A, B, C]}
      - produce: {to: A, values: [0]}
    expect:
      same: [A, B, C]
"""


def output(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code
    return capsys.readouterr().out


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return str(path)


def test_every_scenario_is_listed_with_its_variants(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "list").splitlines()
    assert sorted(line.split()[0] for line in lines if line.startswith("  ")) == all_scenarios()
    assert next(line for line in lines if line.startswith("  kip279_unclean")).endswith("alternative_2, clean_only_1]")
    assert next(line for line in lines if line.startswith("  kafka_17428")).endswith("[in simulation only]")


def test_the_list_is_grouped_by_document(capsys: pytest.CaptureFixture[str]) -> None:
    groups = [group.splitlines() for group in output(capsys, "list").split("\n\n")]
    assert [title for title, *_ in groups] == list(GROUPS.values())
    assert {line[:8] for line in groups[0][1:]} == {"  kip405"}


def test_the_list_is_printed_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = {one["id"]: one for one in json.loads(output(capsys, "list", "--json"))}
    assert sorted(found) == all_scenarios()
    assert found["kip279_unclean"]["variants"][:2] == ["plain", "kip101"]
    assert found["kip279_unclean"]["document"] == "KIP-279, scenario 2"


@pytest.mark.parametrize("scenario", all_scenarios())
def test_every_scenario_can_be_shown(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    part = "clean" if is_comparison(source(scenario)) else "step 1"
    assert f"\n{part}: " in output(capsys, "show", scenario)


def test_a_scenario_is_shown_with_tables_like_those_of_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    shown = output(capsys, "show", "kip279_unclean")
    assert "  from:       KIP-279, scenario 2\n" in shown
    assert "    A                  B\n    -                  -\n    0: B:0 LE-1        0: B:0 LE-1\n" in shown


def test_the_file_of_a_scenario_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "show", "kip279_unclean", "--yaml").startswith("id: kip279_unclean\n")


def test_a_run_shows_expected_and_actual_tables_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "run", "kip279_unclean").splitlines()
    begin = lines.index("", lines.index("kip279_unclean (plain), step 4: epoch 3: B takes B:1"))
    assert lines[begin + 1].split() == ["A", "B", "expected", "B", "actual"]
    assert lines[begin + 3] == "  stopped            0: B:0 LE-1        0: B:0 LE-1"
    assert lines[-2].startswith("kip279_unclean (plain): passed, 6 of 6 steps, ")
    assert "LE-1 is leader epoch 2, LE-2 is leader epoch 4, LE-3 is leader epoch 6 in this run" in lines


def test_a_run_shows_the_requests_of_a_follower_that_begins_in_the_tier(capsys: pytest.CaptureFixture[str]) -> None:
    shown = output(capsys, "run", "kip405_5")
    begin = shown.index("B -> A Fetch offset 0, no epoch, broker epoch ", shown.index("step 4"))
    lines = [line.strip() for line in shown[begin:].splitlines()]
    assert lines[0].endswith(": OFFSET_MOVED_TO_TIERED_STORAGE")
    assert lines[1:3] == ["B: LocatingLocalStart", "B -> A ListOffsets EARLIEST_LOCAL_TIMESTAMP: 6, LE-2"]
    assert "B: BuildingRemoteLogAux, epochs from seg-4-5 (uuid-3)" in lines
    assert "consumer -> B Fetch 3, current leader epoch LE-1: FENCED_LEADER_EPOCH" in lines
    assert "A -> tier copy seg-0-3 (uuid-1): stored" in shown


def test_rows_of_segments_stand_beside_the_expected_ones(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "run", "kip405_5").splitlines()
    begin = next(number for number, line in enumerate(lines) if "step 3" in line)
    rows = [line.split("   ") for line in lines[begin:]]
    assert any([cell.strip() for cell in row][:2] == ["seg-0-3 uuid-2", "seg-0-3 uuid-2"] for row in rows)
    assert "  3: msg 5 LE-1     3: msg 5 LE-1" in lines[begin:]
    assert any(line.endswith("uuid-3: LE-0, 0; LE-2, 5   uuid-3: LE-0, 4; LE-2, 5 (*)") for line in lines)
    assert "  (*) Kafka starts the first leader epoch of a segment at the segment's base offset" in lines


def test_the_json_of_a_run_has_the_events_and_tables_of_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = json.loads(output(capsys, "run", "kip405_5", "--json"))
    run = found["run"]
    assert (run["scenario"], run["outcome"], run["epochs"]) == ("kip405_5", "passed", {"0": 0, "1": 1, "2": 3})
    step = run["steps"][3]
    (moved,) = [event for event in step["events"] if event["result"] == "OFFSET_MOVED_TO_TIERED_STORAGE"]
    assert (moved["source"], moved["target"], moved["api"], moved["error"]) == ("B", "A", "Fetch", True)
    assert step["replicas"]["A"]["local_log_start"] == 6
    assert {segment["name"] for segment in step["segments"]} == {"uuid-1", "uuid-2", "uuid-3"}
    marks = {row["mark"] for table in step["tables"] if table["name"] == "B" for row in table["rows"]}
    assert "same" in marks
    assert "differs" not in marks


def test_a_quiet_run_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = output(capsys, "run", "kip903_wire", "-q").splitlines()
    assert line.startswith("kip903_wire: passed, 5 of 5 steps, ")


def test_a_scenario_in_a_file_compares_three_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "as expected: same [A, B, C]" in output(capsys, "run", written(tmp_path, THREE))


def test_the_third_log_is_compared_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = THREE.replace(
        "    expect:",
        "  - title: C is down\n    do:\n      - kill: C\n      - wait: {isr: [A, B]}\n"
        "      - produce: {to: A, values: [1]}\n    expect:",
    )
    shown = output(capsys, "run", "-q", written(tmp_path, wrong), code=1)
    assert "the logs of A and C differ at [1]" in shown
    assert "mine: FAILED, 1 of 2 steps, " in shown


def test_a_variant_runs_with_its_test_peer(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = output(capsys, "run", "kip279_unclean", "--variant", "kip101", "-q").splitlines()
    assert line.startswith("kip279_unclean (kip101): passed, 5 of 5 steps, ")


def test_a_run_can_stop_after_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    shown = output(capsys, "run", "kip903_wire", "--until", "2")
    assert [line.split(":")[0] for line in shown.splitlines() if line.startswith("kip903_wire (plain)")] == [
        "kip903_wire (plain), step 1",
        "kip903_wire (plain), step 2",
    ]
    assert "kip903_wire: passed, 2 of 2 steps, " in shown


def test_a_comparison_is_printed_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split() for line in output(capsys, "run", "kip279-alternatives").splitlines()]
    assert ["proposal", "1", "0", "+32", "26", "11", "the", "same"] in lines
    assert ["KIP-101", "1", "0", "0", "22", "1", "differ", "at", "0", "to", "0"] in lines
    assert ["alternative", "2", "2", "+64,", "+160", "0,", "0", "72", "0", "the", "same"] in lines
    assert ["8", "1", "4", "4", "2"] in lines
    assert lines[-2][:5] == ["kip279_alternatives:", "passed,", "3", "of", "3"]


def test_a_comparison_that_fails_shows_the_expected_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "show", "kip279_alternatives", "--yaml")
    wrong = text.replace("exchanges: [B -> A  epoch 2 -> end offset 21]", "exchanges: [B -> A  epoch 2 -> nothing]")
    shown = output(capsys, "run", "-q", written(tmp_path, wrong.replace("6: {KIP-101: 1", "6: {KIP-101: 2")), code=1)
    assert "    expected: B -> A  epoch 2 -> nothing\n" in shown
    assert "1 (expected 2)" in shown
    assert "  wrong: 6 leaderships, KIP-101: expected 2 round trips, found 1\n" in shown
    assert "kip279_alternatives: FAILED, 2 of 3 cases, " in shown


def test_a_comparison_is_printed_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = json.loads(output(capsys, "run", "kip279_alternatives", "--json"))
    clean, _, unclean = found["results"]
    assert (found["scenario"], found["outcome"], found["wrong"]) == ("kip279_alternatives", "passed", [])
    assert clean["results"]["proposal"]["response_bits"] == [32]
    assert unclean["results"]["alternative 2"]["round_trips"] == 2
    assert found["longer"]["8"]["proposal"] == 4


def test_results_of_scenarios_are_printed_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = written(tmp_path, THREE.replace("same: [A, B, C]", "C: {committed: 3}"))
    passed, failed = json.loads(output(capsys, "run", "kip903_wire", wrong, "--json", code=1))
    assert (passed["outcome"], passed["steps"], passed["passed"], passed["wrong"]) == ("passed", 5, 5, [])
    assert (failed["scenario"], failed["outcome"], failed["passed"]) == ("mine", "failed", 0)
    assert any("C: committed: expected 3, found 0" in one for one in failed["wrong"])


def test_a_run_is_written_as_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = written(tmp_path, THREE.replace("same: [A, B, C]", "partition: {isr: [9]}"))
    page = tmp_path / "page.html"
    output(capsys, "run", wrong, "--html", str(page), code=1)
    text = page.read_text()
    data = json.loads(text.partition("id='scenario-run'>")[2].partition("</script>")[0])
    assert [data["scenario"], data["outcome"], len(data["steps"])] == ["mine", "failed", 1]
    assert "http:" not in text.replace("http://www.w3.org/2000/svg", "") and "https:" not in text


def test_a_comparison_is_written_as_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    output(capsys, "run", "kip279_alternatives", "--html", str(page))
    text = page.read_text()
    assert "round trips" in text and "alternative 2" in text and "as expected" in text


def test_a_page_is_for_one_scenario_and_its_file_is_checked_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="--html is for one scenario"):
        main(["run", "--all", "--html", "page.html"])
    with pytest.raises(UserError, match="cannot write"):
        main(["run", "kip903_wire", "--html", str(tmp_path / "missing" / "page.html")])
    assert capsys.readouterr().out == ""


def test_a_scenario_file_is_shown_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(output(capsys, "show", "kip903_wire", "--json"))["document"].startswith("KIP-903")


def test_a_scenario_that_cannot_run_on_processes_is_skipped_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(choice, "all_scenarios", lambda: ["kafka_17428"])
    (line,) = output(capsys, "run", "--all", "-q", "--on", "processes").splitlines()
    assert line.startswith("kafka_17428: skipped: only with --on simulation: The disk is made to fail")


def test_failed_expectations_are_printed_below_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = THREE.replace("same: [A, B, C]", "C: {log: {0: [0, 0]}, committed: 3}")
    shown = output(capsys, "run", written(tmp_path, wrong), code=1)
    assert "C expected" in shown and "C actual" in shown
    assert "C: committed: expected 3, found 0" in shown


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("start:", "strat:", r"mine, step 1: no action strat \(did you mean start\?\)"),
        ("same:", "sane:", r"expect: no replica or expectation sane \(did you mean same\?\)"),
        ("same: [A, B, C]", "same: [A]", "same needs two replicas or more"),
        ("same: [A, B, C]", "same: [A, D]", "same: no broker D"),
        ("same: [A, B, C]", "A: {logs: {}}", r"A has no logs \(did you mean log\?\)"),
        ("same: [A, B, C]", "A: 3", "A has the fields committed, epochs, .*; it is not 3"),
        ("replicas: [A, B, C]\n", "replica: [A]\n", "a scenario needs replicas"),
        ("title: all", "titel: all", r"step 1 has no titel \(did you mean title\?\)"),
        ("- topic:", "- wait: {leder: A}\n      - topic:", r"no condition leder \(did you mean leader\?\)"),
        ("steps:", "steps: [", "not YAML: "),
        ("steps:", "only: {simulation: }\nsteps:", "only is one world with the reason"),
        ("steps:", "only: {simulatoin: so}\nsteps:", r"no world simulatoin \(did you mean simulation\?\)"),
        ("steps:", "variants: {old: {peers: {A: kip11}}}\nsteps:", r"no test peer kip11 \(did you mean kip101\?\)"),
        ("- produce:", "- replace: {A: kip11}\n      - produce:", r"no test peer kip11 \(did you mean kip101\?\)"),
    ],
)
def test_a_mistake_in_a_file_is_reported_in_one_sentence(before: str, after: str, said: str, tmp_path: Path) -> None:
    assert before in THREE
    with pytest.raises(UserError, match=said):
        main(["run", written(tmp_path, THREE.replace(before, after))])


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("{to: A, values: [0]}", "{values: [0]}", "produce needs to; it has values"),
        ("- produce:", "- release: requests\n      - produce:", "no rule is called 'requests'"),
    ],
)
def test_a_step_that_cannot_be_executed_fails(
    before: str, after: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in output(capsys, "run", written(tmp_path, THREE.replace(before, after)), code=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "kip279_unclaen"], r"no scenario 'kip279_unclaen' \(did you mean kip279_unclean\?\)"),
        (["run", "kip279_alternatives", "--variant", "plain"], "compares algorithms and has no variants"),
        (["run", "kip279_alternatives", "--on", "processes"], "The algorithms run on logs here"),
        (["run", "kip279_unclean", "--variant", "kip10"], r"has no variant 'kip10' \(did you mean kip101\?\)"),
        (["run", "kip903_wire", "--until", "6"], "--until 6: kip903_wire has the steps 1 to 5"),
        (["run", "kip903_wire", "--until", "0"], "--until 0: kip903_wire has the steps 1 to 5"),
        (["run", "kip279_alternatives", "--until", "1"], "compares algorithms and has no steps"),
        (["run", "kafka_17428", "--on", "processes"], "only with --on simulation: The disk is made to fail"),
        (["show", "nothing/here.yaml"], "nothing/here.yaml: No such file or directory"),
    ],
)
def test_a_scenario_that_cannot_run_is_an_error(arguments: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        main(arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "needs scenarios, or --all"),
        (["run", "kip903_wire", "--on", "proceses"], r"it is simulation or processes \(did you mean processes\?\)"),
        (["run", "kip903_wire", "--dir", "x"], "--dir is for one scenario with --on processes"),
        (["run", "kip903_wire", "--keep"], "--keep is for one scenario with --on processes"),
        (["run", "kip903_wire", "kip903_wire", "--on", "processes", "--keep"], "--keep is for one scenario with"),
        (["run", "--all", "--until", "1"], "--until is for one scenario"),
        (["run", "--all", "--jobs", "2"], "--jobs 2: a number of at least 1, and more than 1 only with --on processes"),
        (["run", "--all", "--on", "processes", "--jobs", "0"], "--jobs 0: a number of at least 1"),
        (["runs"], r"no command `scenario runs` \(did you mean run\?\)"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        main(arguments)
