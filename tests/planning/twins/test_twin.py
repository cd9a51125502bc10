import numpy as np
import pytest

from gratis.planning.full_batch import predict_full_batch
from gratis.planning.twins.problems import Member, draw_coefficients, draw_label_noise, draw_rows, thinned
from gratis.planning.twins.twin import TwinSize, plain_settings, twin_settings
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring


def test_members_have_the_stated_moments():
    rng = np.random.default_rng(0)
    spectrum = np.array([2.0, 1.0, 0.5])
    X = draw_rows(spectrum, 200_000, tail=0.4, rng=rng)
    np.testing.assert_allclose(np.square(X).mean(axis=0), spectrum, rtol=0.03)
    member = Member(0.6, 0.4, 1.0)
    theta = draw_coefficients(spectrum, spectrum, member, rng=rng)
    assert spectrum @ theta**2 == pytest.approx(0.6)
    noise = draw_label_noise(member, 400_000, rng=rng)
    assert noise.mean() == pytest.approx(0, abs=0.01)
    assert noise.var() == pytest.approx(0.4, rel=0.15)
    assert ((noise - noise.mean()) ** 3).mean() > 0.4**1.5  # skewed
    assert draw_coefficients(np.zeros(2), np.ones(2), member, rng=rng).tolist() == [0, 0]


def test_twin_keeps_the_ratios():
    size = TwinSize.of(np.linspace(0, 1, 400), 10_000, mu=0.3)
    assert size.spectrum.size == 100
    assert size.n_records == 2000
    # d/(nμ) is kept.
    assert 100 / (size.n_records * size.mu) == pytest.approx(400 / (10_000 * 0.3))
    small = TwinSize.of(np.ones(50), 200, mu=0.3)
    assert (small.n_records, small.mu) == (200, pytest.approx(0.3))


def test_thinning_keeps_the_shape():
    spectrum = np.random.default_rng(1).exponential(size=1000)
    assert np.quantile(thinned(spectrum, 100), [0.1, 0.5, 0.9]) == pytest.approx(
        np.quantile(spectrum, [0.1, 0.5, 0.9]), rel=0.1
    )


def choose(n, columns, mu, **options):
    return twin_settings(
        np.full(columns, 0.9), n, mu=mu, neighbouring=Neighbouring.REPLACE_ONE, steps=16,
        rng=np.random.default_rng(0), **options,
    )  # fmt: skip


def test_more_privacy_means_shorter_travel_and_larger_risk():
    easy, hard = choose(2000, 20, 2.0), choose(500, 50, 0.1)
    assert easy.travel > hard.travel
    assert max(easy.risks) < 0.2 < max(hard.risks)
    assert hard.clip_norm(4.0) == pytest.approx(2 * hard.clip)
    assert hard.learning_rate == pytest.approx(hard.travel / (16 * hard.clip))


def test_hopeless_tables_stay_near_the_mean():
    """With little to learn and nothing learnable, the settings must not do much harm."""
    choice = choose(200, 50, 0.2)
    least = min(range(len(choice.members)), key=lambda index: choice.members[index].signal_variance)
    assert choice.risks[least] < choice.null_risks[least] + 0.35


def test_is_reproducible():
    assert choose(400, 10, 0.5) == choose(400, 10, 0.5)


def choose_plain(n, columns, mu, **options):
    return plain_settings(
        columns, n, mu=mu, neighbouring=Neighbouring.REPLACE_ONE, steps=16, rng=np.random.default_rng(0), **options
    )


@pytest.mark.slow(but=["None"])
@pytest.mark.parametrize("n_classes", [None, 3])
def test_plain_descent_travels_as_far_as_its_noise_allows(n_classes):
    """κDτ/(nμ) is the noise of a prediction: it must stay a fraction of the target, whatever D is."""
    for n, columns, mu in ((500, 1000, 0.3), (500, 20_000, 0.3), (2000, 20_000, 1.0)):
        choice = choose_plain(n, columns, mu, n_classes=n_classes)
        assert 0.1 < choice.travel * 2 * columns / (n * mu) < 1.1
        # A table that few directions explain (the last third of the members) is learnt in any dimension.
        third = len(choice.members) // 3
        assert sum(choice.risks[-third:]) < 0.7 * sum(choice.null_risks[-third:])


def test_a_twin_of_twenty_thousand_columns_is_small():
    import tracemalloc

    tracemalloc.start()
    choose_plain(2000, 20_000, 0.3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


@pytest.mark.parametrize(("relation", "reference"), [(Neighbouring.REPLACE_ONE, 0.198), (Neighbouring.ZERO_OUT, 0.075)])
def test_reference_of_spec_4(relation, reference):
    """Σ = I, ‖θ*‖ = 1, ζ² = .25, n = 2000, d = 200, μ = .292: good to about 10 %, plus the twin's own error."""
    found = predict_full_batch(
        2000, np.ones(200), Member(1.0, 0.25, skewed=False), mu=0.292, neighbouring=relation,
        rng=np.random.default_rng(5), steps=(20, 40, 80), clips=(0.03, 0.1, 0.2), travels=(1.0, 1.4, 2.0, 2.8, 4.0),
    )  # fmt: skip
    assert found.excess_risk == pytest.approx(reference, rel=0.12, abs=2.5 * found.standard_error)
    assert found.null_risk == 0.5


def test_bad_parameters():
    with pytest.raises(GratisError, match="eigenvalue"):
        TwinSize.of(np.array([-1.0]), 10, mu=1.0)
    with pytest.raises(GratisError, match="signal_variance"):
        Member(-1.0, 1.0)
    with pytest.raises(GratisError, match="mu"):
        choose(10, 2, 0.0)
