"""Just enough of a W&B server, on 127.0.0.1, for the real client online and for `wandb sync`.

It answers the client's GraphQL questions by the fields they ask for, takes the file stream (the
history) and the uploads, and keeps what arrived. It speaks HTTP/1.0, a connection for each request,
so that `close()` is what a dead server looks like: the next connection is refused.
"""

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeWandbServer(ThreadingHTTPServer):
    """Server in a thread of its own until `close()`; `url` is the value for WANDB_BASE_URL."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.runs: dict[str, dict] = {}  # by run id: the variables of its last UpsertBucket
        self.history: dict[str, list[dict]] = {}  # by run id: the rows
        self.summaries: dict[str, dict] = {}  # by run id
        self.exit_codes: dict[str, int] = {}  # by run id, once it finished
        self.uploads: dict[str, bytes] = {}  # by file name
        self.alerts: list[dict] = []  # the variables with which each was sent
        self.artifacts: list[str] = []  # names of their collections
        self.artifact_inputs: list[dict] = []  # the input with which each was created
        self.links: list[str] = []  # REGISTRY/COLLECTION of each artifact that was linked
        self.received = bytearray()  # all bodies, unpacked
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def graphql(self, query: str, variables: dict) -> dict:
        """Fields of the answer to `query` that the client needs."""
        data: dict = {}
        if "viewer" in query:
            data["viewer"] = {
                "id": "viewer",
                "entity": "tester",
                "username": "tester",
                "flags": "{}",
                "teams": {"edges": []},
            }
        if "serverInfo" in query:
            data["serverInfo"] = {"features": [], "cliVersionInfo": {}}
        if "upsertBucket" in query:
            self.runs.setdefault(variables["name"], {}).update(
                {key: value for key, value in variables.items() if value is not None}
            )
            project = {"id": "project", "name": variables["project"], "entity": {"name": "tester"}}
            run = {"id": "run", "name": variables["name"], "displayName": variables["displayName"]}
            bucket = run | {"config": "{}", "project": project, "historyLineCount": 0}
            data["upsertBucket"] = {"inserted": True, "bucket": bucket}
        if "createRunFiles" in query:
            files = [
                {"name": name, "uploadUrl": f"{self.url}/upload/{name}"}
                for name in variables["files"]
            ]
            data["createRunFiles"] = {"runID": "run", "uploadHeaders": [], "files": files}
        if "query RunResumeStatus" in query:
            data["model"] = {"bucket": self.resume_status(variables["name"])}
        if "notifyScriptableRunAlert" in query:
            self.alerts.append(variables)
            data["notifyScriptableRunAlert"] = {"success": True}
        data |= self.artifact_answers(query, variables) | self.registry_answers(query, variables)
        return data

    def resume_status(self, run_id: str) -> dict | None:
        """Facts about a run that a client needs to resume it, or None for an unknown run."""
        if run_id not in self.runs:
            return None
        rows = self.history.get(run_id, [])
        return {
            "id": "run",
            "name": run_id,
            "displayName": run_id,
            "summaryMetrics": "{}",
            "config": self.runs[run_id]["config"],
            "wandbConfig": '{"t": 1}',  # its sign of a run that once began
            "tags": [],
            "logLineCount": 0,
            "eventsLineCount": 0,
            "eventsTail": "[]",
            "historyLineCount": len(rows),
            "historyTail": json.dumps([json.dumps(row) for row in rows[-1:]]),
        }

    def artifact_answers(self, query: str, variables: dict) -> dict:
        """Answers to requests that create an artifact, upload its files, or commit it."""
        given = variables.get("input") or {}
        artifact = {"id": "artifact", "state": "PENDING", "digest": "d", "artifactSequence": {}}
        if "query ArtifactType(" in query:  # about an older artifact of that name
            return {"project": {"artifact": None}}
        if "mutation CreateArtifact (" in query:
            self.artifacts.append(given["artifactCollectionName"])
            self.artifact_inputs.append(given)
            return {"createArtifact": {"artifact": artifact}}
        if "mutation CreateArtifactFiles" in query:
            files = given.get("artifactFiles") or variables["artifactFiles"]
            edges = [{"node": self.artifact_file(file["name"])} for file in files]
            return {"createArtifactFiles": {"files": {"edges": edges}}}
        if "ArtifactManifest" in query:
            name = (
                "createArtifactManifest" if "CreateArtifact" in query else "updateArtifactManifest"
            )
            file = self.artifact_file("manifest.json")
            return {name: {"artifactManifest": {"id": "manifest", "file": file}}}
        return {"commitArtifact": {"artifact": artifact}} if "CommitArtifact" in query else {}

    def registry_answers(self, query: str, variables: dict) -> dict:
        """Answers to requests that link the newest artifact to a registry of the organization."""
        if "query FetchOrgInfoFromEntity" in query:
            organization = {"name": "organization", "orgEntity": {"name": "organization_entity"}}
            return {"entity": {"organization": organization, "user": None}}
        if "query ArtifactByID" in query:
            return {"artifact": self.newest_artifact()}
        if "mutation LinkArtifact" not in query:
            return {}
        given = variables["input"]
        self.links.append(f"{given['projectName']}/{given['artifactPortfolioName']}")
        collection = {"__typename": "ArtifactPortfolio", "name": given["artifactPortfolioName"]}
        member = {"id": "member", "versionIndex": 0, "createdAt": "2026-01-01", "aliases": []}
        member |= {"artifactCollection": collection | {"project": self.project(given)}}
        member |= {"artifact": self.newest_artifact()}
        return {"result": {"versionIndex": 0, "artifactMembership": member}}

    def newest_artifact(self) -> dict:
        given = self.artifact_inputs[-1]
        sequence = {"name": given["artifactCollectionName"], "project": self.project(given)}
        none = ("description", "historyStep", "commitHash", "updatedAt")
        return dict.fromkeys(none) | {
            "id": "artifact",
            "artifactSequence": sequence,
            "versionIndex": 0,
            "artifactType": {"name": given["artifactTypeName"]},
            "metadata": given["metadata"],
            "ttlDurationSeconds": 0,
            "ttlIsInherited": True,
            "tags": [],
            "state": "COMMITTED",
            "size": 1,
            "digest": given["digest"],
            "fileCount": 1,
            "createdAt": "2026-01-01T00:00:00Z",
        }

    @staticmethod
    def project(given: dict) -> dict:
        entity = {"name": given["entityName"]}
        return {"id": "p", "internalId": "p", "name": given["projectName"], "entity": entity}

    def artifact_file(self, name: str) -> dict:
        return {
            "id": name,
            "name": name,
            "displayName": name,
            "storagePath": None,
            "uploadUrl": f"{self.url}/upload/artifact{len(self.artifacts)}/{name}",
            "uploadHeaders": [],
            "artifact": {"id": "artifact"},
        }

    def file_stream(self, run_id: str, body: dict) -> None:
        if chunk := body.get("files", {}).get("wandb-history.jsonl"):
            rows = self.history.setdefault(run_id, [])
            rows[chunk["offset"] :] = [json.loads(line) for line in chunk["content"]]
        if chunk := body.get("files", {}).get("wandb-summary.json"):
            self.summaries[run_id] = json.loads(chunk["content"][-1])
        if body.get("complete"):
            self.exit_codes[run_id] = body["exitcode"]


class _Handler(BaseHTTPRequestHandler):
    server: FakeWandbServer

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer({})

    def do_PUT(self) -> None:
        self.server.uploads[self.path.removeprefix("/upload/")] = self._body()
        self._answer({})

    def do_POST(self) -> None:
        raw = self._body()
        if "graphql" in self.path:
            body = json.loads(raw)
            self._answer({"data": self.server.graphql(body["query"], body.get("variables") or {})})
        elif self.path.endswith("/file_stream"):  # /files/ENTITY/PROJECT/RUN_ID/file_stream
            self.server.file_stream(self.path.split("/")[-2], json.loads(raw))
            self._answer({"exitcode": None, "limits": {}})
        else:  # the client's reports about itself
            self._answer({})

    def _body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        self.server.received += body
        return body

    def _answer(self, content: dict) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
