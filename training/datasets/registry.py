"""The data sets that training knows by name, with licences and attributions.

>>> DATASETS["gsm8k"].licence
'MIT'
"""

from dataclasses import replace

from training.datasets import parsers, parsers_stories
from training.datasets.origins import Dataset, Origin, Parser, archive, hub, raw
from training.datasets.story_questions import ask_about_story
from training.datasets.story_requests import ask_for_story
from training.datasets.told import ask_facts

CDLA = "CDLA-Sharing-1.0"
# SHA-256 of the prepared files, which have passed more filters than this code has.
PREPARED = {
    "chat.jsonl.gz": "da682d0a01a18bb5ee0ef3740381192398d9da62142e459d48af3136347a4bba",
    "text.txt.gz": "3ff63899bf3f4e719188ecc3bd3d30c9f795ddebf7789368ec476419a356b4df",
}


def chitchat(commit: str, tone: str, parse: Parser) -> Origin:
    path = f"packages/qnamaker/docs/qnaFormat/english/qna_chitchat_{tone}.qna"
    return raw("microsoft/botframework-cli", commit, path, parse)


def chitchats(first: Parser, others: Parser) -> tuple[Origin, ...]:
    commit = "87fa4daf33c6838b7778b0961e654225634e16f0"
    return (
        chitchat("be805a8330db33398298a4cc828e64e5ab936112", "friendly", first),
        chitchat(commit, "caring", others),
        chitchat(commit, "professional", others),
    )


def fairytales(parse: Parser) -> Origin:
    return archive("uci-soe/FairytaleQAData", "b6a60a49c186ce3e93268525c12ada37958db326", parse)


def tinystories(parse: Parser) -> Origin:
    return hub(
        "roneneldan/TinyStories",
        "f54c09fd23315a6f9c86f9dc80f725de7d8f9c64",
        "TinyStories-valid.txt",
        parse,
        "94e431816c4cce81ff71e4408ff8d3bda9a42e8d2663986697c3954288cb38b4",
    )


DATASETS = {
    "synthetic-persona-chat": Dataset(
        "everyday talk of two people, written by a model",
        "CC-BY-4.0",
        "Synthetic-Persona-Chat, Google Research",
        tuple(
            raw(
                "google-research-datasets/Synthetic-Persona-Chat",
                "065fc5eb10b3e99715356844081c5057a4062a2b",
                f"data/Synthetic-Persona-Chat_{split}.csv",
                parsers.persona,
            )
            for split in ("valid", "test")
        ),
    ),
    "chitchat": Dataset(
        "a bot's small talk: many wordings of some 100 questions",
        "MIT",
        "Bot Framework CLI, Microsoft",
        chitchats(parsers.chitchat, parsers.some_chitchat),
    ),
    "chitchat-multi": Dataset(
        "the same, a greeting and some questions in a row",
        "MIT",
        "Bot Framework CLI, Microsoft",
        chitchats(parsers.chitchat_chains, parsers.chitchat_chains),
    ),
    "chatterbot": Dataset(
        "short, old-fashioned replies of a bot",
        "BSD-3-Clause",
        "ChatterBot corpus, Gunther Cox and contributors",
        (archive("gunthercox/chatterbot-corpus", "a01efece2666", parsers.chatterbot),),
    ),
    "aggmgpt": Dataset(
        "an assistant's simple answers, written by a model",
        "MIT",
        "AggmGPT, Adolfo GM",
        (
            raw(
                "Adolfo-GM/AggmGPT-1.5",
                "bd805a1b3048b278e0e0976ccba89169d6bcc316",
                "data.py",
                parsers.aggmgpt,
            ),
            raw(
                "Adolfo-GM/AggmGPT",
                "3ea3c037ffcd794caaa58e7da8b169784055e959",
                "corpus.py",
                parsers.aggmgpt,
            ),
        ),
    ),
    "rasbt-instruct": Dataset(
        "simple instructions: synonyms, rewriting, facts",
        "Apache-2.0",
        "LLMs from scratch, Sebastian Raschka",
        (
            raw(
                "rasbt/LLMs-from-scratch",
                "b80e7804b30830a00eb55d2abc7ac25a07f36fdc",
                "ch07/01_main-chapter-code/instruction-data.json",
                parsers.instructions,
            ),
        ),
    ),
    "dolly": Dataset(
        "questions and short answers, written by people",
        "CC-BY-SA-3.0",
        "databricks-dolly-15k, Databricks, Inc., in part from Wikipedia",
        (
            hub(
                "databricks/databricks-dolly-15k",
                "bdd27f4d94b9c1f951818a7da7fd7aeea5dbff1a",
                "databricks-dolly-15k.jsonl",
                parsers.dolly,
                "2df9083338b4abd6bceb5635764dab5d833b393b55759dffb0959b6fcbf794ec",
            ),
        ),
    ),
    "jokes": Dataset(
        "clean jokes and riddles",
        "MIT AND UPL-1.0",
        "official_joke_api, David Katz; Digital Assistant small-talk bot, Oracle",
        (
            raw(
                "15Dkatz/official_joke_api",
                "2de8da7bdc41dbfd7c89fb3333e019d544af61b6",
                "jokes/index.json",
                parsers.official_jokes,
            ),
            raw(
                "oracle/cloud-asset-digital-assistant-smalltalk-bot",
                "016e3dcce9dbba13264f7d25ea3c1b47d84f54c7",
                "components/smalltalk.1/AskForAJoke.json",
                parsers.small_talk_jokes,
            ),
        ),
    ),
    "self-dialogue": Dataset(
        "talk about films, music and sports, one person for two",
        "BSD-3-Clause",
        "Self-dialogue Corpus, Joachim Fainberg and others, University of Edinburgh",
        (
            archive(
                "jfainberg/self_dialogue_corpus",
                "f1eea73f2a4c100fe03424a6eeacbb41f563706e",
                parsers.self_dialogue,
            ),
        ),
    ),
    "fairytaleqa": Dataset(
        "a passage of a fairy tale, and questions about it",
        "Apache-2.0",
        "FairytaleQA, UC Irvine; tales of Project Gutenberg (public domain)",
        (fairytales(parsers_stories.fairy_tale_questions),),
    ),
    "gsm8k": Dataset(
        "word problems with their steps; too hard for small models",
        "MIT",
        "GSM8K, OpenAI",
        (
            raw(
                "openai/grade-school-math",
                "3101c7d5072418e28b9008a6636bde82a006892c",
                "grade_school_math/data/train.jsonl",
                parsers.gsm8k,
                "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
            ),
        ),
    ),
    "tinystories-chat": Dataset(
        "very simple stories, told when asked for",
        CDLA,
        "TinyStories, Ronen Eldan and Yuanzhi Li, Microsoft Research",
        (tinystories(parsers_stories.tinystories_chats),),
    ),
    "stories": Dataset(
        "plain texts: very simple stories, picture books, fairy tales",
        f"{CDLA} AND CC-BY-4.0 AND Apache-2.0",
        "TinyStories, Ronen Eldan and Yuanzhi Li; African Storybook and Pratham Books/StoryWeaver "
        "and the authors that their books name; Book Dash (prepared form only); FairytaleQA",
        (
            tinystories(parsers_stories.tinystories),
            archive("global-asp/asp-source", "99e022369a98", parsers_stories.picture_books),
            archive(
                "global-asp/pb-source",
                "ec42dd9f2c50fdc9b44ae231cc7ee5cc3c8019f2",
                parsers_stories.picture_books,
            ),
            fairytales(parsers_stories.fairy_tales),
        ),
        prepared="text.txt.gz",
    ),
}

TINY, PEOPLE = "tinystories-chat", "synthetic-persona-chat"
DATASETS |= {  # which this project derives from others, under the same terms
    name: replace(
        DATASETS[source],
        about=about,
        attribution=f"{DATASETS[source].attribution}; questions by this project",
        source=source,
        derive=derive,
    )
    for name, source, about, derive in (
        ("story-questions", TINY, "these stories, with questions about them", ask_about_story),
        ("story-chat", TINY, "these stories, asked for by what is in them", ask_for_story),
        ("story-requests", "stories", "short stories, asked for by what is in them", ask_for_story),
        ("story-facts", TINY, "their sentences as a user tells them, and questions", ask_facts),
        ("persona-facts", PEOPLE, "what people tell of themselves, and questions", ask_facts),
    )
}
