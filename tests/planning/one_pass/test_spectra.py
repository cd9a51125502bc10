import numpy as np
import pytest

from gratis.planning.one_pass.spectra import (
    ExplicitSpectrum,
    IsotropicSpectrum,
    PowerLawSpectrum,
    gauss_atoms,
    parse_spectrum,
)
from gratis.records.errors import GratisError

RNG = np.random.default_rng(5)
SPECTRA = [
    IsotropicSpectrum(),
    PowerLawSpectrum(0.3),
    PowerLawSpectrum(-1.0, 0.5),
    PowerLawSpectrum(0.7, 0.2),
    ExplicitSpectrum(tuple(RNG.chisquare(2, 300))),
    ExplicitSpectrum(tuple(RNG.chisquare(2, 300)), tuple(RNG.chisquare(1, 300))),
    ExplicitSpectrum((0.0, 1.0, 5.0), (1.0, 2.0, 0.0)),
]


@pytest.mark.parametrize("spectrum", SPECTRA, ids=lambda s: s.label)
def test_measure_has_unit_trace_and_unit_signal(spectrum):
    measure = spectrum.measure(20)
    assert measure.readout @ measure.source == pytest.approx(1, abs=1e-12)
    assert measure.readout @ measure.initial == pytest.approx(1, abs=1e-12)
    assert measure.smallest <= measure.eigenvalues.min() + 1e-9
    assert measure.largest >= measure.eigenvalues.max() - 1e-9


@pytest.mark.parametrize("spectrum", SPECTRA, ids=lambda s: s.label)
def test_simulated_eigenvalues_and_energies(spectrum):
    for dimension in (3, 300, 517):
        eigenvalues, energies = spectrum.eigenvalues(dimension), spectrum.signal_energies(dimension)
        assert eigenvalues.mean() == pytest.approx(1)
        assert np.all(np.diff(eigenvalues) >= 0)
        assert eigenvalues @ energies == pytest.approx(1)
        assert spectrum.concentration(dimension) == pytest.approx(np.sum(eigenvalues**2) / dimension**2)


@pytest.mark.parametrize("decay", [0.5, 30.0, 1000.0])
def test_quadrature_of_decays_matches_all_eigenvalues(decay, rng):
    """∫e^{−λτ}λ dF and the signal's ∫e^{−λτ}λE dF: what the solver integrates."""
    values, energies = rng.chisquare(2, 2000), rng.chisquare(1, 2000)
    measure = ExplicitSpectrum(tuple(values), tuple(energies)).measure(32)
    values = values / values.mean()
    factor = np.exp(-decay * values)
    decays = measure.readout * np.exp(-decay * measure.eigenvalues)
    signal = (values * energies) @ factor / (values @ energies)
    assert decays @ measure.source == pytest.approx(np.mean(values * factor), rel=1e-6, abs=1e-8)
    assert decays @ measure.initial == pytest.approx(signal, rel=1e-6, abs=1e-8)


def test_power_law_against_its_density():
    measure = PowerLawSpectrum(0.3, 0.2).measure(32)
    top = 1.7 / 0.7
    assert measure.largest == pytest.approx(top)
    grid = top * (np.arange(2_000_000) + 0.5) / 2_000_000
    weight = grid**-0.3
    exact = (grid * np.exp(-5 * grid)) @ weight / (grid @ weight)
    assert measure.readout @ np.exp(-5 * measure.eigenvalues) == pytest.approx(exact, rel=1e-5)
    signal = (grid**0.8 * np.exp(-5 * grid)) @ weight / (grid**0.8 @ weight)
    assert (measure.readout * measure.initial) @ np.exp(-5 * measure.eigenvalues) == pytest.approx(signal, rel=1e-5)


def test_gauss_atoms_are_exact_for_polynomials_and_for_few_points(rng):
    points, weights = rng.uniform(0, 2, 500), rng.uniform(0, 1, 500)
    nodes, shares = gauss_atoms(points, weights, 8)
    for power in range(16):
        assert shares @ nodes**power == pytest.approx(weights @ points**power / weights.sum(), rel=1e-10)
    nodes, shares = gauss_atoms(np.array([1.0, 3.0, 3.0]), np.array([1.0, 1.0, 2.0]), 10)
    np.testing.assert_allclose(nodes, [1, 3])
    np.testing.assert_allclose(shares, [0.25, 0.75])


def test_parse():
    assert parse_spectrum("isotropic") == IsotropicSpectrum()
    assert parse_spectrum("power:-0.5") == PowerLawSpectrum(-0.5)
    for text in ("", "power", "power:x", "flat", "power:1.5", "power:nan"):
        with pytest.raises(GratisError):
            parse_spectrum(text)


@pytest.mark.parametrize(
    "build",
    [
        lambda: PowerLawSpectrum(1.0),
        lambda: PowerLawSpectrum(0.5, 0.5),
        lambda: ExplicitSpectrum(()),
        lambda: ExplicitSpectrum((0.0, 0.0)),
        lambda: ExplicitSpectrum((1.0, -1.0)),
        lambda: ExplicitSpectrum((1.0, float("nan"))),
        lambda: ExplicitSpectrum((1.0, 2.0), (1.0,)),
        lambda: ExplicitSpectrum((1.0, 0.0), (0.0, 1.0)),
        lambda: IsotropicSpectrum().eigenvalues(0),
    ],
)
def test_bad_spectra(build):
    with pytest.raises(GratisError):
        build()


def test_a_long_spectrum_has_a_short_repr():
    assert len(repr(ExplicitSpectrum(tuple(range(1, 5000))))) < 100
