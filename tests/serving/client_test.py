"""Client and server, over real sockets: what arrives is what the generator draws, whatever happens on the way."""

import concurrent.futures
import json
import threading

import grpc
import numpy as np
import pytest
import requests
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from datalens_tf.cli import main
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.serving.client import Client, ServerError
from datalens_tf.serving.export import export_generator, load_generator
from datalens_tf.serving.sampling import sample_from
from tests.serving.released import STATEMENT
from tests.serving.served import Served, free_port
from tests.serving.tiny_generator import SETTINGS, TinyGenerator


@pytest.fixture(scope="module", name="folder")
def fixture_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "tiny"
    generator = TinyGenerator()
    for version in (1, 2):
        export_generator(generator, folder, version=version, **SETTINGS, class_names=["a", "b", "c"],
                         assets={"privacy.json": json.dumps(STATEMENT | {"dataset": f"data {version}"})})
        generator.dense.kernel.assign_add(generator.dense.kernel)
    return folder


@pytest.fixture(scope="module", name="served")
def fixture_served(folder):
    served = Served(folder).start()
    yield served
    served.kill()


@pytest.fixture(name="url", params=["rest", "grpc"])
def fixture_url(request, served):
    return getattr(served, request.param)


def direct(folder, num_images, seed, version=2):
    generator = load_generator(folder / str(version))
    return sample_from(generator.sample, generator.num_classes, num_images, seed=seed)


def test_a_seed_draws_what_it_draws_here(url, folder):
    counts = []
    client = Client(url, model="tiny", chunk=70, progress=counts.append)
    assert (client.num_classes, client.image_shape, client.class_names) == (3, (8, 4, 1), ("a", "b", "c"))
    images, labels = client.sample(200, seed=7)
    expected, expected_labels = direct(folder, 200, 7)
    np.testing.assert_array_equal(labels, expected_labels)
    assert images.dtype == np.uint8 and np.abs(images.astype(int) - expected).max() <= 1
    assert sorted(counts) == [60, 70, 70]


def test_without_a_seed_images_are_fresh_and_labels_as_asked_for(url):
    client = Client(url, model="tiny")
    images, labels = client.sample(4, labels=[2, 0, 0, 1])
    np.testing.assert_array_equal(labels, [2, 0, 0, 1])
    assert not np.array_equal(images, client.sample(4, labels=[2, 0, 0, 1])[0])


def test_versions_can_be_chosen_and_say_what_they_promise(url, folder):
    old = Client(url, model="tiny", version=1)
    assert old.describe()["dataset"] == "data 1" and Client(url, model="tiny").describe()["dataset"] == "data 2"
    expected = direct(folder, 9, 1, version=1)[0].astype(int)
    assert np.abs(old.sample(9, seed=1)[0] - expected).max() <= 1


@pytest.mark.parametrize("arguments, message", [
    (dict(model="other"), "refuses: .*other"), (dict(model="tiny", version=9), "refuses"),
    (dict(model="tiny", timeout=0), "timeout=0 > 0"), (dict(model="tiny", chunk=0), "chunk=0 >= 1")])
def test_what_makes_no_sense_is_refused_at_once(url, arguments, message):
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        Client(url, **arguments)
    assert "\n" not in str(caught.value)


def test_labels_and_chunks_that_the_model_refuses(url):
    client = Client(url, model="tiny", chunk=2000)
    with pytest.raises(InvalidArgumentError, match=r"labels in \[0, 3\)"):
        client.sample(2, labels=[0, 3])
    with pytest.raises(InvalidArgumentError, match="at most 1024 images per request"):
        client.sample(2000)


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_nobody_there(scheme):
    with pytest.raises(ServerError, match="did not answer in 2 tries.*Check that the server runs"):
        Client(f"{scheme}://localhost:{free_port()}", model="tiny", retries=1, timeout=5)


@pytest.mark.parametrize("url", ["localhost:8501", "ftp://localhost", "http://", "http://:x/"])
def test_addresses_that_are_none(url):
    with pytest.raises(InvalidArgumentError):
        Client(url, model="tiny", retries=0)


@pytest.mark.slow
def test_a_server_that_dies_and_comes_back_loses_nothing(folder, tmp_path, capsys):
    served = Served(folder).start()
    try:
        started, counts = threading.Event(), []
        client = Client(served.rest, model="tiny", chunk=20, retries=12,
                        progress=lambda count: (counts.append(count), started.set()))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            request = pool.submit(client.sample, 8000, seed=3)
            assert started.wait(60)
            served.kill()
            assert not request.done()
            # While it is away: a clear line, and no file.
            words = ["sample", "--server", served.rest, "--model", "tiny", "--num_samples", "300", "--seed", "3",
                     "--output", str(tmp_path / "x.npz")]
            assert main([*words, "--retries", "0"]) == 1
            line = capsys.readouterr().err
            assert line.count("\n") == 1 and "did not answer in 1 tries" in line
            assert not list(tmp_path.iterdir())
            served.start()
            images, labels = request.result()
        expected, expected_labels = direct(folder, 8000, 3)
        np.testing.assert_array_equal(labels, expected_labels)
        assert sum(counts) == 8000 and np.abs(images.astype(int) - expected).max() <= 1
        assert main(words) == 0
        with np.load(tmp_path / "x.npz") as written:
            assert written["x"].shape == (300, 8, 4, 1)
    finally:
        served.kill()


class TestInterface:
    """The documented REST interface, as somebody without this package uses it."""

    def post(self, served, **body):
        answer = requests.post(f"{served.rest}/v1/models/tiny:predict", json=body, timeout=60)
        return answer.status_code, answer.json()

    def test_rows_and_columns(self, served):
        status, answer = self.post(served, instances=[0, 1])
        assert status == 200 and np.shape(answer["predictions"]) == (2, 8, 4, 1)
        status, answer = self.post(served, inputs={"labels": [0, 1, 2]})
        assert status == 200 and np.shape(answer["outputs"]) == (3, 8, 4, 1)
        rows = [{"labels": 1, "seed": 5}, {"labels": 2, "seed": 6}]
        by_row = self.post(served, signature_name="sample", instances=rows)[1]["predictions"]
        by_column = self.post(served, signature_name="sample", inputs={"labels": [1, 2], "seed": [5, 6]})[1]["outputs"]
        assert by_row == by_column
        files = self.post(served, signature_name="png", instances=rows)[1]["predictions"]
        assert all(file["b64"].startswith("iVBORw0KGgo") for file in files)

    def test_a_number_of_images(self, served):
        status, answer = self.post(served, signature_name="generate", inputs={"num_samples": 6, "seed": 1})
        assert status == 200 and sorted(answer["outputs"]["labels"]) == [0, 0, 1, 1, 2, 2]
        assert np.shape(answer["outputs"]["images"]) == (6, 8, 4, 1)
        assert answer == self.post(served, signature_name="generate", inputs={"num_samples": 6, "seed": 1})[1]

    def test_status_and_metadata(self, served):
        status = requests.get(f"{served.rest}/v1/models/tiny", timeout=60).json()["model_version_status"]
        assert [entry["state"] for entry in status][:1] == ["AVAILABLE"] and status[0]["version"] == "2"
        metadata = requests.get(f"{served.rest}/v1/models/tiny/metadata", timeout=60).json()
        definition = metadata["metadata"]["signature_def"]["signature_def"]["sample"]
        assert definition["inputs"]["seed"]["dtype"] == "DT_INT64"
        assert definition["inputs"]["seed"]["tensor_shape"]["dim"][0]["size"] == "-1"

    @pytest.mark.slow
    def test_a_thousand_malformed_requests_at_once(self, served):
        """All are answered with an error that says what is wrong, and the server neither dies nor grows."""
        bodies = [
            dict(instances=[3]), dict(instances=[-1]), dict(inputs=[[0]]), dict(inputs=[0.5]), dict(inputs=["a"]),
            dict(inputs={"label": [0]}), dict(inputs=[]) | {"instances": []}, dict(instances=[]), dict(x=1),
            dict(signature_name="none", inputs=[0]), dict(signature_name="sample", inputs={"labels": [0]}),
            dict(signature_name="sample", inputs={"labels": [0, 1], "seed": [1]}),
            dict(signature_name="generate", inputs={"num_samples": -1, "seed": 1}),
            dict(signature_name="generate", inputs={"num_samples": 2**62, "seed": 1}),
            dict(signature_name="generate", inputs={"num_samples": 2**80, "seed": 1}),
            dict(signature_name="generate", inputs={"num_samples": [5], "seed": 1}),
            dict(inputs=[0] * 5000), dict(signature_name="from_latents", inputs={"latents": [[0.1]], "labels": [0]}),
            b"{", b"[" * 100_000, b"\xff\xfe", b""]
        tensors = [  # The same by gRPC.
            ("", dict(labels=np.array([3]))), ("", dict(labels=np.array([0.5]))), ("", dict(labels=np.array([[0]]))),
            ("", {}), ("", dict(label=np.array([0]))), ("none", dict(labels=np.array([0]))),
            ("sample", dict(labels=np.array([0, 1]), seed=np.array([1]))), ("", dict(labels=np.zeros(5000, np.int64))),
            ("generate", dict(num_samples=np.int64(-1), seed=np.int64(1))),
            ("generate", dict(num_samples=np.int64(2**62), seed=np.int64(1)))]
        stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(served.grpc[7:]))
        session, url = requests.Session(), f"{served.rest}/v1/models/tiny:predict"
        session.mount("http://", requests.adapters.HTTPAdapter(pool_connections=1, pool_maxsize=200, max_retries=3))

        def call(number):
            request = predict_pb2.PredictRequest()
            request.model_spec.name = "tiny"
            request.model_spec.signature_name, inputs = tensors[number % len(tensors)]
            for name, value in inputs.items():
                request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
            try:
                stub.Predict(request, timeout=120)
            except grpc.RpcError as error:
                return number % len(tensors), error.code().name, error.details()
            return number % len(tensors), "OK", ""

        def send(number):
            if number % 4 == 0:
                return call(number // 4)
            body = bodies[number % len(bodies)]
            sent = dict(data=body) if isinstance(body, bytes) else dict(json=body)
            answer = session.post(url, timeout=120, **sent)
            return number % len(bodies), answer.status_code, answer.json().get("error", "")

        def barrage():
            with concurrent.futures.ThreadPoolExecutor(200) as pool:
                return list(pool.map(send, range(1000)))

        answers = barrage()
        assert not [answer for answer in answers if not answer[2]
                    or answer[1] not in (400, 404, "INVALID_ARGUMENT", "NOT_FOUND")]
        before = served.resident_mib()
        barrage()
        assert served.resident_mib() < before + 50
        assert self.post(served, instances=[0])[0] == 200
