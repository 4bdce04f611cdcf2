#!/usr/bin/env python3
"""On a machine with GPUs: `vllm serve` serves a small model with random weights, and answers as torch does on the CPU.

No network is needed. Prints one line for each thing found. Exits 1 at the first fault, with one line about it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

WORDS, LENGTH, ANSWER = 512, 24, 16
"""Words that the model knows, of a prompt, and of an answer."""

PROMPTS = [[(7 * prompt + 3 * place) % WORDS for place in range(LENGTH)] for prompt in range(4)]

PORT = int(os.environ.get("PORT", "8000"))
PATIENCE = 900
"""Seconds that the server may take to start: it compiles the model, and captures it in CUDA graphs."""

MARGIN = 0.05
"""How far a word of the answer may be below the best one, as a share of what the scores of all words differ by. Weights
are bfloat16 with 8 bits: near to each other two words may change places."""


def model(folder: Path) -> Any:
    """Write a Llama with random weights, and a tokenizer whose words are numbers; return the model in float32."""
    import torch  # noqa: PLC0415 - says nothing where vLLM is missing
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: PLC0415

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.1,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    llama = LlamaForCausalLM(config).to(torch.bfloat16)
    llama.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({str(word): word for word in range(WORDS)}, unk_token="0"))  # noqa: S106
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="0").save_pretrained(folder)  # noqa: S106
    return llama.to(torch.float32).eval()


def ask(path: str, body: object = None) -> bytes:
    """Return what the server answers."""
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310
        return bytes(response.read())


def wait(server: subprocess.Popen[bytes], log: Path) -> float:
    """Wait until the server is up, and return how many seconds that took."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        if server.poll() is not None:
            sys.exit(f"`vllm serve` ended with {server.returncode}: {log.read_text().strip()[-3000:]}")
        try:
            ask("/health")
        except OSError:
            time.sleep(1)
        else:
            return time.monotonic() - began
    sys.exit(f"`vllm serve` is not up after {PATIENCE} seconds: {log.read_text().strip()[-3000:]}")


def check(llama: Any, prompt: list[int], answer: list[int]) -> float:
    """Return how far the worst word of an answer is below the best one, as a share."""
    import torch  # noqa: PLC0415

    with torch.inference_mode():
        scores = llama(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
    chosen = scores.gather(1, torch.tensor(answer)[:, None])[:, 0]
    spread = scores.amax(1) - scores.amin(1)
    return float(((scores.amax(1) - chosen) / spread).max())


def main() -> None:
    """Serve the model, ask for all answers at once, and judge them."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, log = Path(temporary, "model"), Path(temporary, "log")
        llama = model(folder)
        command = ["vllm", "serve", str(folder), "--port", str(PORT), "--served-model-name", "random"]
        command += ["--max-model-len", "128", "--gpu-memory-utilization", "0.3", "--generation-config", "vllm"]
        with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as server:
            try:
                print(f"up after {wait(server, log):.0f} seconds")
                body = {
                    "model": "random",
                    "prompt": PROMPTS,
                    "max_tokens": ANSWER,
                    "temperature": 0,
                    "ignore_eos": True,
                }
                choices = json.loads(ask("/v1/completions", body))["choices"]
            finally:
                server.terminate()
        answers = [[int(word) for word in choice["text"].split()] for choice in choices]
        if [len(answer) for answer in answers] != [ANSWER] * len(PROMPTS):
            sys.exit(f"asked for {ANSWER} words each, and got {answers}")
        worst = max(check(llama, prompt, answer) for prompt, answer in zip(PROMPTS, answers, strict=True))
        result = f"{len(answers)} answers: a word is at most {worst:.3f} below the best one; allowed is {MARGIN}"
        if not worst <= MARGIN:
            sys.exit(result)
        print(result)


try:
    import vllm
except ImportError as error:
    sys.exit(f"vLLM cannot be imported: {error}")
print(f"vLLM {vllm.__version__}")
main()
