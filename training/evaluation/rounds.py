"""Rounds of the behaviour suite with a model, and the shares passed by skill.

>>> by_skill(hold(load_suite(), model, n_seeds=5))["all"]["greedy"]   # doctest: +SKIP
0.97
"""

import dataclasses
import statistics
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gptcore.engine.generate import Model
from gptcore.engine.sampling import Sampling
from training.evaluation.behaviour import GREEDY, Conversation, Result, answers_of, converse
from training.machine.progress import progress, ticking

TEMPERATURE = 0.7
Rounds = list[list[Result]]  # the suite's results: the first greedy, then one list for each seed


def hold(suite: list[Conversation], model: Model, n_seeds: int, n_together: int = 1) -> Rounds:
    """Hold all conversations, once greedily and once sampled for each seed.

    `n_together`: number of conversations at a time. No reply depends on the others.
    """
    answer = answers_of(model)

    def converse_with(seed: int, number: int) -> Result:
        # Each conversation has its own seed; with a common one, all first tokens of a round would
        # be drawn with the same random number.
        own = seed * len(suite) + number
        sampling = Sampling(TEMPERATURE, seed=own) if seed else GREEDY
        result = converse(suite[number], answer, sampling)
        bar.update()
        return result

    pairs = [(seed, number) for seed in range(n_seeds + 1) for number in range(len(suite))]
    with (
        progress(None, "talking", len(pairs), " conversations") as bar,
        ticking(bar),
        ThreadPoolExecutor(n_together) as pool,
    ):
        results = list(pool.map(converse_with, *zip(*pairs)))
    return [results[at : at + len(suite)] for at in range(0, len(results), len(suite))]


def by_skill(rounds: Rounds) -> dict[str, dict[str, float]]:
    """Return, for each skill and for "all", the number of conversations and the shares passed."""
    skills = list(dict.fromkeys(result.conversation.skill for result in rounds[0]))
    table = {skill: shares(rounds, [skill]) for skill in skills}
    return table | {"all": shares(rounds, skills)}


def shares(rounds: Rounds, skills: list[str]) -> dict[str, float]:
    passed = [
        [not result.faults for result in results if result.conversation.skill in skills]
        for results in rounds
    ]
    greedy, *sampled = [statistics.mean(results) for results in passed]
    return {
        "n": len(passed[0]),
        "greedy": greedy,
        "sampled": statistics.mean(sampled),
        "lowest": min(sampled),
    }


def transcripts(rounds: Rounds) -> list[dict[str, Any]]:
    """Return every conversation with its replies and faults in all rounds, for a JSON file."""
    return [
        {
            **dataclasses.asdict(results[0].conversation),
            "held": [
                {
                    "seed": seed,  # 0: greedily
                    "replies": [reply._asdict() for reply in result.replies],
                    "faults": result.faults,
                }
                for seed, result in enumerate(results)
            ],
        }
        for results in zip(*rounds)
    ]
