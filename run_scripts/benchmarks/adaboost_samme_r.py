"""Why AdaBoost differs from GS-WGAN's table: accuracy on real data with what scikit-learn had at its time.

    python run_scripts/benchmarks/adaboost_samme_r.py x.npz          # arrays x, y, x_test, y_test: real data

AdaBoost's algorithm was SAMME.R, which scikit-learn no longer has: run this in an environment with
`pip install "scikit-learn<1.6" "numpy<2"`. It needs nothing of the package.
"""

import argparse
import warnings

import numpy as np
from sklearn.ensemble import AdaBoostClassifier


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive")
    with np.load(parser.parse_args().archive) as data:
        x, x_test = ((data[name] / np.float32(255)).reshape(len(data[name]), -1) for name in ("x", "x_test"))
        y, y_test = data["y"], data["y_test"]
    for algorithm in ("SAMME.R", "SAMME"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = AdaBoostClassifier(n_estimators=100, algorithm=algorithm, random_state=0).fit(x, y)
            print(f"adaboost, {algorithm}: {np.mean(model.predict(x_test) == y_test):.4f}", flush=True)


if __name__ == "__main__":
    main()
