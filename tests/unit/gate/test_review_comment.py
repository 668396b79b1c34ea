"""The comment on a review: found on any page, edited once it is there, refused in one line."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from nearpeak.errors import StoreError
from nearpeak.gate.pipeline_event import PipelineEvent
from nearpeak.gate.review_comment import PAGE_COUNT, upsert_comment

MARKER = "<!-- nearpeak-gate:kernels -->"


class Service(BaseHTTPRequestHandler):
    """Comments as GitHub and GitLab list, take and edit them."""

    def answer(self, content, code=200):
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def do_GET(self):
        page = int(self.path.rpartition("page=")[2])
        self.answer(self.server.comments[(page - 1) * PAGE_COUNT : page * PAGE_COUNT])

    def edit(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        self.server.requests.append((self.command, self.path, dict(self.headers)))
        if self.server.refuses:
            return self.answer({"message": "Resource not accessible by integration"}, 403)
        if self.command == "POST":
            self.server.comments.append({"id": 1000 + len(self.server.comments), "body": body})
        else:
            next(one for one in self.server.comments if self.path.endswith(f"/{one['id']}"))["body"] = body
        return self.answer({})

    do_POST = do_PATCH = do_PUT = edit  # noqa: N815

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def service():
    server = HTTPServer(("127.0.0.1", 0), Service)
    server.comments, server.requests, server.refuses = [], [], False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def event(service, provider):
    url = f"http://127.0.0.1:{service.server_port}/issues"
    return PipelineEvent(
        provider=provider, branch="pr-1", main="main", is_review=True, is_fork=False, comments_url=f"{url}/1/comments",
        comment_url=f"{url}/comments",
    )  # fmt: skip


@pytest.mark.parametrize(("provider", "method"), [("github", "PATCH"), ("gitlab", "PUT")])
def test_a_comment_is_written_once_and_edited_from_then_on(service, provider, method):
    service.comments += [{"id": number, "body": "a word of somebody"} for number in range(PAGE_COUNT + 3)]
    assert upsert_comment(event(service, provider), f"{MARKER}\nfirst", "token") == "written"
    assert upsert_comment(event(service, provider), f"{MARKER}\nsecond", "token") == "edited"
    assert [one["body"] for one in service.comments if one["body"].startswith(MARKER)] == [f"{MARKER}\nsecond"]
    assert [request[0] for request in service.requests] == ["POST", method]
    name, value = ("Authorization", "Bearer token") if provider == "github" else ("Private-Token", "token")
    assert {key.title(): text for key, text in service.requests[0][2].items()}[name] == value


def test_a_token_that_may_not_write_is_said_in_one_line(service):
    service.refuses = True
    with pytest.raises(StoreError, match="github answers 403 Forbidden to POST"):
        upsert_comment(event(service, "github"), f"{MARKER}\nfirst", "token")
