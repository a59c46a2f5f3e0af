"""Which model is served, and where it comes from."""

from services.cli.table.row import MODEL, MODELS, Flag, flag

# fmt: off
MODEL_FLAGS: tuple[Flag, ...] = (
    flag("-m --model", "LLAMA_ARG_MODEL", "text", None, MODEL, "GGUF file to serve; with --model-url, where to keep it", metavar="FILE"),
    flag("-a --alias", "LLAMA_ARG_ALIAS", "list", (), MODEL, "names of the model in the API, comma-separated (default: the repository's or the file's name)"),
    flag("--tags", "LLAMA_ARG_TAGS", "list", (), MODEL, "tags of the model, comma-separated, for information"),
    flag("-hf -hfr --hf-repo", "LLAMA_ARG_HF_REPO", "text", "", MODEL, "repository of a model hub to download the model from; without a quant Q4_K_M, else Q8_0, else the first file", metavar="USER/MODEL[:QUANT]"),
    flag("-hff --hf-file", "LLAMA_ARG_HF_FILE", "text", "", MODEL, "file of that repository, instead of a quant", metavar="FILE"),
    flag("-hft --hf-token", "HF_TOKEN", "text", "", MODEL, "access token of the model hub", metavar="TOKEN", is_secret=True),
    flag("-mu --model-url", "LLAMA_ARG_MODEL_URL", "text", "", MODEL, "address to download the model from", metavar="URL"),
    flag("--offline", "LLAMA_ARG_OFFLINE", "bool", False, MODEL, "download nothing: use what is in the cache"),
    flag("-dr --docker-repo", "LLAMA_ARG_DOCKER_REPO", "text", "", MODEL, "model of Docker Hub", metavar="[REPO/]MODEL[:QUANT]", is_built=False),
    flag("--models-dir", "LLAMA_ARG_MODELS_DIR", "text", "", MODELS, "folder of models to list where none is named, besides the cache of downloads", metavar="DIR"),
    flag("--gpt-oss-20b-default", "LLAMATAPE_GPT_OSS_20B", "bool", False, MODEL, "gpt-oss-20b from the model hub, with fitting settings"),
    flag("--gpt-oss-120b-default", "LLAMATAPE_GPT_OSS_120B", "bool", False, MODEL, "gpt-oss-120b from the model hub, with fitting settings"),
)
# fmt: on
