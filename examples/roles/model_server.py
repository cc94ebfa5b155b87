"""A stand-in for a model server with OpenAI's interface, as vLLM and SGLang have it. Its model continues a count.

python model_server.py ADDRESS PORT
"""

import json
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(prompt: str, tokens: int) -> str:
    """The next numbers after the last one of the prompt."""
    last = int((re.findall(r"\d+", prompt) or [0])[-1])
    return "".join(f" {last + number}" for number in range(1, tokens + 1))


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer(200 if self.path == "/health" else 404, {})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/completions":
            return self.answer(404, {})
        text = completion(asked["prompt"], asked.get("max_tokens", 16))
        choice = {"index": 0, "text": text, "finish_reason": "length"}
        return self.answer(200, {"object": "text_completion", "model": asked["model"], "choices": [choice]})

    def answer(self, status: int, content: dict[str, object]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Log no requests."""


if __name__ == "__main__":
    time.sleep(1.0)  # a model of many GB takes minutes to load: until then, /health does not answer
    ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
