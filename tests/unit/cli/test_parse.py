"""The table of flags and its parser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cli.errors import UsageError
from services.cli.flags import ENGINE, FLAGS, MODEL, Flag, Value
from services.cli.parse import defaults, parse, parse_environment, values_to_env
from services.cli.table.presets import PRESETS

LLAMA_SERVER = {
    "-m --model": "LLAMA_ARG_MODEL",
    "-a --alias": "LLAMA_ARG_ALIAS",
    "--tags": "LLAMA_ARG_TAGS",
    "--host": "LLAMA_ARG_HOST",
    "--port": "LLAMA_ARG_PORT",
    "-c --ctx-size": "LLAMA_ARG_CTX_SIZE",
    "-n --predict --n-predict": "LLAMA_ARG_N_PREDICT",
    "-b --batch-size": "LLAMA_ARG_BATCH",
    "-ub --ubatch-size": "LLAMA_ARG_UBATCH",
    "-t --threads": "LLAMA_ARG_THREADS",
    "-np --parallel": "LLAMA_ARG_N_PARALLEL",
    "--temp --temperature": "LLAMA_ARG_TEMPERATURE",
    "--top-k": "LLAMA_ARG_TOP_K",
    "--top-p": "LLAMA_ARG_TOP_P",
    "--min-p": "LLAMA_ARG_MIN_P",
    "--repeat-penalty": "LLAMA_ARG_REPEAT_PENALTY",
    "--api-key": "LLAMA_API_KEY",
    "--slots --no-slots": "LLAMA_ARG_ENDPOINT_SLOTS",
    "-to --timeout": "LLAMA_ARG_TIMEOUT",
    "--sse-ping-interval": "LLAMA_ARG_SSE_PING_INTERVAL",
    "--jinja --no-jinja": "LLAMA_ARG_JINJA",
    "--chat-template": "LLAMA_ARG_CHAT_TEMPLATE",
    "--chat-template-file": "LLAMA_ARG_CHAT_TEMPLATE_FILE",
}
"""What llama-server calls them."""


def flag_named(name: str) -> Flag:
    return next(flag for flag in FLAGS if name in flag.names + flag.negatives)


@pytest.mark.parametrize(("names", "env"), LLAMA_SERVER.items())
def test_flags_of_llama_server_keep_their_names_and_variables(names: str, env: str) -> None:
    flag = flag_named(names.split()[0])
    assert flag.env == env
    assert set(names.split()) <= set(flag.names + flag.negatives)


def test_no_name_key_or_variable_is_used_twice() -> None:
    names = [name for flag in FLAGS for name in flag.names + flag.negatives]
    assert len(names) == len(set(names))
    assert len({flag.key for flag in FLAGS}) == len({flag.env for flag in FLAGS}) == len(FLAGS)


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("-c 4096", "ctx_size", 4096),
        ("--ctx-size=4096", "ctx_size", 4096),
        ("--ctx_size 4096", "ctx_size", 4096),
        ("-np -1", "parallel", -1),
        ("-n -1", "n_predict", -1),
        ("--temp 0.5", "temperature", 0.5),
        ("--temp 1", "temperature", 1.0),
        ("--temperature .25", "temperature", 0.25),
        ("-s 4294967295", "seed", 4294967295),
        ("--no-slots", "slots", False),
        ("--slots=off", "slots", False),
        ("--no-slots=off", "slots", True),
        ("--no-slots --slots", "slots", True),
        ("-v", "verbose", True),
        ("-a one,,two,", "alias", ("one", "two")),
        ("--host ::1,/run/x.sock", "host", ("::1", "/run/x.sock")),
        ("--chat-template a=b", "chat_template", "a=b"),
        ("--chat-template=a=b", "chat_template", "a=b"),
        ("--chat-template=", "chat_template", ""),
        ("--port 1 --port 2", "port", 2),
        ("-to 10", "timeout", 10),
    ],
)
def test_arguments(line: str, key: str, value: Value) -> None:
    assert parse(line.split(), {})[key] == value


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--paralel 1", "invalid argument: --paralel (did you mean --parallel?)"),
        ("--zzzzzz", "invalid argument: --zzzzzz; --help"),
        ("model.gguf", "invalid argument: model.gguf;"),
        ("-c", "-c: a value is missing"),
        ("-c many", "-c: 'many' is not a whole number"),
        ("-c 1.5", "-c: '1.5' is not a whole number"),
        ("-c 12abc", "-c: '12abc' is not a whole number"),
        ("-c -1", "-c: -1 is out of range (0 to 2147483647)"),
        ("--port 65536", "--port: 65536 is out of range (0 to 65535)"),
        ("--temp hot", "--temp: 'hot' is not a number"),
        ("--temp nan", "--temp: nan is out of range"),
        ("--temp inf", "--temp: inf is out of range"),
        ("--temp 1_0", "--temp: '1_0' is not a number"),
        ("--slots=perhaps", "--slots: 'perhaps' is neither on nor off"),
        ("--repeat-penalty 0", "--repeat-penalty: 0 is out of range"),
        ("-b ٣", "-b: '٣' is not a whole number"),
        (f"-b {'9' * 5000}", "-b: '999"),
    ],
)
def test_what_is_wrong_is_named(line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line.split(), {})
    assert str(caught.value).startswith(message)


def test_the_command_line_wins_over_the_environment() -> None:
    environment = {"LLAMA_ARG_PORT": "1", "LLAMA_ARG_CTX_SIZE": "2"}
    values = parse(["--port", "3"], environment)
    assert (values["port"], values["ctx_size"]) == (3, 2)


def test_the_second_variable_of_a_pair_switches_it_off() -> None:
    environment = {"LLAMA_ARG_NO_JINJA": "", "LLAMA_ARG_JINJA": "on"}
    assert parse_environment(environment) == {"jinja": False}


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(UsageError, match=r"^LLAMA_ARG_PORT: 'x' is not a whole number"):
        parse([], {"LLAMA_ARG_PORT": "x"})


def test_defaults_need_no_variables() -> None:
    assert parse([], {}) == defaults()
    assert values_to_env(defaults()) == {}


def test_only_the_wanted_services_get_their_flags() -> None:
    values = parse(["-m", "x", "-c", "8", "--api-key", "k", "--sse-ping-interval", "1"], {})
    assert values_to_env(values, [MODEL, ENGINE]) == {
        "LLAMA_ARG_MODEL": "x",
        "LLAMA_ARG_CTX_SIZE": "8",
        "LLAMA_ARG_SSE_PING_INTERVAL": "1",
    }


WORDS = st.text(st.characters(codec="utf-8", exclude_characters=",\0"), min_size=1).filter(
    lambda text: text == text.strip()
)


ORDINARY = [flag for flag in FLAGS if flag.is_built and flag.key not in PRESETS]


def _values_of(flag: Flag) -> st.SearchStrategy[Value]:
    match flag.kind:
        case "int":
            return st.integers(int(max(flag.low, -(2**62))), int(min(flag.high, 2**62)))
        case "float":
            return st.floats(flag.low, flag.high, allow_nan=False, allow_infinity=False)
        case "bool" | "onoff":
            return st.booleans()
        case "choice":
            return st.sampled_from((flag.default, *flag.choices))
        case "list":
            return st.lists(WORDS).map(tuple)
        case "texts":
            return st.lists(st.text(st.characters(codec="utf-8"))).map(tuple)
        case _:
            return st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@given(st.data())
def test_a_child_reads_back_what_its_parent_wrote(data: st.DataObject) -> None:
    flags = data.draw(st.lists(st.sampled_from(ORDINARY), max_size=12, unique=True))
    values = defaults() | {f.key: data.draw(_values_of(f), label=f.key) for f in flags}
    assert parse([], values_to_env(values)) == values
