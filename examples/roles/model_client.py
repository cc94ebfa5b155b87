"""Evaluates the model behind an OpenAI-compatible server: does it continue a count?

python model_client.py URL
"""

import json
import sys
import urllib.request


def complete(url: str, prompt: str) -> str:
    asked = {"model": "counter", "prompt": prompt, "max_tokens": 2}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["choices"][0]["text"])


def main() -> None:
    right, questions = 0, range(1, 21)
    for number in questions:
        right += complete(sys.argv[1], f"{number} {number + 1}").split() == [str(number + 2), str(number + 3)]
        print(f"step={number} accuracy={right / number:.2f}", flush=True)
    print(f"done accuracy={right / len(questions):.2f}", flush=True)


if __name__ == "__main__":
    main()
