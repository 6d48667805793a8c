from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax

from widthwise.core.seeds import SeedTree
from widthwise.training import OBJECTIVES, LocalSetting, ModuleCache, train

DISTILLATION = OBJECTIVES["distillation"].value


def mean(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return outputs.mean()


def run(toy, task, objective, **other):
    return train(
        task,
        space=toy.space,
        module_for=ModuleCache(toy.space),
        dataset=toy.data,
        indices=torch.arange(len(toy.data)),
        objective=objective,
        **other,
    )


def local_problem(toy, task, objective):
    """Return the working object of an objective and its loaded module."""
    cache = ModuleCache(toy.space)
    module = cache(task.spec).train()
    received = toy.space.take(task.params, task.spec)
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.copy_(received[name])
    return objective.local(LocalSetting(task, toy.space, cache, module, received, cross_entropy)), module


def test_proximal_reaches_its_closed_form_on_a_quadratic(make_toy) -> None:
    # f(w) = mean_s .5 sum_j a_sj (w_j - b_sj)^2 from w_0: the minimum of f + (mu/2)|w - w_0|^2 is
    # w = (mean_s a b + mu w_0) / (mean_s a + mu), coordinate by coordinate; 300 steps of full-batch
    # gradient descent contract by at least 1 - .4 * (.5 + mu) = .4 each, far below 1e-12.
    toy = make_toy("bowl")
    start = toy.params["w"].add_(torch.tensor([1.0, -1.0, 2.0, 0.0]))
    mu = 1.0
    a, b = toy.data.inputs.chunk(2, dim=1)
    task = toy.task(0.5, local_epochs=300, batch_size=6, lr=0.4)
    delta = run(toy, task, OBJECTIVES["proximal"].value(mu=mu), criterion=mean).delta["w"]
    expected = ((a * b).mean(0) + mu * start) / (a.mean(0) + mu)
    torch.testing.assert_close(delta, (expected - start)[:2], rtol=1e-10, atol=1e-10)


def test_proximal_is_plain_when_mu_is_zero(make_toy) -> None:
    toy = make_toy("mlp")
    plain, free = (
        run(toy, toy.task(0.5), o).delta
        for o in (OBJECTIVES["plain"].value(), OBJECTIVES["proximal"].value(mu=0))
    )
    assert all(torch.equal(plain[name], free[name]) for name in plain)


@pytest.mark.parametrize(("alpha", "temperature"), [(None, 1.0), (0.3, 2.0), (1.0, 4.0)])
def test_round_distillation_gives_the_gradient_of_its_formula(make_toy, alpha, temperature) -> None:
    toy = make_toy("mlp")
    task = toy.task(0.25, context=0.75)
    problem, module = local_problem(toy, task, DISTILLATION(alpha=alpha, temperature=temperature))
    x, y = toy.data.inputs, toy.data.targets
    problem.loss(x, y).backward()

    weight = 0.5 if alpha is None else alpha
    teacher = toy.space.module(task.context_spec)
    teacher.load_state_dict(task.params)
    student = toy.space.module(task.spec)
    student.load_state_dict(toy.space.take(task.params, task.spec))
    p = softmax(teacher(x).detach() / temperature, dim=1)
    q = log_softmax(student(x) / temperature, dim=1)
    divergence = (p * (p.log() - q)).sum(dim=1).mean()
    ((1 - weight) * cross_entropy(student(x), y) + weight * temperature**2 * divergence).backward()
    for name, parameter in student.named_parameters():
        got = module.get_parameter(name).grad
        assert got.abs().max() > 1e-6
        torch.testing.assert_close(got, parameter.grad, rtol=1e-10, atol=1e-12)


def test_round_distillation_reports_the_slice_that_was_trained(make_toy) -> None:
    toy = make_toy("mlp")
    report = run(toy, toy.task(0.25, context=1.0), DISTILLATION())
    assert report.spec == toy.space.nested(0.25)
    assert report.delta["a.weight"].shape == (2, 3)


def test_round_distillation_is_plain_when_the_student_is_as_wide_as_its_teacher(make_toy) -> None:
    toy = make_toy("mlp")
    task = toy.task(0.5)
    plain, same = run(toy, task, OBJECTIVES["plain"].value()), run(toy, task, DISTILLATION())
    assert all(torch.equal(plain.delta[name], same.delta[name]) for name in plain.delta)


def test_distillation_asks_for_the_capacity_only_when_students_live_for_a_round() -> None:
    assert DISTILLATION().context_width(0.25, 0.75) == 0.75
    assert DISTILLATION().context_width(1.0, 0.75) == 1.0
    assert DISTILLATION(draw="step").context_width(0.25, 0.75) == 0.25


def test_step_distillation_gives_live_gradients_to_student_and_teacher(make_toy) -> None:
    toy = make_toy("mlp")
    objective = DISTILLATION(draw="step", student_widths=(0.25,), alpha=0.4, temperature=2.0)
    problem, module = local_problem(toy, toy.task(0.75), objective)
    x, y = toy.data.inputs, toy.data.targets
    problem.loss(x, y).backward()

    # By hand: the student is rows 0 and 1 of the hidden layer of the same parameters.
    w = {name: p.detach().clone().requires_grad_() for name, p in module.named_parameters()}

    def forward(h: int) -> torch.Tensor:
        return (x @ w["a.weight"][:h].T + w["a.bias"][:h]).relu() @ w["b.weight"][:, :h].T + w["b.bias"]

    teacher, student = forward(6), forward(2)
    target = log_softmax(teacher.detach() / 2, dim=1)
    soft = 4 * kl_div(log_softmax(student / 2, dim=1), target, reduction="batchmean", log_target=True)
    (cross_entropy(teacher, y) + 0.6 * cross_entropy(student, y) + 0.4 * soft).backward()
    for name, value in w.items():
        torch.testing.assert_close(module.get_parameter(name).grad, value.grad, rtol=1e-10, atol=1e-12)

    module.zero_grad()
    cross_entropy(module(x), y).backward()
    student_part = w["a.weight"].grad - module.get_parameter("a.weight").grad
    assert student_part[:2].abs().max() > 1e-6
    assert not student_part[2:].any()


def test_step_distillation_draws_the_widths_within_the_client_from_its_seed(make_toy) -> None:
    toy = make_toy("mlp")
    widths = (0.25, 0.5, 0.75, 1.0)
    task = toy.task(0.5, seed=3)
    problem, _ = local_problem(toy, task, DISTILLATION(draw="step", student_widths=widths))
    asked: list[float] = []
    space = type(toy.space)(toy.space.build, toy.space.sizes, toy.space.axes)
    nested = space.nested
    object.__setattr__(problem.setting, "space", space)
    object.__setattr__(space, "nested", lambda width: asked.append(width) or nested(width))
    for _ in range(8):
        problem.loss(toy.data.inputs, toy.data.targets)
    rng = SeedTree(3).at("student").numpy()
    assert asked == [float(rng.choice([0.25, 0.5])) for _ in range(8)]
    assert set(asked) == {0.25, 0.5}


def test_step_distillation_trains_batch_norm_models(make_toy) -> None:
    toy = make_toy("conv")
    report = run(toy, toy.task(1.0, local_epochs=3), DISTILLATION(draw="step", student_widths=(0.25, 0.5)))
    assert report.delta["conv.weight"].abs().sum() > 0


@pytest.mark.parametrize(
    "option", [{"alpha": 1.5}, {"temperature": 0}, {"draw": "epoch"}, {"student_widths": ()}]
)
def test_distillation_refuses_options_out_of_range(option) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        DISTILLATION(**option)
