"""The REST application: what TensorFlow Serving documents, and what it answers to requests that are none."""

import json
import pathlib

import pytest
import schemathesis
import tensorflow as tf
from hypothesis import HealthCheck, settings
from starlette.testclient import TestClient

from datalens_tf.serving import openapi, rest
from datalens_tf.serving.export import export_generator
from datalens_tf.serving.servables import Limits, Models
from tests.serving.released import STATEMENT
from tests.serving.tiny_generator import SETTINGS, TinyGenerator

GOLDEN = json.loads((pathlib.Path(__file__).parent / "golden" / "rest.json").read_text())
LOCAL = "http://localhost:8501"


def save(folder, function, **specs):
    module = tf.Module()
    signature = tf.function(function, input_signature=[tf.TensorSpec(shape, dtype, name)
                                                       for name, (shape, dtype) in specs.items()])
    tf.saved_model.save(module, str(folder), signatures=signature)
    return folder.parent


@pytest.fixture(scope="module", name="models")
def fixture_models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return Models({
        "half_plus_two": save(folder / "half" / "123", lambda x: {"y": x / 2 + 2}, x=([None], tf.float32)),
        "tagged": save(
            folder / "tagged" / "1",
            lambda tag, signal, sensor: {
                "tag": tag, "raw_bytes": tag,
                "total": tf.reduce_sum(signal, 1) + tf.reduce_sum(sensor, [1, 2])},
            tag=([None], tf.string), signal=([None, 3], tf.float32), sensor=([None, 2, 2], tf.float32)),
        "tiny": export_generator(TinyGenerator(), folder / "tiny", **SETTINGS,
                                 assets={"privacy.json": json.dumps(STATEMENT)}).parent})


@pytest.fixture(scope="module", name="client")
def fixture_client(models):
    return TestClient(rest.application(models), base_url=LOCAL, raise_server_exceptions=False)


def ask(client, path, body=None, **options):
    answer = client.get(path, **options) if body is None else client.post(path, json=body, **options)
    return answer.status_code, answer.json()


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["about"])
def test_as_documented(client, case):
    assert ask(client, case["path"], case.get("body")) == (case["status"], case["answer"])


def test_malformed_bodies_are_answered_with_an_error(client):
    path = "/v1/models/half_plus_two:predict"
    for content in (b"{", b"[1]", b'{"instances": []}', b'{"instances": [1], "inputs": [1]}', b"[" * 10**6, b"\xff",
                    b'{"instances": [1' + b"0" * 5000 + b"]}", b'{"instances": [[1], [1, 2]]}',
                    b'{"instances": [true]}', b'{"instances": ["a"]}', b'{"instances": [{"y": 1}]}',
                    b'{"signature_name": 1, "inputs": [1]}', b'{"instances": [{"b64": 3}]}'):
        answer = client.post(path, content=content)
        assert (answer.status_code, set(answer.json())) == (400, {"error"}), content[:50]
        assert "\n" not in answer.json()["error"] and len(answer.content) < 1000


def test_numbers_that_do_not_fit_their_type(client):
    for value in (2**63, -2**70, 10**400, 1.0, None):
        status, answer = ask(client, "/v1/models/tiny:predict", {"inputs": {"labels": [value]}})
        assert status == 400 and "labels" in answer["error"], value
    assert ask(client, "/v1/models/half_plus_two:predict", {"inputs": [1e300]})[0] == 400


@pytest.mark.parametrize("digits", ["9" * 5000, "-1", "²", "1" * 19], ids=["5000", "negative", "other", "19"])
def test_versions_that_are_no_numbers(client, digits):
    for what, body in (("", None), ("/metadata", None), (":predict", {"inputs": [0]})):
        status, answer = ask(client, f"/v1/models/tiny/versions/{digits}{what}", body)
        assert status == 400 and "digits" in answer["error"] and len(str(answer)) < 300


def test_other_methods_name_the_one_that_is_there(client):
    answer = client.get("/v1/models/tiny:predict")
    assert answer.status_code == 405 and answer.headers["allow"] == "POST" and "error" in answer.json()


def test_an_answer_is_as_large_as_its_request_allows(client):
    """A row for a row, 1,024 at most; of texts 16."""
    for body, message in (
            ({"inputs": [0] * 1025}, "at most 1024 images per request"),
            ({"instances": [0] * 1025}, "1024 images per request"),
            ({"signature_name": "generate", "inputs": {"num_samples": 1025}}, "at most 1024 images per request"),
            ({"signature_name": "describe", "inputs": ["privacy.json"] * 17}, "at most 16 texts per request"),
            ({"signature_name": "describe", "inputs": ["privacy.json"] * 400_000}, "at most 16 texts per request"),
            ({"signature_name": "describe", "instances": ["privacy.json"] * 17}, "at most 16 texts per request")):
        status, answer = ask(client, "/v1/models/tiny:predict", body)
        assert status == 400 and message in answer["error"]
    status, answer = ask(client, "/v1/models/tiny:predict", {"signature_name": "generate", "inputs": {
        "num_samples": 1024, "seed": 3}})
    assert status == 200 and len(answer["outputs"]["images"]) == 1024


@pytest.mark.parametrize("body, message", [
    (rb'{"signature_name": "describe", "inputs": ["\ud800"]}', "is no string"),
    (rb'{"inputs": {"\ud800": [1]}}', "expected inputs ['labels']")])
def test_text_that_no_encoding_has(client, body, message):
    answer = client.post("/v1/models/tiny:predict", content=body)
    assert answer.status_code == 400 and message in answer.json()["error"]


def test_large_answers_come_in_pieces_and_whole(client, monkeypatch):
    body = {"signature_name": "sample", "inputs": {"labels": [1] * 1000, "seed": list(range(1000))}}
    whole = client.post("/v1/models/tiny:predict", json=body)
    monkeypatch.setattr(rest, "_AT_ONCE", 100)
    pieces = client.post("/v1/models/tiny:predict", json=body)
    assert pieces.content == whole.content and "content-length" in whole.headers
    assert "content-length" not in pieces.headers


def test_bodies_of_more_than_8_mib(client):
    for content in (b" " * (8 * 2**20 + 1), iter([b" " * 2**20] * 9)):
        answer = client.post("/v1/models/tiny:predict", content=content)
        assert answer.status_code == 413 and "8388608 bytes" in answer.json()["error"]
    fits = b" " * (8 * 2**20 - 15) + b'{"inputs": [0]}'
    assert len(fits) == 8 * 2**20 and client.post("/v1/models/tiny:predict", content=fits).status_code == 200


@pytest.mark.parametrize("headers, status", [
    ({"Host": "attacker.example"}, 403), ({"Host": "localhost.attacker.example:8501"}, 403), ({"Host": ""}, 403),
    ({"Host": "[::1]:9"}, 200), ({"Host": "127.0.0.1:1"}, 200), ({"Host": "]["}, 403), ({"Host": "LOCALHOST"}, 200),
    ({"Origin": "http://attacker.example"}, 403), ({"Origin": "null"}, 403), ({"Origin": "http://localhost:3000"}, 403),
    ({"Origin": "http://localhost:8501"}, 200), ({"Origin": ""}, 403)])
def test_other_names_and_pages_are_refused(client, headers, status):
    assert ask(client, "/v1/models/tiny", headers=headers)[0] == status
    assert ask(client, "/v1/models/tiny:predict", {"inputs": [0]}, headers=headers)[0] == status


def test_a_token(models):
    client = TestClient(rest.application(models, token="s" * 20, names={"gpu.example"}), base_url="http://gpu.example")
    for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "s" * 20}, {"Authorization": "Bearer é"}):
        answer = client.get("/v1/models/tiny", headers={key: value.encode("latin-1") for key, value in headers.items()})
        assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
    assert ask(client, "/v1/models/tiny", headers={"Authorization": "Bearer " + "s" * 20})[0] == 200
    assert ask(client, "/healthz")[0] == 200 and ask(client, "/openapi.json")[0] == 401


def test_a_queue_that_is_full(models):
    full = Models.__new__(Models)
    full.__dict__.update(models.__dict__, limits=Limits(waiting=1))
    client = TestClient(rest.application(full), base_url=LOCAL)
    with full.place():
        answer = client.post("/v1/models/tiny:predict", json={"inputs": [0]})
        assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
        assert ask(client, "/v1/models/tiny")[0] == 200
    assert ask(client, "/v1/models/tiny:predict", {"inputs": [0]})[0] == 200


def test_memory_for_bodies_is_limited_too(models):
    with models.held(models.limits.held - 100):
        client = TestClient(rest.application(models), base_url=LOCAL)
        assert client.post("/v1/models/tiny:predict", content=b" " * 101).status_code == 503
        assert client.post("/v1/models/tiny:predict", content=iter([b" " * 50, b" " * 51])).status_code == 503
    assert models._held == models._waiting == 0


def test_health_readiness_and_metrics(models, client):
    assert ask(client, "/healthz") == (200, {"status": "alive"})
    assert ask(client, "/readyz") == (200, {"status": "ready"})
    models.ready = False
    try:
        assert ask(client, "/readyz")[0] == 503 and ask(client, "/healthz")[0] == 200
    finally:
        models.ready = True
    ask(client, "/v1/models/stranger:predict", {"inputs": [0]})
    ask(client, "/v1/models/tiny:predict", {"inputs": [0]})
    text = client.get("/monitoring/prometheus/metrics").text
    assert ':tensorflow:serving:request_count{model_name="",status="NOT_FOUND"}' in text
    assert ':tensorflow:serving:request_count{model_name="tiny",status="OK"}' in text
    assert ':tensorflow:serving:request_latency_bucket{le="1000.0",model_name="tiny"}' in text
    assert "datalens_serving_waiting 0.0" in text and "stranger" not in text


def test_the_description_has_what_every_signature_takes(models, client):
    status, answer = ask(client, "/openapi.json")
    assert status == 200 and answer == json.loads(json.dumps(openapi.description(models)))
    bodies = answer["paths"]["/v1/models/tiny:predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    (sample,) = [body for body in bodies["anyOf"] if body["properties"].get("signature_name") == {"const": "sample"}
                 and "inputs" in body["properties"]]
    assert sample["properties"]["inputs"]["properties"]["seed"] == {
        "type": "array", "maxItems": 1024, "items": {"type": "integer", "minimum": -2**63, "maximum": 2**63 - 1}}


@pytest.fixture(name="schema")
def fixture_schema(models):
    return schemathesis.openapi.from_asgi("/openapi.json", rest.application(models, names={"testserver"}))


@pytest.mark.slow
@schemathesis.pytest.from_fixture("schema").parametrize()
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_requests_by_the_description_are_answered_as_it_says(case):
    # Whether a label is one of the model's classes, or two inputs are of one length, only the model knows.
    case.call_and_validate(excluded_checks=[schemathesis.checks.positive_data_acceptance])
