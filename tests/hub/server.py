"""A small hub on 127.0.0.1 with the routes that huggingface_hub calls: repositories, commits, LFS, files.

It follows the public API: /api/repos/create, /api/validate-yaml, preupload, LFS batch and upload, commit (NDJSON),
branches, repository info with file sizes, and resolve with ETag, X-Repo-Commit and, for large files, a redirect.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

OWNER = "token-of-anna"  # may write
READER = "token-of-ben"  # may read
LICENCES = ("apache-2.0", "mit", "other")
REPO = r"(?P<repo>[^/]+/[^/]+)"


@dataclass
class Repo:
    """Files of each commit, and the commit of each branch."""

    private: bool = False
    gated: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, branch: str, files: dict[str, bytes]) -> str:
        digest = hashlib.sha1(f"{branch} {len(self.commits)}".encode()).hexdigest()
        self.commits[digest] = files
        self.branches[branch] = digest
        return digest

    def files(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        commit = self.branches.get(revision, revision)
        return (commit, self.commits[commit]) if commit in self.commits else None


@dataclass
class Hub:
    """The state of the server: its repositories, uploaded blobs, and a log of requests."""

    repos: dict[str, Repo] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    fails: int | None = None  # every request is answered with this status
    stores: bool = True  # False: uploads are refused
    url: str = ""

    def add(self, repo: str, files: dict[str, bytes], **options: Any) -> str:
        made = self.repos.setdefault(repo, Repo(**options))
        return made.commit("main", files)


class Refused(Exception):
    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        self.status, self.message, self.code = status, message, code


class Handler(BaseHTTPRequestHandler):
    """Requests of the client; `hub` is set by `serving`."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._handle("GET")

    def do_HEAD(self) -> None:
        self._handle("HEAD")

    def do_POST(self) -> None:
        self._handle("POST")

    def do_PUT(self) -> None:
        self._handle("PUT")

    def _handle(self, method: str) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self._body()
        self.hub.requests.append(f"{method} {path}")
        try:
            if self.hub.fails is not None:
                raise Refused(self.hub.fails, "out of order")
            for verbs, pattern, answer in ROUTES:
                found = re.fullmatch(pattern, path)
                if found is not None and method in verbs:
                    answer(self, body, **found.groupdict())
                    return
            raise Refused(404, f"no route for {method} {path}")
        except Refused as error:
            headers = {"X-Error-Message": error.message} | ({"X-Error-Code": error.code} if error.code else {})
            self._send(error.status, json.dumps({"error": error.message}).encode(), headers)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = b""
        while size := int(self.rfile.readline().strip(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _json(self, content: Any, status: int = 200) -> None:
        self._send(status, json.dumps(content).encode(), {"Content-Type": "application/json"})

    @property
    def token(self) -> str | None:
        given = self.headers.get("Authorization")
        return None if given is None else given.removeprefix("Bearer ")

    def readable(self, name: str) -> Repo:
        if self.token not in (None, OWNER, READER):
            raise Refused(401, "Invalid credentials in Authorization header")
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and self.token != OWNER):
            raise Refused(401 if self.token is None else 404, "Repository not found", "RepoNotFound")
        if repo.gated and self.token != OWNER:
            raise Refused(403, "Access to the model is restricted", "GatedRepo")
        return repo

    def writable(self, name: str) -> Repo:
        self.check_writer()
        return self.readable(name)

    def check_writer(self) -> None:
        if self.token is None:
            raise Refused(401, "Invalid username or password.")
        if self.token != OWNER:
            raise Refused(403, "You don't have the rights to create a model under this namespace")

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        self.check_writer()
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.hub.repos:
            self._json({"error": "You already created this model repo", "url": f"{self.hub.url}/{name}"}, 409)
            return
        made = self.hub.repos[name] = Repo(private=asked.get("visibility") == "private")
        made.commit("main", {".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"})
        self._json({"url": f"{self.hub.url}/{name}"})

    def branch(self, body: bytes, repo: str, branch: str) -> None:
        found = self.writable(repo)
        if branch in found.branches:
            raise Refused(409, "Reference already exists")
        found.commit(branch, dict(found.commits[found.branches["main"]]))
        self._json({}, 201)

    def validate(self, body: bytes) -> None:
        content = json.loads(body)["content"]
        header = yaml.safe_load(re.match(r"---\n(.*?)\n---", content, re.DOTALL)[1])  # type: ignore[index]
        if "license" in header and header["license"] not in LICENCES:
            problem = f'"license" must be one of [{", ".join(LICENCES)}]'
            if self.headers.get("Accept") == "text/plain":
                self._send(400, f"- {problem}\n".encode())
            else:
                self._json({"errors": [{"message": problem}], "warnings": []}, 400)
            return
        self._json({"errors": [], "warnings": []})

    def preupload(self, body: bytes, repo: str, revision: str) -> None:
        files = (self.writable(repo).files(revision) or ("", {}))[1]
        answers = []
        for one in json.loads(body)["files"]:
            lfs = one["path"].endswith(".safetensors")
            old = files.get(one["path"])
            oid = None if old is None else _oid(old, lfs)
            mode = "lfs" if lfs else "regular"
            answers.append({"path": one["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        self._json({"files": answers})

    def lfs_batch(self, body: bytes, repo: str) -> None:
        self.writable(repo)
        objects = []
        for one in json.loads(body)["objects"]:
            entry = {"oid": one["oid"], "size": one["size"]}
            if one["oid"] not in self.hub.blobs:
                entry["actions"] = {"upload": {"href": f"{self.hub.url}/blobs/{one['oid']}"}}
            objects.append(entry)
        self._json({"transfer": "basic", "objects": objects})

    def upload(self, body: bytes, oid: str) -> None:
        if not self.hub.stores:
            raise Refused(403, "The store is full")
        if hashlib.sha256(body).hexdigest() != oid:
            raise Refused(400, "the content has another hash")
        self.hub.blobs[oid] = body
        self._send(200, b"")

    def commit(self, body: bytes, repo: str, revision: str) -> None:
        found = self.writable(repo)
        if self.headers.get("Content-Type") != "application/x-ndjson":
            raise Refused(400, "expected NDJSON")
        start = found.files(revision)
        if start is None:
            raise Refused(404, "Invalid rev id", "RevisionNotFound")
        files = dict(start[1])
        for line in body.splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif item["key"] == "lfsFile":
                files[value["path"]] = self.hub.blobs[value["oid"]]
        oid = found.commit(revision, files)
        self._json({"commitUrl": f"{self.hub.url}/{repo}/commit/{oid}", "commitOid": oid, "hookOutput": ""})

    def info(self, body: bytes, repo: str, revision: str = "main") -> None:
        found = self.readable(repo)
        files = found.files(revision)
        if files is None:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        siblings = [
            {"rfilename": name, "size": len(content), "blobId": _oid(content, False)}
            for name, content in files[1].items()
        ]
        card = _header(files[1].get("README.md", b""))
        more = {"library_name": card["library_name"]} if "library_name" in card else {}
        self._json({"id": repo, "sha": files[0], "private": found.private, "siblings": siblings, **more})

    def resolve(self, body: bytes, repo: str, revision: str, file: str) -> None:
        files = self.readable(repo).files(revision)
        if files is None:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        if file not in files[1]:
            raise Refused(404, "Entry not found", "EntryNotFound")
        content = files[1][file]
        if not file.endswith(".safetensors"):
            self._send(200, content, {"ETag": f'"{_oid(content, False)}"', "X-Repo-Commit": files[0]})
            return
        oid = _oid(content, True)  # large files come from a store of their own
        self.hub.blobs[oid] = content
        headers = {
            "Location": f"{self.hub.url}/blobs/{oid}".replace("127.0.0.1", "localhost"),  # another host
            "X-Linked-ETag": f'"{oid}"',
            "X-Linked-Size": str(len(content)),
            "X-Repo-Commit": files[0],
        }
        self._send(302, b"", headers)

    def blob(self, body: bytes, oid: str) -> None:
        if self.token is not None:
            raise Refused(400, "the token of the hub is not for the store")
        if oid not in self.hub.blobs:
            raise Refused(404, "no such blob")
        self._send(200, self.hub.blobs[oid])


def _oid(content: bytes, lfs: bool) -> str:
    """The identity of a file: SHA-256 in LFS, git's SHA-1 of a blob otherwise."""
    return (
        hashlib.sha256(content).hexdigest() if lfs else hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    )


def _header(card: bytes) -> dict[str, Any]:
    found = re.match(rb"---\n(.*?)\n---", card, re.DOTALL)
    return yaml.safe_load(found[1]) if found else {}


ROUTES: list[tuple[tuple[str, ...], str, Any]] = [
    (("POST",), r"/api/repos/create", Handler.create),
    (("POST",), r"/api/validate-yaml", Handler.validate),
    (("POST",), rf"/api/models/{REPO}/branch/(?P<branch>.+)", Handler.branch),
    (("POST",), rf"/api/models/{REPO}/preupload/(?P<revision>.+)", Handler.preupload),
    (("POST",), rf"/api/models/{REPO}/commit/(?P<revision>.+)", Handler.commit),
    (("GET",), rf"/api/models/{REPO}", Handler.info),
    (("GET",), rf"/api/models/{REPO}/revision/(?P<revision>.+)", Handler.info),
    (("POST",), rf"/{REPO}\.git/info/lfs/objects/batch", Handler.lfs_batch),
    (("PUT",), r"/blobs/(?P<oid>\w+)", Handler.upload),
    (("GET",), r"/blobs/(?P<oid>\w+)", Handler.blob),
    (("HEAD", "GET"), rf"/{REPO}/resolve/(?P<revision>[^/]+)/(?P<file>.+)", Handler.resolve),
]


@contextmanager
def serving() -> Iterator[Hub]:
    """A running hub; its `url` is the endpoint."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OneHub", (Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
