"""How fast a generator draws: from each runtime and over each interface, at several sizes of a request.

    python run_scripts/benchmarks/serving.py [--model checkpoints/mnist_eps1/generator] [--repeats 9]
        [--num_images 60000] [--seconds 20] [--program "PROGRAM ..."]

Prints a table: the median time of a request, and images per second. Interfaces are served by `datalens serve`, or by
another program. Then 1, 8 and 64 clients ask for an image each, again and again: a table of requests per second, of
their durations, and of the server's memory. Last, it draws many images over gRPC and over REST, and compares them with
the images that the same seed draws here. Needs the extra `test`.
"""

import argparse
import concurrent.futures
import json
import pathlib
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import requests
import tensorflow as tf

from datalens_tf.serving import convert
from datalens_tf.serving.client import Client
from datalens_tf.serving.export import LoadedGenerator, load_generator
from datalens_tf.serving.sampling import sample_from

ROOT = pathlib.Path(__file__).parents[2]
SIZES = (1, 64, 1024)
CLIENTS = (1, 8, 64)
PORTS = 18500, 18501  # gRPC, REST


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(ROOT / "checkpoints/mnist_eps1/generator"))
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--num_images", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=20, help="of each number of clients")
    parser.add_argument("--program", default=f"{sys.executable} -m datalens_tf serve generator={{folder}} "
                                             f"--port={PORTS[1]} --grpc_port={PORTS[0]}",
                        help="what serves {folder} as `generator`")
    args = parser.parse_args()
    generator = load_generator(args.model)
    server = serve(args.program.replace("{folder}", str(generator.path.parent.resolve())))
    try:
        print("| route | " + " | ".join(f"{size}: ms | images/s" for size in SIZES) + " |")
        print("|---" * (1 + 2 * len(SIZES)) + "|")
        for name, draw in {**here(generator), **there()}.items():
            cells = []
            for size in SIZES:
                seconds = measured(draw, size, args.repeats)
                cells += [f"{1e3 * seconds:.1f}", f"{size / seconds:.0f}"]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
        print("\n| clients | requests/s | median: ms | 99 of 100 within: ms | memory: MiB |\n|---|---|---|---|---|")
        for count in CLIENTS:
            took = asked_by(count, args.seconds)
            print(f"| {count} | {len(took) / args.seconds:.0f} | {1e3 * statistics.median(took):.0f} | "
                  f"{1e3 * np.quantile(took, 0.99):.0f} | {resident_mib(server):.0f} |", flush=True)
        print()
        expected, _ = sample_from(generator.sample, generator.num_classes, args.num_images, seed=7)
        for url in (f"grpc://localhost:{PORTS[0]}", f"http://localhost:{PORTS[1]}"):
            start = time.monotonic()
            images, _ = Client(url, model="generator").sample(args.num_images, seed=7)
            seconds, off = time.monotonic() - start, np.abs(images.astype(int) - expected)
            print(f"{args.num_images} images over {url.partition(':')[0]}: {seconds:.1f} s; of their pixels "
                  f"{np.mean(off > 0):.2%} differ from direct sampling with the same seed, by {off.max()} at most")
    finally:
        server.terminate()
        server.wait()


def here(generator: LoadedGenerator) -> dict[str, object]:
    """Runtime -> function that draws for labels, in this process."""
    import onnxruntime

    signatures = generator.model.signatures

    def saved_model(labels):
        return signatures["sample"](labels=tf.constant(labels), seed=tf.constant(labels))["images"].numpy()

    def png(labels):
        return signatures["png"](labels=tf.constant(labels), seed=tf.constant(labels))["image_bytes"].numpy()

    session = onnxruntime.InferenceSession(convert.to_onnx(generator), providers=["CPUExecutionProvider"])

    def latents(labels):
        return np.random.default_rng().uniform(-1, 1, (len(labels), generator.latent_dim)).astype(np.float32)

    def onnx(labels):
        return session.run(None, {"latents": latents(labels), "labels": labels})[0]

    interpreter = tf.lite.Interpreter(model_content=convert.to_tflite(generator), num_threads=2)
    run = interpreter.get_signature_runner()

    def tflite(labels):
        return run(latents=latents(labels), labels=labels)["images"]

    routes = {"SavedModel, `sample`": saved_model, "SavedModel, `png`": png, "ONNX, onnxruntime": onnx,
              "TensorFlow Lite": tflite}
    return routes | ({"web page, Chromium": browser(generator)} if shutil.which("chromium") else {})


def browser(generator: LoadedGenerator):
    """Draws in a web page, and leaves the images there."""
    from selenium import webdriver

    page = pathlib.Path(tempfile.mkdtemp()) / "generator.html"
    page.write_bytes(convert.to_page(generator))
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(argument)
    chromium = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    chromium.set_script_timeout(600)
    chromium.get(page.as_uri())
    while "computed here" not in chromium.find_element("id", "status").text:
        time.sleep(0.2)
    script = ("const [n, z, done] = arguments, latents = Float32Array.from({length: n * z}, Math.random);"
              "generate(latents, Array(n).fill(0)).then((x) => done(x.length));")
    return lambda labels: chromium.execute_async_script(script, len(labels), generator.latent_dim)


def there() -> dict[str, object]:
    """Interface -> function that asks the server."""
    grpc = Client(f"grpc://localhost:{PORTS[0]}", model="generator", chunk=max(SIZES))._transport
    rest = Client(f"http://localhost:{PORTS[1]}", model="generator", chunk=max(SIZES))._transport
    session = requests.Session()

    def numbers(labels):
        body = {"signature_name": "sample", "inputs": {"labels": labels.tolist(), "seed": labels.tolist()}}
        answer = session.post(f"http://localhost:{PORTS[1]}/v1/models/generator:predict", data=json.dumps(body),
                              timeout=600)
        return np.array(answer.json()["outputs"], np.uint8)

    return {"gRPC, `sample`": lambda labels: grpc.images(labels, labels),
            "REST, `png` (the client's)": lambda labels: rest.images(labels, labels),
            "REST, `sample` (numbers)": numbers}


def measured(draw, size: int, repeats: int) -> float:
    """Median seconds of a request for `size` images."""
    labels, seconds = np.arange(size) % 10, []
    draw(labels)
    for _ in range(repeats):
        start = time.monotonic()
        draw(labels)
        seconds.append(time.monotonic() - start)
    return statistics.median(seconds)


def asked_by(count: int, seconds: float) -> list[float]:
    """Seconds of each request that `count` clients sent in this time, each client one request after the other."""
    end = time.monotonic() + seconds

    def client(number):
        took, session = [], requests.Session()
        while (start := time.monotonic()) < end:
            session.post(f"http://localhost:{PORTS[1]}/v1/models/generator:predict", timeout=600, json={
                "signature_name": "png", "inputs": {"labels": [0], "seed": [number]}}).raise_for_status()
            took.append(time.monotonic() - start)
        return took

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return [seconds for took in pool.map(client, range(count)) for seconds in took]


def resident_mib(server: subprocess.Popen) -> float:
    """Peak memory of the server; on Linux."""
    status = pathlib.Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def serve(program: str) -> subprocess.Popen:
    """Starts the program, and returns the server once it answers."""
    server = subprocess.Popen(shlex.split(program), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while server.poll() is None:
        try:
            if requests.get(f"http://localhost:{PORTS[1]}/v1/models/generator", timeout=5).ok:
                return server
        except requests.RequestException:
            time.sleep(0.2)
    sys.exit(f"The server did not start: are the ports {PORTS} taken?")


if __name__ == "__main__":
    main()
