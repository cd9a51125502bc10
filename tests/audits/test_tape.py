"""The recording and the playing noise source."""

from __future__ import annotations

import numpy as np
import pytest

from gratis.audits.tape import Diverged, PlayingNoise, RecordingNoise
from gratis.mechanisms.noise import NoiseSource


def recorded():
    calls = []
    source = RecordingNoise(NoiseSource.insecure(3), calls)
    outputs = [
        source.release([1.0, np.inf], 0.5), source.perturb([[2.0]], 1.0), source.normal(2.0, 3),
        source.generator.random(4),
    ]  # fmt: skip
    return calls, outputs


def test_recording_changes_nothing_and_keeps_everything():
    calls, outputs = recorded()
    plain = NoiseSource.insecure(3)
    same = [plain.release([1.0, np.inf], 0.5), plain.perturb([[2.0]], 1.0), plain.normal(2.0, 3)]
    for ours, theirs in zip(outputs, [*same, plain.generator.random(4)], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert [call.kind for call in calls] == ["release", "perturb", "normal", "generator.random"]
    assert [call.shape for call in calls] == [(2,), (1, 1), (3,), (4,)]
    np.testing.assert_array_equal(calls[0].value, [1.0, 0.0])  # as the mechanism reads it
    np.testing.assert_allclose(calls[0].noise * 0.5 + calls[0].value, outputs[0])
    assert calls[3].noise.size == 0


def test_outputs_are_played_whatever_the_values_are():
    calls, outputs = recorded()
    mine = []
    player = PlayingNoise(NoiseSource.insecure(99), mine, calls)
    answers = [player.release([-7.0, 3.0], 0.5), player.perturb([[0.0]], 1.0), player.normal(2.0, (3,))]
    for ours, theirs in zip([*answers, player.generator.random(4)], outputs, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(mine[0].value, [-7.0, 3.0])


def test_what_is_kept_is_not_what_the_caller_may_overwrite():
    calls, outputs = recorded()
    outputs[2][:] = 0.0
    assert calls[2].output.any()
    played = PlayingNoise(NoiseSource.insecure(0), [], calls).release([0.0, 0.0], 0.5)
    played[:] = 0.0
    assert calls[0].output.any()


@pytest.mark.parametrize(
    "ask",
    [
        lambda source: source.release([1.0, 2.0], 0.25),
        lambda source: source.release([1.0], 0.5),
        lambda source: source.perturb([1.0, 2.0], 0.5),
        lambda source: source.normal(0.5, 2),
        lambda source: source.generator.random(2),
    ],
)
def test_another_question_stops_the_replay(ask):
    calls, _ = recorded()
    with pytest.raises(Diverged):
        ask(PlayingNoise(NoiseSource.insecure(0), [], calls))


def test_one_question_too_many_stops_the_replay():
    with pytest.raises(Diverged, match="one more"):
        PlayingNoise(NoiseSource.insecure(0), [], []).normal(1.0, 1)


def test_the_certificate_says_that_values_were_seen():
    source = RecordingNoise(NoiseSource.secure(), [])
    assert not source.is_secure
    assert source.describe()["secure"] is False
