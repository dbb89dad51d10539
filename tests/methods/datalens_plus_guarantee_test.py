"""What DataLens+ says of its privacy, for each kind of release."""

import types

import pytest

from datalens_tf.methods import datalens_plus_guarantee, moments
from tests.methods.datalens_plus_test import ALL, CHOICE, CLUSTERED, CONFIG, SHARED


def told(settings, sources, chosen=True, **changes):
    """What is said of a run with these settings: its assumptions, and what was released."""
    config = CONFIG.replace(image_shape=(8, 8, 1), num_classes=2, **settings, **changes).resolved(20)
    guarantee = datalens_plus_guarantee.guarantee(
        config, sources, chosen, types.SimpleNamespace(event=None, recalibrated=()))
    run = {"changing": "", "number_of_records": "", "noise_source": "", "noise_caveat": "", "num_charges": 12,
           "num_burnt_charges": 0, "noise_multiplier_per_step": 1.0}
    return config, tuple(" ".join(text.format(**guarantee.facts | run).split())
                         for text in (" ".join(guarantee.assumptions), guarantee.released))


@pytest.mark.parametrize("adjacency, features, squares, votes", [
    ("replace-one", "2", "sqrt(2) * ", "2"), ("add-or-remove-one", "1.41421", "", "1")])
def test_the_neighbours_decide_how_far_one_record_changes_the_sums(adjacency, features, squares, votes):
    public = {"records_at_most": 20} if adjacency == "add-or-remove-one" else {}
    config, (assumptions, _) = told(CHOICE, ["moments", "embedding"], adjacency=adjacency, **public)
    assert f"the sums of features and numbers by at most {features} in l2 norm" in assumptions
    assert f"those of products by at most {squares}{moments.clips(config).covariance:g}^2," in assumptions
    assert f"It changes by at most {votes} how many more records a classifier got right" in assumptions


def test_each_source_has_its_release():
    config, (assumptions, released) = told(ALL, ["moments", "embedding", "prototypes"])
    assert "sum of 64 random features of its images" in released
    assert "the sum of what 2 untrained networks see of its images" in released and "for each of 2 cells" in released
    assert f"those of images by at most 2 * {moments.clips(config).mean:g}," in assumptions


def test_a_shared_covariance_and_the_mean_of_all_are_told():
    _, (assumptions, released) = told(SHARED, ["moments"])
    assert "the sum of all images" in released and "of all classes together that of the products" in released
    assert "those of images' differences from the mean of all by at most 2 *" in assumptions


def test_clusters_are_told_in_place_of_whole_classes():
    _, (assumptions, released) = told(CLUSTERED, ["moments", "prototypes"])
    assert "in 2 clusters of each class" in released and "those of clusters, whichever of them" in assumptions


@pytest.mark.parametrize("chosen, words", [(True, "how many more records some classifiers"),
                                           (False, "nothing by which to choose among candidates")])
def test_it_tells_whether_the_records_chose(chosen, words):
    assert words in told(CHOICE, ["moments", "embedding"], chosen)[1][1]
