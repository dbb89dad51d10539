"""`datalens plan`: settings for a budget, before training."""

from __future__ import annotations

import argparse
import dataclasses
import json

from etils import epy

from datalens_tf.cli.parser import Command, Parser
from datalens_tf.config import ACCOUNTANTS

with epy.lazy_imports():
    from datalens_tf.accounting import accountants
    from datalens_tf.planning import planner


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("--num_teachers", type=int, required=True, help="teachers, N")
    parser.add_argument("--dimension", type=int, required=True, help="numbers per image, d: 784 of MNIST")
    parser.add_argument("--epsilon", type=float, required=True, help="the budget")
    parser.add_argument("--delta", type=float, default=1e-5, help="by default 1e-5")
    parser.add_argument("--accountant", choices=ACCOUNTANTS, default="gdp", help="by default gdp")
    parser.add_argument("--batch_size", type=int, default=15, help="images per step, m; by default 15")
    parser.add_argument("--num_steps", type=int, default=150, help="generator steps, T; by default 150")
    parser.add_argument("--consensus", type=float, default=0.3,
                        help="root mean square of the vote sums divided by N, if all coordinates voted by sign, in "
                             "(0, 1); by default 0.3")
    parser.add_argument("--tail_shape", type=float, default=1.0,
                        help="Weibull shape of the gradients' magnitudes; by default 1, smaller where few matter")
    parser.add_argument("--json", action="store_true", default=False, help="print JSON instead of text")


def _plan(args: argparse.Namespace) -> None:
    """Prints a `Plan`, with what it assumes."""
    names = ("num_teachers", "dimension", "epsilon", "delta", "accountant", "batch_size", "num_steps", "consensus",
             "tail_shape")
    found = planner.plan(**{name: getattr(args, name) for name in names})
    if args.json:
        print(json.dumps(dataclasses.asdict(found), indent=2))
        return
    print(f"--top_k {found.top_k} --vote_threshold {found.vote_threshold:.2f} --noise_stddev {found.noise_stddev:.6g}\n"
          f"epsilon {accountants.round_up(found.epsilon)} ({args.accountant}) at delta {args.delta:g}, for "
          f"{args.num_steps} steps of {args.batch_size} images, noise multiplier {found.noise_multiplier:.6g}\n"
          f"expected: vote sums of {found.signal_to_noise:.3g} standard deviations of the noise; cosine of the "
          f"direction to the teachers' common gradient {found.cosine:.3f}, without threshold "
          f"{found.cosine_without_threshold:.3f}\n"
          f"assumes a common gradient of Weibull shape {args.tail_shape:g} with Gaussian deviations, and consensus "
          f"{args.consensus:g}: a model, not a promise")


COMMANDS = {"plan": Command(_add_arguments, _plan)}
