"""Fleet files: what they state, and one line for whatever is wrong."""

import pytest

from nearpeak.core.federated.round_rules import policy_of, server_of
from nearpeak.errors import SpecError
from nearpeak.systems.federated.fleet_changes import fleet_changes
from nearpeak.systems.federated.fleet_file import parse_fleet, read_fleet

CLIENT = {"board": "jetson_nano", "samples": 10, "down": "8 Mbit/s", "up": "1 MB/s"}


def test_a_file_states_boards_modes_data_links_and_presence(tmp_path):
    file = tmp_path / "home.toml"
    file.write_text(
        """
epochs = 2
batch = 8
[[client]]
board = "jetson_orin_nano"
mode = "15W"
count = 3
samples = 400
labels = [3, 1, 0, 0]
down = "100 Mbit/s"
up = "20 Mbit/s"
availability = ["8 h", "16 h"]
idle = "3 W"
spread = 0.1
[[client]]
board = "jetson_nano"
samples = 200
labels = 0.5
down = "20 Mbit/s"
up = "5 Mbit/s"
availability = { on = "50 min", off = "10 min" }
sample_time = "12 ms"
power = "6 W"
""",
        "utf-8",
    )
    fleet = read_fleet(file)
    first, second = fleet.groups
    assert (fleet.name, fleet.client_count, fleet.epoch_count, fleet.batch_count) == ("home", 4, 2, 8)
    assert (first.name, first.target, first.label_ratio) == (
        "jetson_orin_nano:15W",
        "jetson_orin_nano:15W",
        (0.75, 0.25, 0.0, 0.0),
    )
    assert first.presence_s == (28_800.0, 57_600.0)
    assert (second.on_mean_s, second.off_mean_s, second.concentration_ratio) == (3000.0, 600.0, 0.5)
    assert (second.sample_s, second.busy_w, second.up_bytes_per_s) == (0.012, 6.0, 625_000.0)


@pytest.mark.parametrize(("change", "message"), [
    ({"samples": 0}, "has no client with samples"),
    ({"samples": -1}, "samples is -1"),
    ({"count": 0}, "count is 0"),
    ({"samples": "many"}, "wrong type"),
    ({"count": True}, "wrong type"),
    ({"board": None}, "wrong type"),
    ({"down": "fast"}, "must be a rate above 0"),
    ({"up": "0 Mbit/s"}, "must be a rate above 0"),
    ({"idle": "3 V"}, "idle"),
    ({"power": "0 W"}, "must be more than 0"),
    ({"spread": -0.5}, "spread is -0.5"),
    ({"labels": []}, "no share above 0"),
    ({"labels": [1, "x"]}, "no number of at least 0"),
    ({"labels": 0}, "Dirichlet parameter is above 0"),
    ({"availability": "sometimes"}, "availability is 'sometimes'"),
    ({"availability": ["1 h"]}, "availability is"),
    ({"availability": {"on": "1 h", "off": "0 s"}}, "at least 1 s"),
    ({"colour": "red"}, "colour is unknown"),
    ({"count": 200_000}, "at most 100,000"),
])  # fmt: skip
def test_a_wrong_entry_is_refused_in_one_line(change, message):
    with pytest.raises(SpecError) as error:
        parse_fleet("home", {"client": [{**CLIENT, **change}]})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_and_double_entries_are_named():
    with pytest.raises(SpecError, match="client is missing"):
        parse_fleet("home", {})
    with pytest.raises(SpecError, match="down is missing"):
        parse_fleet("home", {"client": [{"board": "x", "samples": 1, "up": "1 MB/s"}]})
    with pytest.raises(SpecError, match="two clients are called 'jetson_nano'"):
        parse_fleet("home", {"client": [CLIENT, CLIENT]})
    with pytest.raises(SpecError, match="must be a table"):
        parse_fleet("home", {"client": [3]})
    with pytest.raises(SpecError, match="has no client"):
        parse_fleet("home", {"client": []})


@pytest.mark.parametrize("text", ["slowest", "deadline", "deadline=soon", "deadline=-1s", "fastest=3"])
def test_a_wrong_policy_is_refused(text):
    with pytest.raises(SpecError, match="policy"):
        policy_of(text)


@pytest.mark.parametrize("text", ["some", "buffered", "buffered=0", "buffered=x", "sync=1"])
def test_a_wrong_server_is_refused(text):
    with pytest.raises(SpecError, match="server"):
        server_of(text)


def test_changes_are_modes_links_groups_and_boards():
    fleet = parse_fleet("home", {"client": [{**CLIENT, "board": "a", "mode": "5W"}, {**CLIENT, "board": "b"}]})
    modes = {"a": ("5W", "10W"), "b": ("20W",)}

    def of(kind):
        return dict(fleet_changes(fleet, kind, lambda board: modes[board]))

    assert [change.groups[0].mode for change in of("mode").values()] == ["10W", "5W"]
    assert of("link")["b with 2 × faster links"].groups[1].up_bytes_per_s == 2e6
    assert of("drop")["without b"].client_count == 1
    assert of("add 3 b:20W")["3 b:20W more"].groups[-1].sample_count == 10
    for kind in ("colour", "add x b", "add 0 b"):
        with pytest.raises(SpecError, match="--what-if"):
            of(kind)
