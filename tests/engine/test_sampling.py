"""From logits to a token: against a slow reference, and at the edges."""

import dataclasses
import math

import numpy as np
import pytest

from gptcore.checks import UserError
from gptcore.engine.sampling import (
    SETTINGS,
    Sampling,
    Setting,
    likelihoods,
    log_softmax,
    penalise,
    sample,
    sample_rows,
)

NAN, INF = float("nan"), float("inf")
N_TOKENS, N_DRAWS = 24, 5000
LOGITS = np.random.default_rng(3).normal(0, 1, N_TOKENS).astype(np.float32)
ALL = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


def reference(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> dict[int, float]:
    """Probability of each token that may be drawn, step by step as in the papers."""
    ranked = sorted(range(len(logits)), key=lambda i: -logits[i])
    kept = ranked[:top_k] if top_k else ranked
    total = sum(math.exp(logits[i] / temperature) for i in kept)
    probability = {i: math.exp(logits[i] / temperature) / total for i in kept}
    nucleus, reached = {}, 0.0
    for i in kept:
        if reached >= top_p:
            break
        nucleus[i] = probability[i]
        reached += probability[i]
    likely = {i: p for i, p in nucleus.items() if p >= min_p * probability[ranked[0]]}
    return {i: p / sum(likely.values()) for i, p in likely.items()}


def draw(settings: dict, n: int = N_DRAWS, logits: np.ndarray = LOGITS) -> np.ndarray:
    """(V,) how often each token comes out of n draws."""
    sampling = Sampling(**settings)
    rng = np.random.default_rng(11)
    tokens = [sample(logits, sampling, rng.random()) for _ in range(n)]
    return np.bincount(tokens, minlength=len(logits))


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1.0},
        {"temperature": 0.5},
        {"temperature": 3.0},
        {"temperature": 1.0, "top_k": 5},
        {"temperature": 1.0, "top_k": 1000},
        {"temperature": 1.0, "top_p": 0.8},
        {"temperature": 2.0, "top_p": 0.3},
        {"temperature": 1.0, "min_p": 0.1},
        {"temperature": 2.0, "min_p": 0.5},
        {"temperature": 1.5, "top_k": 10, "top_p": 0.9, "min_p": 0.3},
    ],
    ids=str,
)
def test_tokens_come_as_often_as_the_reference_says(settings: dict) -> None:
    probability = reference(LOGITS.tolist(), **(ALL | settings))
    assert len(probability) > 1
    assert (len(probability) < N_TOKENS) == (len(settings) > 1 and settings.get("top_k") != 1000)
    counts = draw(ALL | settings)
    likely = [i for i, p in probability.items() if p * N_DRAWS > 20]
    assert set(np.flatnonzero(counts)) <= set(probability), "a token that was cut off came out"
    assert set(likely) <= set(np.flatnonzero(counts)), "a likely token never came out"
    expected = np.array([probability[i] * N_DRAWS for i in likely])
    chi_square = float(((counts[likely] - expected) ** 2 / expected).sum())
    assert chi_square < len(likely) + 4 * math.sqrt(2 * len(likely))


def test_only_the_k_likeliest_of_a_large_vocabulary_come_out() -> None:
    logits = np.random.default_rng(5).normal(size=8192).astype(np.float32)
    counts = draw(ALL | {"temperature": 10.0, "top_k": 20}, n=500, logits=logits)
    assert set(np.flatnonzero(counts)) == set(np.argsort(logits)[-20:])


def test_unless_told_otherwise_the_fifty_likeliest_are_drawn_from_at_a_temperature_of_0_7() -> None:
    logits = np.random.default_rng(5).normal(size=200).astype(np.float32)
    probability = reference(logits.tolist(), 0.7, 50, 1.0, 0.0)
    wanted = np.array([probability.get(i, 0.0) for i in range(200)])
    assert np.abs(draw({}, logits=logits) / N_DRAWS - wanted).max() < 0.02
    likeliest = int(LOGITS.argmax())
    assert sample(LOGITS, Sampling(temperature=0), 0.5, [likeliest]) == likeliest, "no penalty"


def test_of_equally_likely_tokens_the_first_ones_are_kept() -> None:
    """Just as many as reach top_p, and the same ones on every machine."""
    counts = draw(ALL | {"temperature": 1.0, "top_p": 0.25}, 500, np.zeros(100, np.float32))
    assert np.flatnonzero(counts).tolist() == list(range(25))
    every_other = np.arange(100, dtype=np.float32) % 2
    counts = draw(ALL | {"temperature": 1.0, "top_p": 0.14}, 500, every_other)
    assert np.flatnonzero(counts).tolist() == list(range(1, 21, 2))


def test_temperature_zero_always_takes_the_likeliest() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        logits = rng.normal(size=100).astype(np.float32)
        sampling = Sampling(temperature=0, top_k=3, top_p=0.5, min_p=0.5)
        assert sample(logits, sampling, rng.random()) == int(np.argmax(logits))


@pytest.mark.parametrize(
    "settings",
    [
        {"top_k": 1},
        {"top_p": 0.01},
        {"min_p": 1.0},
        {"temperature": 1e-12},
        {"temperature": 1e-200},
        {"temperature": 1e-320},
    ],
    ids=str,
)
@pytest.mark.parametrize("scale", [1.0, 1e4, 1e37])
def test_the_narrowest_settings_leave_the_likeliest_alone(settings: dict, scale: float) -> None:
    with np.errstate(over="raise", invalid="raise"):
        counts = draw(ALL | {"temperature": 1.0} | settings, 50, LOGITS * np.float32(scale))
    assert counts[LOGITS.argmax()] == 50


def test_masked_tokens_never_come_out() -> None:
    logits = LOGITS.copy()
    logits[::2] = -INF
    counts = draw(ALL | {"temperature": 10.0}, n=500, logits=logits)
    assert not counts[::2].any() and (counts[1::2] > 0).all()


def test_the_same_seed_gives_the_same_tokens_and_no_seed_others() -> None:
    def tokens(seed: int) -> list[int]:
        sampling = Sampling(temperature=2.0, top_k=0, seed=seed)
        rng = sampling.rng()
        return [sample(LOGITS, sampling, rng.random()) for _ in range(40)]

    assert tokens(5) == tokens(5)
    assert tokens(0) == tokens(0) != tokens(5)
    assert tokens(-1) != tokens(-1)


def test_the_penalty_makes_what_was_said_less_likely_and_only_that() -> None:
    logits = np.array([4.0, 2.0, -1.0, -3.0, 0.0], np.float32)
    penalised = penalise(logits, [0, 2, 2, 4], 2.0)
    assert penalised.tolist() == [2.0, 2.0, -2.0, -3.0, 0.0]
    assert logits.tolist() == [4.0, 2.0, -1.0, -3.0, 0.0], "the session's logits stay"


def test_the_penalty_is_applied_before_the_choice() -> None:
    logits = np.array([4.0, 3.0, -1.0], np.float32)
    sampling = Sampling(temperature=0, repetition_penalty=1.5)
    assert sample(logits, sampling, 0.5) == 0
    assert sample(logits, sampling, 0.5, [0]) == 1
    assert sample(logits, sampling, 0.5, [0, 1]) == 0
    assert sample(logits, Sampling(temperature=0), 0.5, [0]) == 0


@pytest.mark.parametrize(
    "settings",
    [{}, {"temperature": 0.0}, {"top_k": 5, "top_p": 0.8}, {"top_p": 0.5}, {"min_p": 0.2},
     {"repetition_penalty": 1.5}, {"temperature": 2.0, "top_k": 3, "repetition_penalty": 3.0}],
    ids=str,
)  # fmt: skip
def test_a_row_gets_the_token_that_it_gets_alone(settings: dict) -> None:
    rng = np.random.default_rng(9)
    sampling = Sampling(**ALL | {"temperature": 1.5} | settings)
    logits = rng.normal(0, 2, (40, N_TOKENS)).astype(np.float32)
    draws = rng.random(40)
    replies = [rng.integers(0, N_TOKENS, i % 7).tolist() for i in range(40)]
    before = logits.copy()
    got = sample_rows(logits, sampling, draws, replies).tolist()
    assert got == [sample(*row) for row in zip(logits, [sampling] * 40, draws, replies)]
    assert len({*got}) > 3 and np.array_equal(logits, before)


@pytest.mark.parametrize("draw_at", [0.0, np.nextafter(1.0, 0.0)])
@pytest.mark.parametrize("settings", [{"top_p": 0.3}, {"min_p": 0.9}, {"top_k": 2}], ids=str)
def test_the_smallest_and_the_largest_draw_choose_a_token_that_is_left(
    settings: dict, draw_at: float
) -> None:
    """Of those that were cut off none comes out, however a sum is rounded."""
    settings = ALL | {"temperature": 1.0} | settings
    for scale in (1.0, 0.1):
        logits = LOGITS * np.float32(scale)
        left = reference(logits.tolist(), **settings)
        assert sample(logits, Sampling(**settings), draw_at) in left


@pytest.mark.parametrize(
    "values",
    [
        *({name: value} for name in ("temperature", "top_p", "min_p", "repetition_penalty")
          for value in (NAN, INF, -1, -1.0, True, "abc", "1", None, [1])),
        *({name: value} for name in ("top_k", "seed")
          for value in (NAN, INF, -2, True, "abc", "1", None, 1.0, 2**63)),
        {"temperature": 10.1}, {"top_p": 0.0}, {"top_p": 1.01}, {"min_p": 1.01},
        {"repetition_penalty": 0.0}, {"repetition_penalty": 100}, {"repetition_penalty": 5.1},
        {"repetition_penalty": 0.49}, {"top_k": 10**6 + 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_value_that_makes_no_sense_is_named(values: dict) -> None:
    (name, value), *_ = values.items()
    with pytest.raises(UserError, match=f"{name}=") as error:
        Sampling(**values)
    assert f"{name}={value}" in str(error.value).replace("'", "")


def test_the_edges_of_the_ranges_are_allowed() -> None:
    Sampling(temperature=0, top_k=0, top_p=1, min_p=0, repetition_penalty=1, seed=-1)
    Sampling(temperature=10, top_k=10**6, top_p=0.01, min_p=1, repetition_penalty=5, seed=2**63 - 1)


@pytest.mark.parametrize("n_top", [0, 1, 5, N_TOKENS + 9])
def test_tokens_are_told_as_likely_as_the_reference_says_with_the_likeliest_in_their_place(
    n_top: int,
) -> None:
    logits = np.random.default_rng(7).normal(0, 4, (6, N_TOKENS)).astype(np.float32)
    before, ids = logits.copy(), [3, 0, 23, 7, 7, 11]
    told = likelihoods(ids, logits, n_top)
    assert [one.token_id for one in told] == ids and np.array_equal(logits, before)
    for one, row in zip(told, logits.tolist()):
        probability = reference(row, 1.0, 0, 1.0, 0.0)
        assert math.exp(one.logprob or 0) == pytest.approx(probability[one.token_id], rel=1e-5)
        likeliest = sorted(probability, key=lambda i: -row[i])[:n_top]
        assert [i for i, _ in one.top] == likeliest
        logprobs = [logprob for _, logprob in one.top]
        assert np.exp(logprobs) == pytest.approx([probability[i] for i in likeliest], rel=1e-5)


def test_the_probabilities_of_all_tokens_are_the_references() -> None:
    logits = np.stack([LOGITS, LOGITS[::-1] * 30])
    for row, log_p in zip(logits.tolist(), log_softmax(logits)):
        probability = reference(row, 1.0, 0, 1.0, 0.0)
        expected = [probability.get(i, 0.0) for i in range(N_TOKENS)]
        assert np.exp(log_p) == pytest.approx(expected, abs=1e-9)
    with np.errstate(over="raise"):
        shifted = log_softmax(logits.astype(np.float64) + 1000)
        far_apart = log_softmax(logits * 1000)
    assert np.abs(shifted - log_softmax(logits)).max() < 1e-9, "only differences count"
    assert np.isfinite(far_apart).all() and far_apart.max() == pytest.approx(0)


def test_settings_cannot_be_changed_once_they_have_been_checked() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sampling().temperature = -1.0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [NAN, INF])
def test_output_that_is_not_finite_is_a_damaged_model(temperature: float, value: float) -> None:
    logits = LOGITS.copy()
    logits[7] = value
    with pytest.raises(UserError, match="not finite"):
        sample(logits, Sampling(temperature=temperature), 0.5)
    with pytest.raises(UserError, match="not finite"):
        sample(np.full(8, -INF), Sampling(temperature), 0.5)


def test_the_table_of_settings_has_the_fields_in_their_order() -> None:
    fields = [field.name for field in dataclasses.fields(Sampling)]
    assert [setting.name for setting in SETTINGS] == fields


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_what_a_slider_offers_and_the_limits_are_accepted_and_no_more(setting: Setting) -> None:
    for value in (setting.lowest, setting.highest, *(setting.slider or ())):
        Sampling(**{setting.name: value if setting.is_whole else float(value)})
    for value in (setting.lowest - setting.step, setting.highest + setting.step):
        with pytest.raises(UserError, match=f"{setting.name}=.* is out of range: choose "):
            Sampling(**{setting.name: value})
    if setting.slider:
        assert setting.slider[0] <= setting.default <= setting.slider[1]
    assert setting.step == 1 or not setting.is_whole, "every whole number can be chosen"
