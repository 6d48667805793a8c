"""Models that are not registered: a factory of the user's own, or a module that was handed over."""

from __future__ import annotations

import copy
import difflib
import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from pydantic import ConfigDict, PrivateAttr
from torch import nn

from widthwise.core.errors import ConfigError, InputError, unknown_name
from widthwise.core.outputs import logits_of
from widthwise.tasks.dataset import Signature
from widthwise.tasks.model import Model

Factory = Callable[..., Any]

#: How the name of a module that was handed over begins.
OBJECT = "object:"


class Imported(Model):
    """The model that ``module:factory`` returns; its options are keyword arguments of the factory.

    A parameter of the factory that is named like one of the `facts` about the data gets that fact, unless an
    option of that name is written. Everything else is up to the factory. It is imported when the model
    is built, never when a configuration is read.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    _target: str = PrivateAttr()

    @classmethod
    def of(cls, target: str, options: Mapping[str, Any]) -> Self:
        """Return the model of a target ``module:factory``.

        Raises:
            ConfigError: if the target is not of that form.
        """
        module, _, name = target.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
            raise ConfigError(
                f"model is {target!r}, but a model of your own is written module:factory. "
                "Write it like my_package.my_module:make_model."
            )
        model = cls(**options)
        model._target = target
        return model

    def module(self, signature: Signature) -> nn.Module:
        """Import the factory, call it, and return the module that it makes, with class scores checked.

        Raises:
            ConfigError: if there is no such factory, it does not take the options, it raises, or it returns
                something else than a module that gives one score for each class.
        """
        target, options = self._target, self.model_extra or {}
        factory = load_factory(target)
        given = arguments(factory, target, signature, options)
        try:
            module = factory(**given)
        except Exception as error:  # it is the user's code
            raise ConfigError(
                f"model is {target!r} with {_shown(given)}, but it raised {type(error).__name__}: {error}. "
                "Correct it, or its options."
            ) from error
        if not isinstance(module, nn.Module):
            raise ConfigError(
                f"model is {target!r}, but it returned something {_kind(module)}, and a model is a "
                "torch.nn.Module. Return one."
            )
        check_scores(module, target, signature)
        return module


class Given(Model):
    """A module that was handed over as an object, with its weights: every build is a copy of it."""

    _name: str = PrivateAttr()
    _module: nn.Module | None = PrivateAttr()

    @classmethod
    def of(cls, name: str, module: nn.Module | None) -> Self:
        """Return the model of a module, known by its `identity_of`; None where only the name is left."""
        model = cls()
        model._name, model._module = name, module
        return model

    def module(self, signature: Signature) -> nn.Module:
        """Return a copy of the module, with class scores checked.

        Raises:
            ConfigError: if the module is not at hand, or does not give one score for each class.
        """
        if self._module is None:
            raise ConfigError(
                f"model is {self._name!r}, but that is a Python object, of which a configuration holds the "
                "name alone. Hand the same module over again: RunConfig(task={'model': module, ...})."
            )
        module = copy.deepcopy(self._module)
        check_scores(module, self._name, signature)
        return module


def facts(signature: Signature) -> dict[str, Any]:
    """Return what a factory may be told of the data, by the name of its parameter.

    Example:
        >>> facts(Signature("image", (3, 32, 32), 10))
        {'num_classes': 10, 'input_shape': (3, 32, 32), 'in_channels': 3, 'image_size': (32, 32)}
        >>> facts(Signature("text", (80,), 95))
        {'num_classes': 95, 'input_shape': (80,), 'vocab_size': 95, 'sequence_length': 80}
    """
    shape = signature.shape
    known: dict[str, Any] = {"num_classes": signature.num_classes, "input_shape": shape}
    match signature.kind:
        case "image":
            return {**known, "in_channels": shape[0], "image_size": shape[1:]}
        case "text":
            return {**known, "vocab_size": signature.num_classes, "sequence_length": shape[0]}
        case "features":
            return {**known, "in_features": shape[0]}


def load_factory(target: str) -> Factory:
    """Import ``module:factory``; the current directory is searched after the installed packages.

    Raises:
        ConfigError: if there is no such module, importing it fails, or it has no such function or class.
    """
    name, _, path = target.partition(":")
    if os.getcwd() not in sys.path:
        # For good: what the model returns may be of a class that worker processes must find as well.
        sys.path.append(os.getcwd())
    try:
        with torch.random.fork_rng(devices=[]):  # a first import may draw: the model must not depend on it
            found: Any = importlib.import_module(name)
    except Exception as error:  # it is the user's code
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"model is {target!r}, but there is no module {error.name!r}. "
                "Run from the folder that holds it, or install it."
            ) from error
        raise ConfigError(
            f"model is {target!r}, but importing {name!r} raised {type(error).__name__}: {error}. Correct it."
        ) from error
    place = getattr(found, "__file__", None) or name
    for step in path.split("."):
        if not hasattr(found, step):
            near = difflib.get_close_matches(step, dir(found), n=1)
            hint = f"Did you mean {near[0]!r}?" if near else "Name a function or class that it defines."
            raise ConfigError(f"model is {target!r}, but {place} has no {step!r}. {hint}")
        found = getattr(found, step)
    if not callable(found) or isinstance(found, nn.Module):
        raise ConfigError(
            f"model is {target!r}, but that is {_kind(found)}, and a model is made by a function or a class. "
            "Wrap it in a function that returns the model."
        )
    return found  # type: ignore[no-any-return]


def arguments(
    factory: Factory, target: str, signature: Signature, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the keyword arguments of a factory: the facts that it names, then the options.

    Raises:
        ConfigError: if it has no parameter of an option's name, or one that nothing is known for, or does not
            say what its parameters are.
    """
    try:
        parameters = inspect.signature(factory).parameters
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"model is {target!r}, but Python does not know its parameters ({error}). "
            "Wrap it in a function that returns the model."
        ) from error
    by_name = {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for option in options:
        if option not in by_name and not takes_any:
            problem = f"option of model {target!r}"
            if not by_name:
                raise ConfigError(f"{problem} is {option!r}, but it takes no options. Remove it.")
            raise ConfigError(unknown_name(problem, option, by_name))
    given = {name: fact for name, fact in facts(signature).items() if name in by_name} | dict(options)
    for name, parameter in by_name.items():
        if parameter.default is parameter.empty and name not in given:
            raise ConfigError(
                f"model is {target!r}, but its parameter {name!r} has no default and is no fact of the data "
                f"({', '.join(facts(signature))}). Write it as an option beside the model's name."
            )
    return given


def check_scores(module: nn.Module, name: str, signature: Signature) -> None:
    """Refuse a module that does not give one score for each class. The module is left as it was.

    Raises:
        ConfigError: if its forward pass fails on the shapes of the data or its scores have another shape.
    """
    modes = {part: part.training for part in module.modules()}
    inputs = signature.example_inputs(2)
    try:
        with torch.no_grad():
            scores = logits_of(module.eval()(inputs))
    except InputError as error:
        raise ConfigError(f"model {name!r}: {error}") from error
    except Exception as error:  # it is the user's code
        raise ConfigError(
            f"model is {name!r}, but its forward pass on {signature.kind} inputs {list(inputs.shape)} raised "
            f"{type(error).__name__}: {error}. Make it fit the data, or choose other data."
        ) from error
    finally:
        for part, training in modes.items():
            part.training = training
    if tuple(scores.shape) != (2, signature.num_classes):
        raise ConfigError(
            f"model is {name!r}, but for 2 samples it gives scores of shape {list(scores.shape)}, and "
            f"{signature.num_classes} classes need [2, {signature.num_classes}]. "
            "Let the factory take num_classes."
        )


def target_of(factory: Factory) -> str:
    """Return the ``module:factory`` that names a function or class.

    Raises:
        ConfigError: if it cannot be imported by that name: a lambda, a partial, something local.

    Example:
        >>> target_of(nn.Linear)
        'torch.nn.modules.linear:Linear'
    """
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", "")
    if not isinstance(module, str) or not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(
            f"model is {factory!r}, but a factory must be importable by its name. "
            "Define it at the top of a module, or hand over the model that it returns."
        )
    return f"{module}:{name}"


def identity_of(module: nn.Module) -> str:
    """Return the name of a module that is handed over: its class and a hash of all its tensors.

    Modules of one class share it where their parameters and buffers are equal, by name and to the bit. What
    the forward pass does beside them is not seen.
    """
    digest = hashlib.sha256()
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
        flat = value.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    return f"{OBJECT}{type(module).__qualname__}-{digest.hexdigest()[:12]}"


def _kind(value: object) -> str:
    return f"of type {type(value).__name__}"


def _shown(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items()) or "no arguments"
