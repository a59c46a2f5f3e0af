"""Parameters of requests that do not set them: llama-server's sampling flags."""

from schemas.params import DEFAULT_SAMPLERS
from services.cli.table.row import I32, SAMPLING, U32, Flag, flag

_LETTERS = "edskypmxt"
_WIDE = 1e9

# fmt: off
SAMPLING_FLAGS: tuple[Flag, ...] = (
    flag("-n --predict --n-predict", "LLAMA_ARG_N_PREDICT", "int", -1, SAMPLING, "tokens to generate at most, -1 for no limit", low=-1, high=I32),
    flag("--keep", "LLAMATAPE_KEEP", "int", 0, SAMPLING, "tokens of the prompt that a context shift keeps, -1 for all", low=-1, high=I32),
    flag("-r --reverse-prompt", "LLAMATAPE_REVERSE_PROMPT", "texts", (), SAMPLING, "text that ends an answer; may be given several times"),
    flag("-s --seed", "LLAMATAPE_SEED", "int", -1, SAMPLING, "seed of the random source, -1 for a random one", low=-1, high=U32),
    flag("--samplers", "LLAMATAPE_SAMPLERS", "text", ";".join(DEFAULT_SAMPLERS), SAMPLING, "samplers in order, separated by semicolons"),
    flag("--sampler-seq --sampling-seq", "LLAMATAPE_SAMPLING_SEQ", "text", _LETTERS, SAMPLING, "samplers in order, a letter each", metavar="LETTERS"),
    flag("--ignore-eos", "LLAMATAPE_IGNORE_EOS", "bool", False, SAMPLING, "go on after the end"),
    flag("--temp --temperature", "LLAMA_ARG_TEMPERATURE", "float", 0.8, SAMPLING, "temperature, 0 for greedy", low=-_WIDE, high=_WIDE),
    flag("--top-k", "LLAMA_ARG_TOP_K", "int", 40, SAMPLING, "choose among this many, 0 disables", low=-I32, high=I32),
    flag("--top-p", "LLAMA_ARG_TOP_P", "float", 0.95, SAMPLING, "choose among this much probability, 1 disables", low=-_WIDE, high=_WIDE),
    flag("--min-p", "LLAMA_ARG_MIN_P", "float", 0.05, SAMPLING, "least probability relative to the best, 0 disables", low=-_WIDE, high=_WIDE),
    flag("--top-nsigma --top-n-sigma", "LLAMATAPE_TOP_N_SIGMA", "float", -1.0, SAMPLING, "choose within this many standard deviations of the best, -1 disables", low=-_WIDE, high=_WIDE),
    flag("--xtc-probability", "LLAMATAPE_XTC_PROBABILITY", "float", 0.0, SAMPLING, "how often the best ones are left out, 0 disables", low=-_WIDE, high=_WIDE),
    flag("--xtc-threshold", "LLAMATAPE_XTC_THRESHOLD", "float", 0.1, SAMPLING, "least probability of what XTC leaves out, 1 disables", low=-_WIDE, high=_WIDE),
    flag("--typical --typical-p", "LLAMATAPE_TYPICAL_P", "float", 1.0, SAMPLING, "locally typical sampling, 1 disables", low=-_WIDE, high=_WIDE),
    flag("--repeat-last-n", "LLAMATAPE_REPEAT_LAST_N", "int", 64, SAMPLING, "tokens that the penalties look back, 0 disables", low=0, high=I32),
    flag("--repeat-penalty", "LLAMA_ARG_REPEAT_PENALTY", "float", 1.0, SAMPLING, "penalty of repeated tokens, 1 disables", low=1e-30, high=1e30),
    flag("--presence-penalty", "LLAMA_ARG_PRESENCE_PENALTY", "float", 0.0, SAMPLING, "penalty of tokens that were there, 0 disables", low=-_WIDE, high=_WIDE),
    flag("--frequency-penalty", "LLAMA_ARG_FREQUENCY_PENALTY", "float", 0.0, SAMPLING, "penalty per time that a token was there, 0 disables", low=-_WIDE, high=_WIDE),
    flag("--dry-multiplier", "LLAMATAPE_DRY_MULTIPLIER", "float", 0.0, SAMPLING, "DRY: strength, 0 disables", low=-_WIDE, high=_WIDE),
    flag("--dry-base", "LLAMATAPE_DRY_BASE", "float", 1.75, SAMPLING, "DRY: base, below 1 means the default", low=-_WIDE, high=_WIDE),
    flag("--dry-allowed-length", "LLAMATAPE_DRY_ALLOWED_LENGTH", "int", 2, SAMPLING, "DRY: longest repetition without penalty", low=0, high=I32),
    flag("--dry-penalty-last-n", "LLAMATAPE_DRY_PENALTY_LAST_N", "int", 64, SAMPLING, "DRY: tokens to look back, 0 disables", low=0, high=I32),
    flag("--dry-sequence-breaker", "LLAMATAPE_DRY_SEQUENCE_BREAKER", "texts", (), SAMPLING, "DRY: text that no repetition crosses; may be given several times, the first use clears the defaults, none means none (default: newline, colon, quote, asterisk)"),
    flag("--adaptive-target", "LLAMATAPE_ADAPTIVE_TARGET", "float", -1.0, SAMPLING, "adaptive-p: probability to select near, negative disables", low=-_WIDE, high=1),
    flag("--adaptive-decay", "LLAMATAPE_ADAPTIVE_DECAY", "float", 0.9, SAMPLING, "adaptive-p: how slowly the target adapts", low=0, high=0.99),
    flag("--dynatemp-range", "LLAMATAPE_DYNATEMP_RANGE", "float", 0.0, SAMPLING, "range of the dynamic temperature, 0 disables", low=-_WIDE, high=_WIDE),
    flag("--dynatemp-exp", "LLAMATAPE_DYNATEMP_EXP", "float", 1.0, SAMPLING, "exponent of the dynamic temperature", low=-_WIDE, high=_WIDE),
    flag("--mirostat", "LLAMATAPE_MIROSTAT", "int", 0, SAMPLING, "Mirostat 1 or 2, 0 disables", low=0, high=2),
    flag("--mirostat-lr", "LLAMATAPE_MIROSTAT_LR", "float", 0.1, SAMPLING, "Mirostat: learning rate eta", low=-_WIDE, high=_WIDE),
    flag("--mirostat-ent", "LLAMATAPE_MIROSTAT_ENT", "float", 5.0, SAMPLING, "Mirostat: target entropy tau", low=-_WIDE, high=_WIDE),
    flag("-l --logit-bias", "LLAMATAPE_LOGIT_BIAS", "texts", (), SAMPLING, "makes a token likelier or less likely; may be given several times", metavar="TOKEN_ID(+/-)BIAS"),
    flag("--grammar", "LLAMATAPE_GRAMMAR", "text", "", SAMPLING, "grammar of every answer (GBNF)", metavar="GRAMMAR"),
    flag("--grammar-file", "LLAMATAPE_GRAMMAR_FILE", "text", "", SAMPLING, "file with a grammar", metavar="FILE"),
    flag("-j --json-schema", "LLAMATAPE_JSON_SCHEMA", "text", "", SAMPLING, "JSON schema of every answer", metavar="SCHEMA"),
    flag("-jf --json-schema-file", "LLAMATAPE_JSON_SCHEMA_FILE", "text", "", SAMPLING, "file with a JSON schema", metavar="FILE"),
    flag("-bs --backend-sampling", "LLAMA_ARG_BACKEND_SAMPLING", "bool", False, SAMPLING, "sample on the GPU (no effect: tokens are sampled on the CPU)"),
    flag("-e --escape / --no-escape", "LLAMATAPE_ESCAPE", "bool", True, SAMPLING, r"read \n, \t and so on in --reverse-prompt and --dry-sequence-breaker"),
)
# fmt: on
