"""Quality of images beside real ones: scores, distances, precision and its kin, and pictures of both."""

import functools
import math
from typing import Any

import numpy as np

from datalens_tf.data.datasets import Dataset
from datalens_tf.evaluation import charts, image_quality
from datalens_tf.evaluation.context import Context, Section
from datalens_tf.evaluation.domain_classifier import domain_classifier
from datalens_tf.evaluation.records import flat, spread, subset

SUMMARY = "how the images compare with real ones: scores, distances, and pictures of both"
POSITION = 3
NEEDS_TRAIN = True


def costs(context: Context) -> list[float]:
    """Seconds of each part; see `registry.Metric`."""
    effort, real = context.effort, context.real
    height, width, channels = real.image_shape
    size = height * width / 784
    learned = min(len(real), effort.scaled(effort.domain_train, height * width) or len(real)) * effort.domain_epochs
    pairs = (effort.neighbour_images / 5_000)**2
    return [250.0 * size * learned / (60_000 * 18), 7.0 * size * len(context.synthetic) / 60_000,
            7.0 * size * len(context.test) / 60_000,
            *([0.1 * effort.quality_images] * 2 if context.inception is not None else []),
            2.0 * pairs, 20.0 * size * channels * len(real) / 60_000 * effort.neighbour_images / 5_000,
            0.2, 8.0 * effort.embedded_images / 1_000]


def compute(context: Context) -> Section:
    """Inception Score, Frechet distances, precision and its kin, distances to real records, and where records lie.

    They are about the images for people, where a generator has others for classifiers to learn from.
    """
    synthetic, train, test, effort = context.shown(), context.real, context.test, context.effort
    stages = context.stages
    some = subset(train, effort.scaled(effort.domain_train, math.prod(test.image_shape[:2])), 0)
    network = stages.run("domain classifier", lambda: domain_classifier(
        some, test, epochs=effort.domain_epochs, cache=context.cache, callbacks=stages.keras_callbacks()))
    logits, features = stages.run("features, synthetic data", lambda: network(synthetic.images))
    test_logits, test_features = stages.run("features, real data", lambda: network(test.images))
    few, real_few = spread(effort.quality_images, features), spread(effort.quality_images, test_features)
    score = image_quality.inception_score(logits)
    real_score = image_quality.inception_score(test_logits)
    section: dict[str, Any] = {
        "purpose": "training" if context.show is None else "looking",
        "domain_classifier": {"test_accuracy": network.test_accuracy, "epochs": network.epochs,
                              "features": few.shape[1]},
        "inception_score": {"mean": score[0], "std": score[1], "real_test": real_score[0], "num_images": len(logits)},
        "frechet_domain_classifier": {
            "value": image_quality.frechet_distance(few, real_few), "num_synthetic": len(few),
            "num_real": len(real_few), "note": "Features of the domain classifier: not FID, and no number to compare "
                                               "with FID."},
        "label_agreement": {"value": float(np.mean(np.argmax(logits, axis=1) == synthetic.labels)),
                            "note": "Share of synthetic images that the domain classifier takes for their label."},
    }
    inception = context.inception
    if inception is not None:
        pictures = [spread(effort.quality_images, images) for images in (synthetic.images, test.images)]
        both = [stages.run(f"InceptionV3, {name} data", functools.partial(inception, images))
                for name, images in zip(("synthetic", "real"), pictures)]
        section["fid_inception_v3_keras"] = {
            "value": image_quality.frechet_distance(*both), "num_synthetic": len(both[0]), "num_real": len(both[1]),
            "note": "InceptionV3 with Keras' ImageNet weights; differs from FID with the weights of 2015."}
    fewer, real_fewer = spread(effort.neighbour_images, features), spread(effort.neighbour_images, test_features)
    section["manifold"] = stages.run("precision, recall, density, coverage",
                                     lambda: image_quality.manifold_metrics(real_fewer, fewer)) | {
        "num_images": len(fewer), "neighbours": image_quality.NEIGHBOURS}
    near = [spread(effort.neighbour_images, images) for images in (synthetic.images, test.images)]
    distances = stages.run("nearest real records", lambda: [
        image_quality.nearest_distances(images, train.images) for images in near])
    section["nearest_real"] = image_quality.memorisation(*distances) | {"num_images": len(near[0])}
    return Section(values=section, charts={"distances": charts.distance_chart(*distances),
                                           **_embeddings(context, synthetic)})


def headline(values: dict[str, Any]) -> str:
    """Line for the terminal; see `registry.Metric`."""
    return (f"Inception Score {values['inception_score']['mean']:.2f}, Frechet distance (domain classifier) "
            f"{values['frechet_domain_classifier']['value']:.1f}")


def _embeddings(context: Context, synthetic: Dataset) -> dict[str, Any]:
    """Charts of synthetic and real test records in one plane, by PCA and t-SNE of pixels."""
    import threadpoolctl
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    both = [subset(dataset, context.effort.embedded_images, 0)
            for dataset in (context.test, synthetic)]
    pixels = np.concatenate([flat(dataset.images) for dataset in both])
    labels = np.concatenate([dataset.labels for dataset in both])
    is_real = np.arange(len(pixels)) < len(both[0])

    def tsne():
        components = PCA(min(50, *pixels.shape), random_state=0).fit_transform(pixels)
        # It synchronises threads so often that one thread is many times faster if another process runs on the machine.
        with threadpoolctl.threadpool_limits(1, "openmp"):
            return TSNE(perplexity=min(30, (len(pixels) - 1) / 3), random_state=0).fit_transform(components)

    made = {}
    for name, title, place in (("pca", "principal component", lambda: PCA(2, random_state=0).fit_transform(pixels)),
                                 ("tsne", "t-SNE", tsne)):
        points = context.stages.run(f"{name} picture", place)
        made[name] = charts.embedding_chart(points, is_real, labels, context.test.class_names, title)
    return made
