"""The table of flags holds what llama-server takes, and never ignores what is not built."""

import pytest

from services.cli.errors import UsageError
from services.cli.flags import ACTIONS, FLAGS, SECTIONS, Flag
from services.cli.parse import action_of, defaults, parse
from services.cli.table.http import CORS_METHODS
from services.cli.table.presets import PRESETS
from services.cli.table.row import NOT_YET
from services.edge.cors_policy import METHODS
from tests.unit.cli.llama_server import NAMES

ROWS = [line.partition(" = ") for line in NAMES.strip().splitlines()]
BY_NAME = {name: flag for flag in FLAGS for name in flag.names + flag.negatives}
LATER = [flag for flag in FLAGS if not flag.is_built and not flag.instead]
SAMPLES = {"int": "77", "float": "0.5", "bool": "", "onoff": "on", "list": "x,y", "texts": "x"}


def sample_of(flag: Flag) -> str:
    """A value that is not the default."""
    if flag.kind == "choice":
        return next(choice for choice in flag.choices if choice != flag.default)
    return SAMPLES.get(flag.kind, "x")


@pytest.mark.parametrize(("names", "_", "env"), ROWS, ids=[row[0] for row in ROWS])
def test_every_option_of_llama_server_is_there(names: str, _: str, env: str) -> None:
    actions = {name for group in ACTIONS.values() for name in group}
    if set(names.split()) <= actions:
        return
    rows = {BY_NAME[name].key for name in names.split()}
    assert len(rows) == 1, "one option is one row"
    if env:
        assert BY_NAME[names.split()[0]].env == env


def test_no_name_is_a_flag_and_an_action() -> None:
    actions = [name for group in ACTIONS.values() for name in group]
    assert not BY_NAME.keys() & set(actions)
    assert len(actions) == len(set(actions))


def test_every_row_has_a_section_and_words() -> None:
    assert {flag.services[0] for flag in FLAGS} == SECTIONS.keys()
    assert [flag.key for flag in FLAGS if not flag.help] == []


def words(flag: Flag) -> list[str]:
    """A use of `flag` that asks for something."""
    if flag.kind == "bool":
        return [flag.negatives[-1] if flag.default else flag.names[-1]]
    return [flag.names[-1], sample_of(flag)]


@pytest.mark.parametrize("flag", LATER, ids=lambda flag: flag.key)
def test_what_is_not_built_is_refused(flag: Flag) -> None:
    with pytest.raises(UsageError, match=f"{NOT_YET}$") as caught:
        parse(words(flag), {})
    assert str(caught.value).startswith(words(flag)[0])


@pytest.mark.parametrize("flag", LATER, ids=lambda flag: flag.key)
def test_its_variable_is_refused_too(flag: Flag) -> None:
    text = ("off" if flag.default else "on") if flag.kind == "bool" else sample_of(flag)
    text = '["x"]' if flag.kind == "texts" else text
    with pytest.raises(UsageError, match=f"^{flag.env} is {NOT_YET}$"):
        parse([], {flag.env: text})


@pytest.mark.parametrize(
    "line", ["--no-context-shift", "--no-mmproj=off", "--spec-type none", "--no-agent", "--lora="]
)
def test_asking_for_nothing_is_no_error(line: str) -> None:
    assert parse(line.split(), {}) == defaults()


@pytest.mark.parametrize("name", ["--draft", "--draft-min", "--spec-ngram-size-n"])
def test_what_was_removed_names_its_successor(name: str) -> None:
    with pytest.raises(UsageError, match=f"^{name} has been removed: use --spec-"):
        parse([name, "3"], {})


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("-fa on", "flash_attn", "on"),
        ("-fa 1", "flash_attn", "on"),
        ("-fa disabled", "flash_attn", "off"),
        ("-fa -1", "flash_attn", "auto"),
        ("-nkvo", "kv_offload", False),
        ("-nkvo -kvo", "kv_offload", True),
        ("-fit off", "fit", False),
        ("-ctk q8_0", "cache_type_k", "q8_0"),
        ("--load_mode mmap+mlock", "load_mode", "mmap+mlock"),
        ("-l 1+1 -l 2-inf", "logit_bias", ("1+1", "2-inf")),
        ("-r a,b -r c", "reverse_prompt", ("a,b", "c")),
        ("--no-host", "no_host", True),
    ],
)
def test_values(line: str, key: str, value: object) -> None:
    assert parse(line.split(), {})[key] == value


def test_uses_on_the_command_line_replace_the_variable() -> None:
    environment = {"LLAMATAPE_REVERSE_PROMPT": '["x"]'}
    assert parse([], environment)["reverse_prompt"] == ("x",)
    assert parse(["-r", "y"], environment)["reverse_prompt"] == ("y",)


@pytest.mark.parametrize("text", ["x", "[1]", "{}", ""])
def test_a_list_of_texts_must_be_one(text: str) -> None:
    with pytest.raises(UsageError, match=r"^LLAMATAPE_REVERSE_PROMPT: expected a JSON list"):
        parse([], {"LLAMATAPE_REVERSE_PROMPT": text})


def test_a_bad_choice_names_the_good_ones() -> None:
    with pytest.raises(UsageError, match=r"^-ctk: 'q2' is none of f32, f16"):
        parse(["-ctk", "q2"], {})


@pytest.mark.parametrize("key", PRESETS)
def test_presets_name_flags_and_give_way_to_what_is_given(key: str) -> None:
    assert PRESETS[key].keys() <= defaults().keys()
    values = parse([f"--{key}".replace("_", "-"), "--top-k", "7"], {})
    assert values == defaults() | PRESETS[key] | {"top_k": 7}


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("-m x --help", "help"),
        ("--cache_list", "cache-list"),
        ("-cl", "cache-list"),
        ("--list-devices", "list-devices"),
        ("-m x", ""),
    ],
)
def test_actions(line: str, action: str) -> None:
    assert action_of(line.split()) == action


def test_the_methods_are_the_edges() -> None:
    assert CORS_METHODS == METHODS
