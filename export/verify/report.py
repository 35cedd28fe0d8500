"""The result of a verification: one Check per claim, printed as a table and kept as facts.

>>> print_report([Check("logits equal", 3, TOLERANCE, 2e-6), Check("theirs", 0, TOLERANCE)])
check         cases  worst      limit    verdict
logits equal      3  2e-06      0.0001   ok
theirs            0  -          0.0001   not compared
"""

from collections.abc import Iterable, Sequence

import numpy as np

from gptcore.checks import UserError
from gptcore.facts import Check
from gptcore.system.wording import counted

TOLERANCE = 1e-4
LOGITS = "logits equal PyTorch's"


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest absolute difference; infinite unless both are finite and of one shape."""
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    return float(np.abs(a - b).max(initial=0.0))


def logits_limit(checks: Iterable[Check]) -> float:
    """Return the limit that the comparison of the logits with PyTorch's had."""
    return max((c.limit for c in checks if c.name.startswith(LOGITS)), default=TOLERANCE)


def any_failed(checks: Sequence[Check]) -> bool:
    return any(check.passed is False for check in checks)


def require_passed(checks: Sequence[Check], otherwise: str) -> None:
    """Print the report and raise UserError, which says `otherwise`, if a check has failed."""
    if any_failed(checks):
        print_report(checks)
        raise UserError(otherwise)


def claim(checks: Sequence[Check]) -> str:
    """Return a line that says what was verified; no check may have failed.

    What was not compared, for want of transformers, takes nothing from the model; the card and
    --verbose say it.
    """
    n_compared = sum(bool(check.passed) for check in checks)
    return f"checked against PyTorch: all {counted(n_compared, 'comparison')} within their limits"


VERDICTS = {True: "ok", False: "FAILED", None: "not compared"}


def print_report(checks: Sequence[Check]) -> None:
    width = max(len(check.name) for check in checks)
    print(f"{'check':{width}}  cases  worst      limit    verdict")
    for check in checks:
        worst = "-" if check.worst is None else f"{check.worst:.2g}"
        figures = f"{check.cases:5}  {worst:<9}  {check.limit:<7g}"
        print(f"{check.name:{width}}  {figures}  {VERDICTS[check.passed]}")
