"""The judge of grpo.py: rates answers to sums, half a point for each right digit.

python judge.py ADDRESS PORT
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def reward(problem: list[int], answer: list[int]) -> float:
    right = divmod(sum(problem), 10)
    return sum(given == digit for given, digit in zip(answer, right, strict=True)) / 2


class Judge(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps([reward(*pair) for pair in zip(asked["problems"], asked["answers"], strict=True)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Log no requests."""


if __name__ == "__main__":
    ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Judge).serve_forever()
