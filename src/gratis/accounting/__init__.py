"""What is proved: events → guarantees. Imports nothing that predicts (theory) and nothing that trains."""

from gratis.accounting.calibration import (
    calibrate_descent_noise,
    calibrate_mu,
    calibrate_noise_std,
    calibrate_subsampled_noise_multiplier,
    remaining_budget,
    share_of_budget,
    split_mu,
    unit_descent_event,
)
from gratis.accounting.certification import PERSON_UNIT, describe_guarantee, issue_certificate, verify_certificate
from gratis.accounting.composition import (
    account,
    compose_mu,
    delta_upper_bound,
    epsilon_upper_bound,
    failure_probability,
    gdp_to_renyi,
    gdp_to_zcdp,
    group_privacy,
    leaf_mu,
    sequential_parts,
)
from gratis.accounting.gdp import (
    gdp_delta_upper_bound,
    gdp_detection_upper_bound,
    gdp_epsilon_upper_bound,
    gdp_mu_lower_bound,
)
from gratis.accounting.iteration import amplification_by_iteration, least_noise
from gratis.accounting.kl import gdp_kl, total_variation_upper_bound
from gratis.accounting.ladder import LadderRow, noise_for_composition, s0_noise_multiplier
from gratis.accounting.zcdp import (
    renyi_epsilon_upper_bound,
    zcdp_delta_upper_bound,
    zcdp_epsilon_upper_bound,
    zcdp_epsilon_upper_bound_simple,
)

__all__ = [
    "PERSON_UNIT",
    "LadderRow",
    "account",
    "amplification_by_iteration",
    "calibrate_descent_noise",
    "calibrate_mu",
    "calibrate_noise_std",
    "calibrate_subsampled_noise_multiplier",
    "compose_mu",
    "delta_upper_bound",
    "describe_guarantee",
    "epsilon_upper_bound",
    "failure_probability",
    "gdp_delta_upper_bound",
    "gdp_detection_upper_bound",
    "gdp_epsilon_upper_bound",
    "gdp_kl",
    "gdp_mu_lower_bound",
    "gdp_to_renyi",
    "gdp_to_zcdp",
    "group_privacy",
    "issue_certificate",
    "leaf_mu",
    "least_noise",
    "noise_for_composition",
    "remaining_budget",
    "renyi_epsilon_upper_bound",
    "s0_noise_multiplier",
    "sequential_parts",
    "share_of_budget",
    "split_mu",
    "total_variation_upper_bound",
    "unit_descent_event",
    "verify_certificate",
    "zcdp_delta_upper_bound",
    "zcdp_epsilon_upper_bound",
    "zcdp_epsilon_upper_bound_simple",
]
