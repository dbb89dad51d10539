"""Accounting without training: what a budget pays for, what steps cost, what noise they need."""

from typing import Any, Sequence

from datalens_tf.config import ACCOUNTANTS, DataLensConfig
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.topagg import TopAgg
from datalens_tf.privacy import accounting
from datalens_tf.privacy.statement import round_up


def privacy_report(config: DataLensConfig, epsilon: float | None, accountants: Sequence[str] = ACCOUNTANTS
                   ) -> dict[str, Any]:
    """Answers, by each accountant, as a JSON-able dictionary.

    `steps` and `epsilon_of_steps` (accountant that counts the steps -> accountant that prices them) answer a budget,
    `epsilon` answers `config.num_steps`, and with both there is `calibrated_noise_stddev`, None where no noise
    reaches the budget.

    Args:
      config: mechanism, batch_size, delta and num_steps (None: not asked).
      epsilon: the budget asked about; None: not asked.
      accountants: of `config.ACCOUNTANTS`.
    """
    mechanism = TopAgg.from_config(config)
    event, sensitivity = mechanism.dp_event(config.batch_size), mechanism.l2_sensitivity(config.batch_size)

    def epsilons(num_steps):
        return {name: accounting.epsilon(event, num_steps, config.delta, name) for name in accountants}

    def calibrated(accountant):
        try:
            return sensitivity * accounting.calibrate_noise_multiplier(
                config.num_steps, epsilon, config.delta, accountant)
        except InvalidArgumentError:  # Renyi accountants have a floor.
            return None

    report = {"top_k": config.top_k, "batch_size": config.batch_size, "noise_stddev": config.noise_stddev,
              "delta": config.delta, "l2_sensitivity": sensitivity,
              "noise_multiplier_per_step": event.noise_multiplier}
    if epsilon is not None:
        steps = {name: accounting.max_steps(event, epsilon, config.delta, name) for name in accountants}
        report |= {"epsilon_budget": epsilon, "steps": steps,
                   "epsilon_of_steps": {name: epsilons(count) for name, count in steps.items()}}
    if config.num_steps is not None:
        report |= {"num_steps": config.num_steps, "epsilon": epsilons(config.num_steps)}
    if epsilon is not None and config.num_steps is not None:
        report["calibrated_noise_stddev"] = {name: calibrated(name) for name in accountants}
    return report


def render_tables(report: dict[str, Any]) -> str:
    """The dictionary of `privacy_report` as tables; numbers are rounded up, so that none promises too much."""
    lines = ["One step: top_k {top_k}, batch_size {batch_size}, noise_stddev {noise_stddev:g}: l2 sensitivity "
             "{l2_sensitivity:.6g}, noise multiplier {noise_multiplier_per_step:.6g}. delta {delta:g}."
             .format(**report)]

    def table(title, columns, rows):
        cells = [["accountant", *columns], *rows]
        lines.extend(["", title, *(f"{row[0]:<11}" + "".join(f"{cell:>16}" for cell in row[1:]) for row in cells)])

    if "steps" in report:
        table(f"Steps that epsilon {report['epsilon_budget']:g} pays for, and the epsilon of that many:",
              ["steps", *(f"by {name}" for name in report["steps"])],
              [[name, str(count), *map(round_up, report["epsilon_of_steps"][name].values())]
               for name, count in report["steps"].items()])
    if "epsilon" in report:
        table(f"{report['num_steps']} steps:", ["epsilon"],
              [[name, round_up(value)] for name, value in report["epsilon"].items()])
    if "calibrated_noise_stddev" in report:
        table(f"Noise that brings {report['num_steps']} steps to epsilon {report['epsilon_budget']:g}:",
              ["noise_stddev"], [[name, "unreachable" if sigma is None else round_up(sigma)]
                                 for name, sigma in report["calibrated_noise_stddev"].items()])
    return "\n".join(lines)
