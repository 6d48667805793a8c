"""The configuration of one run: its keys, its checks, its identity, and reading it from YAML."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from widthwise.allocation import Currency
from widthwise.compression import Compression, CompressionConfig
from widthwise.core.errors import ConfigError
from widthwise.engine import DeployConfig, EngineConfig
from widthwise.methods import Method, build_method, leaks, problems
from widthwise.privacy import PrivacyConfig
from widthwise.tasks import CapacityConfig, SliceRules, TaskConfig
from widthwise.training import TrainingConfig

#: Keys that change where, or how safely, a run is computed, never its result: they are no part of its hash.
FREE_KEYS = {
    "task": frozenset({"data_dir"}),
    "engine": frozenset({"executor", "workers", "address", "stack", "checkpoint_every", "tensorboard"}),
}
#: Sections that most runs do without.
OPTIONAL = ("control", "compression", "privacy", "deploy")
#: What a run folder's ``config.yaml`` says beside the configuration.
NOTED_BY_ENGINE = frozenset({"name", "config_hash"})


class ControlConfig(BaseModel):
    """The ``control:`` block: this run repeats another one, with random widths that cost the same.

    Attributes:
        matched_to: Folder of the run to repeat; the rest of the configuration must be that run's.
        currency: What costs the same in every round: ``width``, ``params``, ``macs`` or ``bytes``.
        floor: Smallest width to be drawn.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    matched_to: str
    currency: Currency = "width"
    floor: float = Field(0.1, gt=0, le=1)


class RunConfig(BaseModel):
    """Everything that determines a run.

    Attributes:
        task: Data, partition over clients, and model.
        capacity: Which widths the clients can train.
        method: ``name``, parts that replace the method's own, and options of the parts, flat. After
            validation it is written out in full.
        training: Rounds, cohort and local training.
        engine: Executor, evaluation and checkpoints.
        seed: Root of every random stream.
        control: Makes this a matched-budget control of another run; ``resolve`` turns it into a method.
        compression: How clients compress what they report; by default they do not.
        privacy: What is promised about the data of each client; by default nothing.
        deploy: What a run on real devices waits for and accepts; of no effect elsewhere.

    Raises:
        ConfigError: naming every problem by its dotted path, one per line.

    Example:
        >>> task = {"dataset": "digits", "model": "cnn-small", "partition": {"kind": "iid"}}
        >>> RunConfig(task=task, method={"name": "heterofl"}).method["policy"]
        'capacity'
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: TaskConfig
    capacity: CapacityConfig = Field(default_factory=CapacityConfig)
    method: dict[str, Any]
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    engine: EngineConfig = Field(default_factory=EngineConfig)
    seed: int = Field(42, ge=0, strict=True)
    control: ControlConfig | None = None
    compression: CompressionConfig | None = None
    privacy: PrivacyConfig | None = None
    deploy: DeployConfig | None = None

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError("\n".join(problems(error, type(self)))) from None

    @field_validator("method")
    @classmethod
    def _write_out_the_method(cls, value: dict[str, Any]) -> dict[str, Any]:
        return build_method(value).to_config()

    @model_validator(mode="after")
    def _check_across_sections(self) -> RunConfig:
        if self.training.cohort > self.task.clients:
            raise ConfigError(
                f"training.cohort is {self.training.cohort}, but there are only {self.task.clients} clients. "
                "Lower training.cohort or raise task.clients."
            )
        self.built_method.objective.check(self.training)
        if self.control is not None and self.method.get("matched_to") is not None:
            raise ConfigError(
                f"control.matched_to is {self.control.matched_to!r}, but method.matched_to is set too "
                f"({self.method['matched_to']!r}), and a run is matched to one other. Remove one of the two."
            )
        if self.privacy is not None:
            self._check_privacy(self.privacy)
        return self

    def _check_privacy(self, privacy: PrivacyConfig) -> None:
        found = list(leaks(self.built_method))
        if self.control is not None:
            found.append(
                f"control.matched_to is {self.control.matched_to!r}, but a matched control shares a budget "
                "among its cohort, and under privacy no width may tell who takes part. Remove one of the two."
            )
        if privacy.delta >= 1 / self.task.clients:
            found.append(
                f"privacy.delta is {privacy.delta:g}, but it must be below 1 / clients "
                f"({self.task.clients}): else the data of a client may lie open. Lower it."
            )
        if found:
            raise ConfigError("\n".join(found))

    @property
    def name(self) -> str:
        """What to call the run: its method's name, and that it is a control."""
        return f"{self.method['name']}-control" if self.control else str(self.method["name"])

    def folder(self, stem: str) -> Path:
        """Return the run folder where none is named: ``runs/STEM-METHOD-sSEED``."""
        return Path("runs") / f"{stem}-{self.method['name']}-s{self.seed}"

    @property
    def matched_to(self) -> str | None:
        """Folder of the run that this one must wait for, because it copies what that one spends."""
        if self.control is not None:
            return self.control.matched_to
        source: str | None = self.method.get("matched_to")
        return None if self.method.get("targets") else source

    @property
    def built_method(self) -> Method:
        """The method with its parts, for this population."""
        method = build_method(self.method)
        return replace(method, objective=method.objective.for_tiers(self.capacity.levels()))

    def to_dict(self) -> dict[str, Any]:
        """Return the whole configuration, every default written out, as JSON-able data."""
        content = self.model_dump(mode="json")
        if self.capacity.list is not None:  # it stands in place of tiers and shares
            content["capacity"] = {"list": content["capacity"]["list"]}
        for section in OPTIONAL:  # stored runs, which know no such key, keep their hash
            if content[section] is None:
                del content[section]
        return content

    def identity(self) -> dict[str, Any]:
        """Return what is computed: ``to_dict`` without the keys that change no result (`FREE_KEYS`).

        Nor does the block ``deploy``: it says what becomes of a client that fails.
        ``engine.stack`` is one of them: it changes the last bits of sums. Which of several CUDA devices is
        another: ``cuda:1`` stands for ``cuda``.
        ``training.batch_norm`` and ``task.slices`` are left out at their defaults, which is what stored runs
        without these keys did.
        """
        content = self.to_dict()
        content.pop("deploy", None)
        if self.task.slices == SliceRules():
            del content["task"]["slices"]
        if self.training.batch_norm == TrainingConfig().batch_norm:
            del content["training"]["batch_norm"]
        content["engine"]["device"] = content["engine"]["device"].partition(":")[0]
        for section, free in FREE_KEYS.items():
            content[section] = {key: value for key, value in content[section].items() if key not in free}
        return content

    def hash(self) -> str:
        """Return the identity of what is computed, 16 hexadecimal digits.

        The order of keys and defaults written out or left out make no difference, nor do the keys that
        change no result (`FREE_KEYS`).
        """
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class _Section(BaseModel):
    compression: CompressionConfig


def read_compression(text: str) -> Compression:
    """Return the compression that a text names: ``int8``, or with options ``{kind: topk, share: 0.01}``.

    Raises:
        ConfigError: if there is no such kind or option.
    """
    try:
        return _Section(**parse_overrides([f"compression={text}"])).compression
    except ValidationError as error:
        raise ConfigError("\n".join(problems(error, _Section))) from None


def load_config(path: Path | str, overrides: Iterable[str] = ()) -> RunConfig:
    """Read a run's configuration from a YAML file.

    The ``config.yaml`` of a run folder works too: the name and hash that the engine noted there are left
    aside.

    Args:
        path: The file.
        overrides: ``key=value`` with a dotted key; the value is read as YAML.

    Raises:
        ConfigError: for a file that cannot be read, a malformed override, or anything that `RunConfig`
            refuses.
    """
    content = {key: value for key, value in read_yaml(path).items() if key not in NOTED_BY_ENGINE}
    return RunConfig(**merge(content, parse_overrides(overrides)))


def read_yaml(path: Path | str) -> dict[str, Any]:
    """Read a YAML file that must hold a mapping.

    Raises:
        ConfigError: if it is missing, not YAML, or holds something else.
    """
    try:
        content = parse_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise ConfigError(f"configuration is {str(path)!r}, but {reason}. Give a YAML file.") from None
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise ConfigError(
            f"configuration is {str(path)!r}, but it is not valid YAML ({where}). Mend it."
        ) from None
    if not isinstance(content, dict):
        raise ConfigError(
            f"configuration is {str(path)!r}, but it holds no keys. Start from a file in examples/."
        )
    for key in content:
        if not isinstance(key, str):
            raise ConfigError(
                f"configuration is {str(path)!r}, but its key {key!r} is no text. "
                "Start from a file in examples/."
            )
    return content


class _OneOfEachKey(yaml.SafeLoader):
    """Refuses a key that occurs twice in a mapping, of which YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} occurs twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """Return the data of a YAML text; a key that occurs twice is an error like any other in its syntax."""
    return yaml.load(text, _OneOfEachKey)


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Turn ``a.b=value`` texts into a mapping from dotted keys to values, each value read as YAML.

    Example:
        >>> parse_overrides(["training.lr=0.1", "method.guarantee=false"])
        {'training.lr': 0.1, 'method.guarantee': False}
    """
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"override is {text!r}, but it has no key=value form. Write it like training.lr=0.1."
            )
        try:
            found[key.strip()] = parse_yaml(value)
        except yaml.YAMLError:
            raise ConfigError(
                f"override is {text!r}, but its value is not valid YAML. Quote the value."
            ) from None
    return found


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``changes`` laid over it: mappings merge key by key, anything else replaces.

    A dotted key in ``changes`` names a place deeper down. A mapping that chooses another ``name`` or
    ``kind`` than the one it is laid over replaces it, since options belong to the choice that they were
    written for.

    Example:
        >>> merge({"training": {"lr": 0.1, "rounds": 5}}, {"training.lr": 0.2, "seed": 1})
        {'training': {'lr': 0.2, 'rounds': 5}, 'seed': 1}
        >>> merge({"method": {"name": "hasfl", "gamma": 0.5}}, {"method.name": "heterofl"})
        {'method': {'name': 'heterofl'}}
    """
    return _lay_over(base, _nest(changes))


def _nest(changes: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in changes.items():
        head, _, rest = str(key).partition(".")
        value = {rest: value} if rest else value
        value = _nest(value) if isinstance(value, Mapping) else value
        if isinstance(value, dict) and isinstance(nested.get(head), dict):
            value = _lay_over(nested[head], value)
        nested[head] = value
    return nested


def _lay_over(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    if any(key in base and key in changes and base[key] != changes[key] for key in ("name", "kind")):
        return dict(changes)
    merged = dict(base)
    for key, value in changes.items():
        below = base.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = _lay_over(below, value)
        merged[key] = value
    return merged
