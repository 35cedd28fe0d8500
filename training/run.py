"""The run directory: everything a training run leaves behind.

config.json     the resolved settings: model, training, data
tokenizer/      the tokenizer; of a translation, the target's, beside source_tokenizer/
metrics.jsonl   a line for each logged step and each evaluation
loss.png        the curves, redrawn at each evaluation
samples.md      what the model wrote at each evaluation
checkpoints/    step-N/, see gptcore.nn.checkpoint
summary.json    the result, written at the end

>>> run = Run.load("runs/mine")                                      # doctest: +SKIP
"""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptcore.checks import UserError
from gptcore.config import ModelConfig, config_from_dict
from gptcore.nn.checkpoint import list_checkpoints
from gptcore.tokenizer import Tokenizer
from training.config import TrainConfig


@dataclass(frozen=True)
class Run:
    """A run directory and its settings."""

    path: Path
    model: ModelConfig
    train: TrainConfig
    data: dict[str, Any]  # where the text came from, whether it is chats, path of the shards

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.path / "tokenizer")

    def create(self) -> None:
        """Write the settings; what a run without a checkpoint left is dropped."""
        for name in ("metrics.jsonl", "samples.md"):
            (self.path / name).unlink(missing_ok=True)
        self.write_settings()

    def write_settings(self) -> None:
        settings = {
            "model": self.model.to_dict(),
            "train": self.train.to_dict(),
            "data": self.data,
        }
        write_json(self.path / "config.json", settings)

    @classmethod
    def load(cls, path: str | Path) -> "Run":
        path = Path(path)
        try:
            settings = json.loads((path / "config.json").read_text(encoding="utf-8"))
            model, train, data = (dict(settings[key]) for key in ("model", "train", "data"))
            data["source"], data["chat"]
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(
                f"no training run at {path}: name a folder that training wrote"
            ) from None
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path / 'config.json'} is damaged") from None
        return cls(path, config_from_dict(model), TrainConfig.from_dict(train), data)

    def log(self, **values: float) -> None:
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        path = self.path / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def forget_after(self, step: int) -> None:
        """Drop the metrics and samples of steps that a resumed run will do again."""
        kept = [line for line in self.metrics() if line["step"] <= step]
        text = "".join(json.dumps(line) + "\n" for line in kept)
        (self.path / "metrics.jsonl").write_text(text, encoding="utf-8")
        samples = self.path / "samples.md"
        if samples.exists():
            sections = re.split(r"^## Step (\d+)\n", samples.read_text("utf-8"), flags=re.MULTILINE)
            numbered = zip(map(int, sections[1::2]), sections[2::2])
            kept_text = "".join(f"## Step {n}\n{text}" for n, text in numbered if n <= step)
            samples.write_text(kept_text, encoding="utf-8")

    def add_samples(self, step: int, samples: list[tuple[str, str]]) -> None:
        with open(self.path / "samples.md", "a", encoding="utf-8") as file:
            file.write(f"## Step {step}\n\n")
            for prompt, text in samples:
                # quoted line by line: what a model writes never looks like a heading of ours
                quoted = f"**{prompt}** {text}".replace("\n", "\n> ")
                file.write(f"> {quoted}\n\n")

    def drop_old_checkpoints(self) -> None:
        for folder in list_checkpoints(self.checkpoints)[self.train.keep_checkpoints :]:
            shutil.rmtree(folder)

    def draw_loss(self) -> None:
        """loss.png: training loss by step, and bits per byte of the held-out text."""
        from matplotlib.figure import Figure

        metrics = self.metrics()
        steps = [m for m in metrics if "loss" in m]
        evaluations = [m for m in metrics if "bits_per_byte" in m]
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.subplots()
        axes.plot([m["step"] for m in steps], [m["loss"] for m in steps], color="#9bb8d3")
        axes.set(xlabel="step", ylabel="training loss (nats per token)", title=self.path.name)
        right = axes.twinx()
        right.plot(
            [m["step"] for m in evaluations],
            [m["bits_per_byte"] for m in evaluations],
            color="#c0504d",
            marker="o",
        )
        right.set_ylabel("held-out bits per byte", color="#c0504d")
        figure.savefig(self.path / "loss.png", dpi=120)


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
