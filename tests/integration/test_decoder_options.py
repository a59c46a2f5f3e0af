"""Options of llama.cpp reach it: a real decoder and a real vocabulary with the tiny model."""

import json
import os

import pytest

from services.engine.config import EngineSettings
from services.engine.errors import ModelNotLoadable
from services.engine.llama.devices import describe_devices, find_buffer_type, find_devices
from services.engine.llama.vocabulary import Vocabulary
from services.engine.open_model import digest_of, open_vocabulary
from services.engine.options import ContextOptions, ModelOptions
from services.engine.protocol import DecoderConfig, LoadFailed
from services.engine.questions import load_questions
from tests.support.decoder_client import STORIES, DecoderClient, admit, decoder, params

PROMPT = (1, *range(300, 360))
NO_BOS = ModelOptions(overrides=(("tokenizer.ggml.add_bos_token", "bool", "false"),))
SETTINGS = EngineSettings(
    engine="e", host="h", model_key="k", model_name="n", model_path=STORIES, n_ctx=1024
)


def ids_with(model: ModelOptions | None = None, context: ContextOptions | None = None):
    """What the model says greedily, with logprobs of the first token to tell small changes."""
    options = {"model": model or ModelOptions(), "context": context or ContextOptions()}
    with decoder(n_ctx=512, n_slots=1, **options) as client:
        run = client.run_one(admit("g", PROMPT, n_predict=8, temperature=0.0, n_probs=5))
    probs = run.emitted[0].probs
    assert probs is not None
    return run.ids, probs


@pytest.fixture(scope="module")
def plain():
    return ids_with()


@pytest.mark.parametrize("mode", ["none", "mmap", "mlock", "mmap+mlock", "dio"])
def test_however_weights_are_read_the_numbers_are_the_same(mode: str, plain: object) -> None:
    assert ids_with(ModelOptions(load_mode=mode, is_checked=True, lazy_mode="off")) == plain


def test_where_there_is_no_gpu_its_options_change_nothing(plain: object) -> None:
    options = ModelOptions(
        n_gpu_layers=-2, split_mode="none", tensor_split=(1.0,), devices=("none",)
    )
    context = ContextOptions(offloads_kv=False, offloads_ops=False, has_perf=True)
    assert ids_with(options, context) == plain


@pytest.mark.parametrize(
    "context",
    [
        ContextOptions(cache_type_k="q8_0", cache_type_v="q8_0", flash_attn="on"),
        ContextOptions(cache_type_k="bf16", flash_attn="off"),
        ContextOptions(cache_type_k="q4_0"),
        ContextOptions(rope_scaling="linear", rope_freq_scale=0.25),
        ContextOptions(rope_freq_base=500.0),
        ContextOptions(rope_scaling="yarn", rope_freq_scale=0.25, yarn_orig_ctx=64),
    ],
    ids=lambda context: context.cache_type_k + context.rope_scaling,
)
def test_what_changes_the_numbers_does(context: ContextOptions, plain: tuple[object, ...]) -> None:
    assert ids_with(context=context)[1] != plain[1]


def test_weights_in_a_named_buffer(plain: tuple[object, ...]) -> None:
    options = ModelOptions(buffers=((r"\.ffn_", "CPU"),), is_repacked=False)
    assert ids_with(options)[0] == plain[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": ModelOptions(devices=("CUDA7",))}, "--device: there is no CUDA7"),
        ({"model": ModelOptions(buffers=(("x", "NPU"),))}, "no buffer type NPU; there are CPU"),
        ({"model": ModelOptions(tensor_split=(1.0,) * 99)}, "--tensor-split: 99 shares"),
        ({"model": ModelOptions(overrides=(("k" * 128, "int", "1"),))}, "--override-kv"),
        ({"cpus": (4095,)}, "this machine has no core 4095"),
        ({"context": ContextOptions(cache_type_v="q8_0", flash_attn="off")}, "no context for"),
    ],
)
def test_what_cannot_be_is_said(changes: dict[str, object], message: str) -> None:
    client = DecoderClient(DecoderConfig(model_path=STORIES, n_ctx=512, n_threads=1, **changes))  # pyright: ignore[reportArgumentType]
    try:
        outputs = [output for output in client.read().outputs if isinstance(output, LoadFailed)]
        while not outputs:
            outputs = [o for o in client.read().outputs if isinstance(o, LoadFailed)]
        assert message in outputs[0].message
    finally:
        client.close()


def test_a_decoder_runs_on_the_cores_it_is_given() -> None:
    core = max(os.sched_getaffinity(0))
    with decoder(n_ctx=512, cpus=(core,)) as client:
        assert os.sched_getaffinity(client.process.pid) == {core}


def test_overridden_metadata_reach_the_vocabulary() -> None:
    assert Vocabulary(STORIES).adds_bos
    assert not Vocabulary(STORIES, options=NO_BOS).adds_bos


def test_overridden_metadata_reach_the_header_and_the_digest() -> None:
    key = "llama.context_length"
    shorter = EngineSettings(
        engine="e",
        host="h",
        model_key="k",
        model_name="n",
        model_path=STORIES,
        model=ModelOptions(overrides=((key, "int", "128"),)),
    )
    header, _ = open_vocabulary(shorter)
    assert header.n_ctx_train == 128
    assert digest_of(shorter, header) != digest_of(SETTINGS, open_vocabulary(SETTINGS)[0])


async def test_a_bias_for_a_token_that_is_none_stops_the_start() -> None:
    settings = EngineSettings(
        engine="e",
        host="h",
        model_key="k",
        model_name="n",
        model_path=STORIES,
        defaults=params(logit_bias=((10**6, 1.0),)),
    )
    with pytest.raises(ModelNotLoadable, match=r"^--logit-bias: the model has no token 1000000$"):
        await load_questions(settings, "b1")


def test_this_build_has_no_devices_but_the_cpu() -> None:
    assert all(": " in line for line in describe_devices())
    assert find_devices(("none",)) == []
    assert find_buffer_type("CPU")


def test_kwargs_are_json() -> None:
    assert json.loads(SETTINGS.template_kwargs) == {}
