"""report, export and compare of several ranks, from the command line to the written files."""

import gzip
import json

import numpy as np
import pytest

from benchmarks.fleet.files import FileFacts, clocks_of_hosts, write_kineto
from benchmarks.fleet.simulation import Fault, Fleet, simulate
from profiling.report import packed
from profiling.verbs import compare, export, report
from tests.helpers.fleet import write_fleet
from tests.helpers.fleet_nsys import write_nsys
from tests.helpers.folders import rows_of_start, with_rows

FLEET = Fleet(ranks=4, steps=6)
LATE = Fleet(ranks=4, steps=6, fault=Fault("more_kernels", ranks=(2,)))


@pytest.fixture
def late(tmp_path):
    write_fleet(LATE, tmp_path / "late", facts=FileFacts(clocks_of_hosts(4, 1)))
    return tmp_path / "late"


def test_the_screen_names_the_late_rank_first_and_last(late, capsys):
    assert report.main([str(late)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("Rank 2 delays the others by ")]
    assert len(said) == 2 and lines[0].startswith("4 ranks")
    assert len(lines) <= 48  # a screen
    command = next(line for line in lines if "profiling report" in line)
    assert command.endswith(f"report {late}/rank2.trace.json")  # as it is typed


def test_the_report_of_one_rank_leads_to_that_of_all(late, tmp_path, capsys):
    one = late / "rank0.trace.json"
    for flags, said in (
        ([], "This is one of several ranks: python"),
        (["--full"], "# all ranks: which one the others wait for"),
    ):
        assert report.main([str(one), *flags]) == 0
        out = capsys.readouterr().out
        assert said in out and f"python -m profiling report {late}" in out.replace("\n", " ")
    (tmp_path / "alone").mkdir()
    assert report.main([str(one.rename(tmp_path / "alone" / one.name))]) == 0
    assert "One of " not in capsys.readouterr().out


def test_json_has_the_answer_and_a_row_for_each_rank(late, tmp_path):
    assert report.main([str(late), "--json", str(tmp_path / "ranks.json")]) == 0
    told = json.loads((tmp_path / "ranks.json").read_text())
    assert [row["rank"] for row in told["ranks"]] == [0, 1, 2, 3]
    assert told["straggler"]["rank"] == 2 and told["straggler"]["because"] == "gpu_compute"
    for row in told["ranks"]:
        parts = row["compute_ms"] + row["copy_ms"] + row["idle_ms"]
        parts += row["communication"]["exposed_ms"]
        assert parts == pytest.approx(sum(row["parts_ms"].values()))
    waits = [row["communication"]["exposed_wait_ms"] for row in told["ranks"]]
    assert min(range(4), key=waits.__getitem__) == 2


def test_a_page_has_a_timeline_of_all_and_a_page_for_each(late, tmp_path):
    page = tmp_path / "ranks.html"
    assert report.main([str(late), "--html", str(page), "--each"]) == 0
    text = page.read_text("utf-8")
    assert "Rank 2 delays the others by" in text
    for rank in range(4):
        assert (tmp_path / f"ranks-rank{rank}.html").stat().st_size > 100_000
        # in the first column: the last ones are out of sight on a phone
        first = f'<tr id="rank/{rank}"><td class="number" data-value="{rank}">'
        assert f'{first}<a href="ranks-rank{rank}.html">{rank}</a>' in text
    data = json.loads(text.split('id="timeline-data">')[1].split("</script>")[0])
    labels = [row["label"] for row in data["rows"]]
    assert labels == [f"rank {n}{more}" for n in range(4) for more in ("", ", collectives")]
    assert sum(row["count"] for row in data["rows"]) == len(decoded(data["name"]))


def decoded(column) -> np.ndarray:
    types = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "f64": "<f8"}
    return np.frombuffer(packed.unpacked(column["data"]), types[column["type"]])


def test_waits_and_transfers_of_the_timeline_are_the_collectives(late, tmp_path):
    page = tmp_path / "ranks.html"
    report.main([str(late), "--html", str(page), "--json", str(tmp_path / "ranks.json")])
    data = json.loads(page.read_text("utf-8").split('id="timeline-data">')[1].split("</script>")[0])
    told = json.loads((tmp_path / "ranks.json").read_text())
    shade, took = decoded(data["shade"]), decoded(data["duration"]).astype(float)
    first, steps = 0, len(told["steps"]["iterations"])
    for row in data["rows"]:
        rows = slice(first, first + row["count"])
        first += row["count"]
        if not row["label"].endswith("collectives"):
            continue
        known = told["ranks"][int(row["label"].split()[1].rstrip(","))]["communication"]
        for name, figure in (("wait", "wait_ms"), ("communication", "transfer_ms")):
            of = shade[rows] == data["shades"].index(name)
            assert took[rows][of].sum() / 1e6 / steps == pytest.approx(known[figure], rel=0.01)


def test_an_export_has_all_ranks_on_one_clock(late, tmp_path, capsys):
    path = tmp_path / "ranks.json.gz"
    assert export.main([str(late), "--perfetto", str(path)]) == 0
    assert "events" in capsys.readouterr().out
    ends: dict[int, list[float]] = {}
    for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]:
        if event.get("cat") == "kernel" and "AllReduce" in event["args"]["name"]:
            ends.setdefault(event["pid"], []).append(event["ts"] + event["dur"])
    assert len(ends) == 4 and len({len(of_rank) for of_rank in ends.values()}) == 1
    apart_us = np.max(list(ends.values()), axis=0) - np.min(list(ends.values()), axis=0)
    assert apart_us.max() < 20  # the files' clocks are hours apart


def test_an_export_names_the_ranks(late, tmp_path):
    path = tmp_path / "ranks.json"
    export.main([str(late), "--perfetto", str(path)])
    events = json.loads(path.read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert {name.split(",")[0] for name in names} == {f"rank {number}" for number in range(4)}
    arrows = [event["id"] for event in events if event["ph"] == "f"]
    assert arrows and len(set(arrows)) == len(arrows)


def test_a_comparison_says_what_changed_between_the_ranks(late, tmp_path, capsys):
    write_fleet(FLEET, tmp_path / "mended")
    result = tmp_path / "comparison.json"
    assert compare.main([str(late), str(tmp_path / "mended"), "--json", str(result)]) == 0
    told = json.loads(result.read_text())
    assert told["verdict"] == "faster"
    changed = told["ranks"]
    assert changed["late_ms"]["candidate"] == 0 and changed["late_ms"]["baseline"] > 0.5
    assert changed["wait_ms"]["delta_ms"] < 0
    assert changed["stragglers"]["baseline"].startswith("Rank 2 delays the others")
    assert changed["stragglers"]["candidate"] is None
    out = capsys.readouterr().out
    assert "Late ranks" in out and "no rank delays the others all the time" in out


@pytest.mark.parametrize("verb", ["report", "export", "compare"])
def test_no_capture_of_a_folder_is_written_over(late, tmp_path, verb):
    capture = late / "rank0.trace.json"
    before = capture.read_bytes()
    words = {
        "report": [report.main, [str(late), "--json", str(capture)]],
        "export": [export.main, [str(late), "--perfetto", str(capture)]],
        "compare": [compare.main, [str(late), str(late), "--json", str(capture)]],
    }
    main, argv = words[verb]
    with pytest.raises(ValueError, match="this command reads"):
        main(argv)
    assert capture.read_bytes() == before


def test_folders_of_several_hosts_are_one_report(tmp_path, capsys):
    paths = write_fleet(LATE, tmp_path, facts=FileFacts(clocks_of_hosts(4, 2)))
    for host, ranks in (("a", (0, 1)), ("b", (2,)), ("c", (3,))):
        (tmp_path / host / "profile").mkdir(parents=True)
        for rank in ranks:
            paths[rank].rename(tmp_path / host / "profile" / paths[rank].name)
    assert report.main([str(tmp_path / host) for host in "abc"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("4 ranks") and "Rank 2 delays the others" in out


def test_an_export_and_a_comparison_say_what_they_leave_out(late, tmp_path, capsys):
    (late / "rank3.trace.json").write_text("damaged")
    assert export.main([str(late), "--perfetto", str(tmp_path / "all.json")]) == 0
    said = capsys.readouterr().err
    assert "rank3.trace.json: is not a capture" in said and "are missing: 3" in said
    compare.main([str(late), str(late), "--json", str(tmp_path / "comparison.json")])
    told = json.loads((tmp_path / "comparison.json").read_text())
    assert "rank3.trace.json: is not a capture" in " ".join(told["comparability"]["notes"])


def test_two_runs_compare_by_their_rows_and_by_their_ranks(late, tmp_path, capsys):
    runs = [with_rows(tmp_path / name, *rows_of_start(5.0)) for name in ("a", "b")]
    for run, fleet in zip(runs, (LATE, FLEET), strict=True):
        write_fleet(fleet, run / "profile", name="window-1-rank{}")
    result = tmp_path / "comparison.json"
    assert compare.main([*map(str, runs), "--json", str(result)]) == 0
    told = json.loads(result.read_text())
    assert told["step_ms"]["baseline"] == pytest.approx(5.0, rel=0.01)  # of its rows
    assert told["ranks"]["late_ms"]["baseline"] > 0.5
    assert "a: Rank 2 delays the others" in " ".join(capsys.readouterr().out.split())


def test_a_comparison_does_not_clear_ranks_of_which_nothing_is_known(late, tmp_path, capsys):
    silent = simulate(FLEET)
    silent.operations = [each for each in silent.operations if each.group is None]
    (tmp_path / "silent").mkdir()
    for number in range(4):
        path = tmp_path / "silent" / f"rank{number}.trace.json"
        write_kineto(silent, number, path, FileFacts(clocks_of_hosts(4, 1)))
    assert compare.main([str(late), str(tmp_path / "silent")]) == 0
    assert (
        "silent: the captures do not show whether a rank delays the others."
    ) in capsys.readouterr().out


def test_a_file_of_several_ranks_names_the_report_of_all(tmp_path, capsys):
    simulation = simulate(Fleet(ranks=2, steps=6))
    path = write_nsys(simulation, [0, 1], tmp_path / "all.sqlite", FileFacts(clocks_of_hosts(2, 2)))
    assert report.main([str(path)]) == 0
    assert f"python -m profiling report {path} --ranks shows which rank" in capsys.readouterr().out


def test_another_number_of_ranks_does_not_compare(late, tmp_path):
    write_fleet(Fleet(ranks=2, steps=6), tmp_path / "two")
    with pytest.raises(ValueError, match="ranks 4 against 2"):
        compare.main([str(late), str(tmp_path / "two")])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--device", "1", "--ranks"], "--device: selects one process"),
        (["--each"], "--each: needs --html FILE"),
        (["--steps", "40-59"], "--steps: needs --html FILE"),
        (["--steps", "59-40"], "59-40: give the first and the last step, such as 40-59"),
        (["--ranks"], "fewer than two ranks"),
    ],
)
def test_what_does_not_fit_is_refused(late, words, told):
    with pytest.raises(ValueError, match=told):
        report.main([str(late / "rank0.trace.json"), *words])


@pytest.mark.parametrize("again", ["late/rank0.trace.json", "late", "link.json"])
def test_a_file_is_given_once(late, tmp_path, capsys, again):
    first = late / "rank0.trace.json"
    (tmp_path / "link.json").symlink_to(first)
    with pytest.raises(ValueError, match=r"\.json: given twice$"):
        report.main([str(first), str(tmp_path / again)])
    assert capsys.readouterr() == ("", "")


def test_a_process_of_a_folder_is_reported_alone(late, capsys):
    assert report.main([str(late), "--device", "0"]) == 0
    assert "4 ranks" not in capsys.readouterr().out


def test_a_manifest_of_several_ranks_is_refused(late):
    with pytest.raises(
        ValueError, match="--manifest nowhere.json: this manifest is for one capture, but these"
    ):
        report.main([str(late), "--manifest", "nowhere.json"])
