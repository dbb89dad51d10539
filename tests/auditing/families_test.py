"""Every family's audit as a whole: what its report says, and who has none."""

import json

import numpy as np
import pytest

from datalens_tf.auditing import families, findings
from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods import registry
from tests.auditing import repeated_test, sampled_test
from tests.training import tiny

EFFORT = families.Effort(trials=30, num_canaries=20, confidence=1 - 1e-6)
KNOWN = {"image_shape": (8, 8, 1), "num_classes": 3, "dataset": "tiny"}
SAMPLED = {**KNOWN, "sampling_probability": 0.5}


def one_shot(name):
    return registry.config_class(name)(**repeated_test.METHODS[name], **KNOWN)


FAMILIES = {
    "votes": lambda: tiny.CONFIG.replace(insecure_noise_seed=None),
    "released once": lambda: one_shot("dp_merf"),
    "plus": lambda: one_shot("datalens_plus"),
    "gan": lambda: sampled_test.GAN_CONFIG.replace(**SAMPLED),
    "classifier": lambda: ClassifierConfig(**sampled_test.DP_SGD, **SAMPLED, clip_norm=1.0, network="large"),
}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES if name != "votes"]


@pytest.mark.parametrize("name", ["votes", *SLOW])
def test_honest_code_is_not_caught_and_no_record_is_touched(name):
    config = FAMILIES[name]()
    found = families.audit(config.resolved(60), EFFORT)
    assert json.loads(json.dumps(found)) == found and found["method"] == config.method
    assert found["verdict"].startswith("No claim is refuted") and "privacy_note" not in found
    kinds = {finding["audit"] for finding in found["findings"]}
    assert "neighbours" in kinds and kinds & {"repeated releases", "canaries"}
    assert all(finding["lower_bound"] <= finding["claimed"] * (1 + 1e-9) for finding in found["findings"])
    text = findings.render(found)
    assert len(text.splitlines()) == 1 + len(found["findings"]) and text.count("is claimed") == len(found["findings"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["released once", "votes"])
def test_audits_on_records_say_that_no_epsilon_covers_them(name, tmp_path):
    config = FAMILIES[name]()
    if name == "votes":
        config = config.replace(num_teachers=8)
    found = families.audit(config, EFFORT, records=tiny.dataset(40), run_dir=tmp_path / "run")
    assert "no epsilon covers" in found["privacy_note"] and found["privacy_note"] in findings.render(found)
    assert (tmp_path / "run" / "ledger.jsonl").is_file() and any(finding["private"] for finding in found["findings"])


def test_a_run_without_a_claim_or_an_audit_is_refused():
    with pytest.raises(InvalidArgumentError, match="epsilon=None to be a claim"):
        families.check(ClassifierConfig(epsilon=None))
    with pytest.raises(InvalidArgumentError, match="datalens.* or of classify, got method='gs_wgan'"):
        families.check(registry.config_class("gs_wgan")())


@pytest.mark.parametrize("changes,text", [
    ({"trials": 3}, "trials=3 >= 8"), ({"num_canaries": 1}, "num_canaries=1 >= 2"),
    ({"confidence": 2}, "confidence=2")])
def test_effort_is_checked(changes, text):
    with pytest.raises(InvalidArgumentError, match=text):
        families.Effort(**changes)


def finding(lower_bound, claimed, **more):
    return findings.Finding(audit="canaries", measured="A test", quantity="epsilon", lower_bound=lower_bound,
                            claimed=claimed, **more)


def test_verdicts():
    assert findings.verdict([finding(0.5, 1.0)]).startswith("No claim is refuted")
    caught = findings.verdict([finding(0.5, 1.0), finding(1.5, 1.0), finding(3.0, 2.9)])
    assert caught.startswith("CAUGHT: canaries show epsilon of at least 1.5000, more than the 1.0000")
    assert not finding(1.0, 1.0).caught and finding(np.nextafter(1.0, 2) + 1e-8, 1.0).caught
