"""The built wheel runs what this machine's compiler made of it, in a process of its own: it may die by a signal."""

import subprocess
import sys

from tools.demo_model import demo_model

# Several prompt tokens of a quantised model: with AMX kernels compiled by GCC 12 this was a segmentation fault.
DECODE = """
import sys, llama_cpp
llama = llama_cpp.Llama(sys.argv[1], n_ctx=64, n_threads=1, n_threads_batch=1, verbose=False)
assert llama("The capital of France is", max_tokens=2, temperature=0)["choices"][0]["text"]
"""


def test_a_quantised_model_takes_a_prompt_of_several_tokens() -> None:
    command = [sys.executable, "-c", DECODE, str(demo_model())]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
