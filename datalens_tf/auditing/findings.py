"""Findings of audits in one form for all of them, and the report that compares them with what is claimed."""

import dataclasses
from collections.abc import Sequence
from typing import Any

CAUGHT = "CAUGHT"
_SLACK = 1 + 1e-9  # of float64 in what is compared exactly


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """A quantity that an audit bounded from below, and what is claimed of it.

    Attributes:
      audit: kind of the audit, for example `canaries`.
      measured: what was measured, a sentence without its full stop.
      quantity: what is bounded: `epsilon`, `mu`, or another number that must not be above its claim.
      lower_bound: what the audit shows at least.
      claimed: largest value that the claim allows.
      confidence: of the lower bound; None where it is exact.
      details: numbers that the bound rests on.
      private: whether it was computed from records, so that no epsilon covers it.
    """

    audit: str
    measured: str
    quantity: str
    lower_bound: float
    claimed: float
    confidence: float | None = None
    details: dict[str, Any] = dataclasses.field(default_factory=dict)
    private: bool = False

    @property
    def caught(self) -> bool:
        """Whether the claim is refuted."""
        return self.lower_bound > self.claimed * _SLACK

    def as_json(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return dataclasses.asdict(self) | {"caught": self.caught}


def report(config: Any, findings: Sequence[Finding], claimed_epsilon: float, confidence: float,
           privacy_note: str) -> dict[str, Any]:
    """All findings of a run, as a JSON-able dictionary.

    Args:
      config: settings of the run.
      findings: at least one.
      claimed_epsilon: at the settings' delta.
      confidence: of all statistical findings together.
      privacy_note: for findings that were computed from records.
    """
    private = any(finding.private for finding in findings)
    return {
        "method": config.method, "dataset": config.dataset,
        "claimed": {"epsilon": claimed_epsilon, "epsilon_budget": config.epsilon, "delta": config.delta,
                    "accountant": config.accountant},
        "confidence": confidence, "findings": [finding.as_json() for finding in findings],
        "epsilon_lower_bound": max((finding.lower_bound for finding in findings if finding.quantity == "epsilon"),
                                   default=0.0),
        "verdict": verdict(findings), **({"privacy_note": privacy_note} if private else {})}


def verdict(findings: Sequence[Finding]) -> str:
    """The verdict in two sentences; begins with CAUGHT where a claim is refuted."""
    caught = [finding for finding in findings if finding.caught]
    if caught:
        worst = max(caught, key=lambda finding: finding.lower_bound / max(finding.claimed, 1e-12))
        return (f"{CAUGHT}: {worst.audit} show {worst.quantity} of at least {worst.lower_bound:.4f}, more than the "
                f"{worst.claimed:.4f} that is claimed. Do not release anything that was made with this code.")
    return "No claim is refuted. That proves nothing: another attack may be better."


def render(report: dict[str, Any]) -> str:
    """A report as text: the verdict, and a line for each finding."""
    lines = [report["verdict"]]
    for found in report["findings"]:
        how = "exact" if found["confidence"] is None else f"confidence {found['confidence']:.7g}"
        lines.append(f"{CAUGHT if found['caught'] else 'ok':<7} {found['audit']}: {found['quantity']} >= "
                     f"{found['lower_bound']:.4f} ({how}); {found['claimed']:.4f} is claimed. {found['measured']}.")
    if "privacy_note" in report:
        lines.append(report["privacy_note"])
    return "\n".join(lines)
