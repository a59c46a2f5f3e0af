"""Flags to llama.cpp's options and to the parameters of requests."""

import json

import pytest

from schemas.params import DEFAULT_SAMPLERS, Output, Params
from services.cli.defaults import default_params, template_kwargs
from services.cli.errors import UsageError
from services.cli.flags import Values
from services.cli.llama_options import CPU, DENSE, EXPERTS, context_options, cpus, model_options
from services.cli.parse import parse
from services.engine.options import ContextOptions, ModelOptions, numbers_digest


def values(line: str) -> Values:
    return parse(line.split(), {})


def test_without_flags_everything_is_llama_cpps_own() -> None:
    assert model_options(values("")) == ModelOptions()
    assert context_options(values("")) == ContextOptions()
    output = Output(reasoning_format="deepseek")  # Params() says what older logs leave out
    assert default_params(values("")) == Params(output=output)
    assert cpus(values("")) == ()


def test_how_weights_are_read() -> None:
    options = model_options(values("-lm none --check-tensors --no-repack --no-host -lzm off"))
    assert (options.load_mode, options.lazy_mode) == ("none", "off")
    assert options.is_checked
    assert not options.is_repacked
    assert not options.has_host_buffer


@pytest.mark.parametrize(
    ("line", "mode"),
    [
        ("--mmap", "auto"),
        ("--no-mmap", "none"),
        ("--mlock", "mmap+mlock"),
        ("--no-mmap --mlock", "mlock"),
        ("-dio", "dio"),
        ("--no-mmap -lm mmap", "mmap"),
    ],
)
def test_older_names_of_load_modes(line: str, mode: str) -> None:
    assert model_options(values(line)).load_mode == mode


def test_where_weights_go() -> None:
    options = model_options(values("-ngl all -sm row -mg 1 -ts 3/1 -dev none -ot a=CPU"))
    assert (options.n_gpu_layers, options.split_mode, options.main_gpu) == (-2, "row", 1)
    assert options.tensor_split == (3.0, 1.0)
    assert options.devices == ("none",)
    assert options.buffers == (("a", "CPU"),)


def test_experts_stay_in_memory() -> None:
    buffers = model_options(values("-cmoe -ncmoe 2 -ncffn 1")).buffers
    numbered = (rf"blk\.0{EXPERTS}", rf"blk\.1{EXPERTS}", rf"blk\.0{DENSE}")
    assert buffers == tuple((pattern, CPU) for pattern in (EXPERTS, *numbered))


def test_metadata_can_be_overridden() -> None:
    line = "--override-kv a.b=bool:false,c=int:-3,d=float:1.5,e=str:x:y"
    assert model_options(values(line)).overrides == (
        ("a.b", "bool", "false"),
        ("c", "int", "-3"),
        ("d", "float", "1.5"),
        ("e", "str", "x:y"),
    )


def test_context_scaling_is_the_inverse_of_frequency_scaling() -> None:
    assert context_options(values("--rope-scale 4")).rope_freq_scale == 0.25
    assert context_options(values("--rope-freq-scale 0.5")).rope_freq_scale == 0.5


@pytest.mark.parametrize(
    ("line", "expected"),
    [("-C 0x5", (0, 2)), ("-C f", (0, 1, 2, 3)), ("-Cr 2-3", (2, 3)), ("-C 1 -Cr -2", (0, 1, 2))],
)
def test_cores(line: str, expected: tuple[int, ...]) -> None:
    assert cpus(values(line)) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--override-kv a=b", "--override-kv: 'a=b' is not KEY=TYPE:VALUE"),
        ("--override-kv a=bool:1", "--override-kv: '1' is neither true nor false"),
        ("--override-kv a=int:x", "--override-kv: 'x' is not a whole number"),
        ("--override-kv a=float:nan", "--override-kv: 'nan' is not a number"),
        ("-ngl many", "--n-gpu-layers: 'many' is no number, nor auto or all"),
        ("-ot a", "--override-tensor: 'a' is not PATTERN=TYPE"),
        ("-ts x", "--tensor-split: 'x' is not a number"),
    ],
)
def test_bad_model_options_are_named(line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        model_options(values(line))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("line", ["-C xyz", "-Cr 1", "-Cr a-b", "-Cr -", "-Cr 0-9999", "-C -1"])
def test_bad_cores_are_named(line: str) -> None:
    with pytest.raises(UsageError, match=r"^--cpu-"):
        cpus(values(line))


def test_samplers_by_name_and_by_letter() -> None:
    assert default_params(values("--samplers top_k;temperature")).sampling.samplers == (
        "top_k",
        "temperature",
    )
    assert default_params(values("--sampling-seq kt")).sampling.samplers == ("top_k", "temperature")
    assert default_params(values("")).sampling.samplers == DEFAULT_SAMPLERS


def test_biases() -> None:
    biases = default_params(values("-l 15043+1 -l 7-1.5 -l 2-inf")).sampling.logit_bias
    assert biases == ((15043, 1.0), (7, -1.5), (2, -1e9))


@pytest.mark.parametrize("text", ["x", "1", "1*2", "-1+2", "1+x", "1+"])
def test_a_bad_bias_is_named(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--logit-bias"):
        default_params(parse(["-l", text], {}))


def test_breakers_replace_the_defaults_and_none_clears() -> None:
    def breakers(*texts: str) -> tuple[str, ...]:
        line = [word for text in texts for word in ("--dry-sequence-breaker", text)]
        return default_params(parse(line, {})).sampling.dry_sequence_breakers

    assert breakers("a", r"\n") == ("a", "\n")
    assert breakers("a", "none", "b") == ("b",)
    assert breakers("none") == ()
    assert default_params(values("")).sampling.dry_sequence_breakers == ("\n", ":", '"', "*")


def test_escapes_are_read_unless_told_otherwise() -> None:
    line = ["-r", r"\tx\x41\q\\"]
    assert default_params(parse(line, {})).limits.stop == ("\tx\x41\\q\\",)
    assert default_params(parse([*line, "--no-escape"], {})).limits.stop == (r"\tx\x41\q\\",)


def test_limits_and_output() -> None:
    params = default_params(values("--keep 3 --no-cache-prompt --reasoning-format none -n 5"))
    assert (params.limits.n_keep, params.limits.n_predict) == (3, 5)
    assert not params.limits.cache_prompt
    assert params.output.reasoning_format == "none"


@pytest.mark.parametrize(("line", "is_verbose"), [("-v", True), ("-lv 10", True), ("-lv 9", False)])
def test_verbose_answers(line: str, *, is_verbose: bool) -> None:
    assert default_params(values(line)).output.verbose == is_verbose


def test_template_variables() -> None:
    assert json.loads(template_kwargs(values(""))) == {"preserve_reasoning": True}
    line = ["--chat-template-kwargs", '{"a": [1]}', "-rea", "off", "--reasoning-effort", "low"]
    found = json.loads(template_kwargs(parse([*line, "--no-reasoning-preserve"], {})))
    assert found == {
        "a": [1],
        "enable_thinking": False,
        "reasoning_effort": "low",
        "preserve_reasoning": False,
    }


@pytest.mark.parametrize("text", ["[]", "{", "1", "[" * 100_000])
def test_template_variables_are_an_object(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--chat-template-kwargs: expected a JSON object$"):
        template_kwargs(parse(["--chat-template-kwargs", text], {}))


@pytest.mark.parametrize(
    ("line", "changes_numbers"),
    [
        ("", False),
        ("-lm none --check-tensors --perf", False),
        ("-ctk q8_0", True),
        ("-fa on", True),
        ("--rope-scale 2", True),
        ("--no-repack", True),
        ("--override-kv a=int:1", True),
    ],
)
def test_what_two_engines_must_share(line: str, *, changes_numbers: bool) -> None:
    digest = numbers_digest(model_options(values(line)), context_options(values(line)))
    assert bool(digest) == changes_numbers
