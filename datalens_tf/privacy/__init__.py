"""Privacy: what a release costs, the ledger that never forgets a charge, and the statement for outsiders."""

from datalens_tf.privacy.accounting import calibrate_noise_multiplier, epsilon, epsilon_of, max_steps
from datalens_tf.privacy.ledger import Charge, PrivacyLedger
from datalens_tf.privacy.statement import privacy_statement, render_text
