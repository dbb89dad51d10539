"""PATE on MNIST: four aggregators, budgets of single records, and what an epsilon that looks at the votes would say.

    python run_scripts/studies/pate_classifier.py --output_dir OUT

250 teachers learn from the 60,000 training images. The queries are a public part of the real test split; students are
tested on the rest of it. Settings were not tuned: epsilon 1 asks 200 queries, epsilon 10 asks 1,000. Where there is a
test, at most half of them are answered. OUT/results.json has what docs/research/pate.md reports. About ten minutes on
one idle core.

The data-dependent epsilons are functions of the votes, and so PRIVATE for sensitive data; MNIST is public.
"""

import argparse
import json
import pathlib
import time

import numpy as np
import pate_rdp

from datalens_tf import _files
from datalens_tf.classification.budgets import deal_budgets
from datalens_tf.classification.pate import make_plan, split_queries, teacher_votes, train_pate
from datalens_tf.classification.pate_config import AGGREGATORS, PateClassifierConfig
from datalens_tf.data.registry import load_dataset
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.evaluation.student import evaluate_student, roc_picture
from datalens_tf.mechanisms import SecureGaussianNoise

QUERIES = {1.0: 200, 10.0: 1000}
NUM_TEACHERS = 250
STUDENT_STEPS = PateClassifierConfig().student_steps
SHARES = {1.0: 0.34, 2.0: 0.43, 3.0: 0.23}  # For the records' own budgets, with 200 queries.
# Upsampled records fill more teachers of the same size: 472 with 240 records, as 250 without.
INDIVIDUALIZED = (("upsampling", NUM_TEACHERS), ("weighting", NUM_TEACHERS), ("upsampling", 472))
ORDERS = np.arange(1.5, 100, 0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    parser.add_argument("--dataset", default="mnist")
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    start, rows, study = time.monotonic(), [], {}
    train, public = load_dataset(args.dataset), load_dataset(args.dataset, split="test")

    def measure(name, config, queries, test, counts, truth, budgets=None):
        began = time.monotonic()
        folder = args.output_dir / name
        try:
            result = train_pate(config, train, queries, folder, budgets=budgets, counts=counts)
        except InvalidArgumentError as error:  # The noise let no answer pass.
            rows.append({"run": name, "labelled": 0, "error": str(error), "seconds": time.monotonic() - began})
            print(json.dumps(rows[-1]), flush=True)
            return
        found = evaluate_student(result.student, test)
        (folder / "roc.png").write_bytes(roc_picture(found))
        labelled = result.labels >= 0
        rows.append({
            "run": name, "epsilon": result.statement["epsilon"], "accountant": result.statement["accountant"],
            "noise_stddev": result.statement["noise_stddev"], "num_votes": result.statement["num_votes"],
            "epsilon_by_budget": result.statement["epsilon_by_budget"], "queries": len(queries),
            "labelled": int(labelled.sum()), "labels_right": float(np.mean(result.labels[labelled] == truth[labelled])),
            "accuracy": found["accuracy"], "auroc": found["auroc_macro"], "seconds": time.monotonic() - began})
        print(json.dumps(rows[-1]), flush=True)

    for epsilon, num_queries in QUERIES.items():
        config = PateClassifierConfig(aggregator="gnmax", num_queries=num_queries, epsilon=epsilon,
                                      num_teachers=NUM_TEACHERS, student_steps=STUDENT_STEPS,
                                      num_classes=train.num_classes)
        queries, test = split_queries(public, config)
        truth = labels_of(public, queries)
        plan = make_plan(config, len(train))
        began = time.monotonic()
        counts = teacher_votes(train, plan, queries)
        study[f"epsilon {epsilon:g}"] = {
            "teachers_seconds": time.monotonic() - began, "majority_right": float(np.mean(counts.argmax(1) == truth)),
            "mean_teacher_right": float(np.mean(counts[np.arange(len(truth)), truth]) / config.num_teachers),
            "student_of_true_labels": true_labels(config, queries, truth, test), **data_dependent(counts, plan)}
        print(json.dumps(study), flush=True)
        for aggregator in AGGREGATORS:
            own = PateClassifierConfig(aggregator=aggregator, num_queries=num_queries, epsilon=epsilon,
                                       num_teachers=NUM_TEACHERS, student_steps=STUDENT_STEPS)
            measure(f"{aggregator}_epsilon{epsilon:g}", own, queries, test, counts, truth)

    budgets = deal_budgets(SHARES, len(train), seed=0)
    queries, test = split_queries(public, PateClassifierConfig(num_queries=QUERIES[1.0]))
    truth = labels_of(public, queries)
    for method, num_teachers in INDIVIDUALIZED:
        config = PateClassifierConfig(aggregator="gnmax", num_queries=QUERIES[1.0], individualization=method,
                                      num_teachers=num_teachers, student_steps=STUDENT_STEPS)
        measure(f"gnmax_{method}_{num_teachers}", config, queries, test, None, truth, budgets)
    results = {"dataset": args.dataset, "runs": rows, "teachers": study, "minutes": (time.monotonic() - start) / 60}
    _files.atomic_write(args.output_dir / "results.json", json.dumps(results, indent=2) + "\n")
    print(f"{results['minutes']:.1f} minutes")


def labels_of(public, queries):
    """The true labels of the queries, to compare with: only the student of `true_labels` learns from them."""
    place = {image.tobytes(): label for image, label in zip(public.images, public.labels)}
    return np.array([place[image.tobytes()] for image in queries])


def true_labels(config, queries, truth, test):
    """Accuracy of a student whose queries all have their true labels."""
    from datalens_tf.classification.student import train_student

    return evaluate_student(train_student(queries, truth, config), test)["accuracy"]


def data_dependent(counts, plan):
    """Epsilon of GNMax with this plan's noise, by Mironov's conversion: from the settings, and from the votes."""
    stddev, delta = plan.config.noise_stddev, plan.config.delta
    order_cost = np.log(1 / delta) / (ORDERS - 1)
    independent = len(counts) * pate_rdp.gnmax_rdp_data_independent(stddev, ORDERS)
    dependent = pate_rdp.gnmax_rdp(pate_rdp.gnmax_log_q(counts, stddev), stddev, ORDERS).sum(0)
    best = int(np.argmin(independent + order_cost))
    found = {"noise_stddev": stddev, "epsilon_of_settings": float((independent + order_cost).min()),
             "epsilon_of_votes": float((dependent + order_cost).min()),
             "order_of_votes": float(ORDERS[np.argmin(dependent + order_cost)])}
    sanitized = {}
    for order in (ORDERS[best], 2 * ORDERS[best]):  # Known without the votes.
        conditions = pate_rdp.gnmax_conditions(stddev, counts.shape[1], order)
        if all(conditions):
            local = pate_rdp.gnmax_local_sensitivity(counts, stddev, order).sum(0)
            rdp = dependent[np.searchsorted(ORDERS, order)]
            published = pate_rdp.sanitized_rdp(rdp, local, order=order, beta=0.2 / order, relative_stddev=10.0,
                                               noise=SecureGaussianNoise())
            sanitized[f"order {order:g}"] = {"epsilon": published.epsilon(delta), "stddev_of_rdp": published.stddev,
                                             "cost": published.cost, "rdp": float(rdp)}
        else:
            sanitized[f"order {order:g}"] = f"conditions C5, C6: {conditions}"
    return found | {"sanitized": sanitized}


if __name__ == "__main__":
    main()
