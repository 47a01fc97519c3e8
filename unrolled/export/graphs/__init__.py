"""The graphs of each task's models: what they compute, from which inputs."""

from __future__ import annotations

from collections.abc import Callable

from unrolled.errors import UserError
from unrolled.export.graphs.captioner import caption_plans
from unrolled.export.graphs.forecaster import forecast_plans
from unrolled.export.graphs.language import generate_plans
from unrolled.export.graphs.plan import GraphPlan, GraphPlans
from unrolled.export.graphs.reader import classify_plans, tag_plans
from unrolled.export.graphs.recognizer import recognize_plans
from unrolled.export.graphs.translator import translate_plans
from unrolled.model import Model

PLANS: dict[str, Callable[[Model], GraphPlans]] = {
    "caption": caption_plans,
    "classify": classify_plans,
    "forecast": forecast_plans,
    "generate": generate_plans,
    "recognize": recognize_plans,
    "tag": tag_plans,
    "translate": translate_plans,
}


def plans_of(model: Model) -> GraphPlans:
    """The graphs of a model; a task of your own has a method `graphs(model)` that returns them."""
    own = getattr(model.task, "graphs", None)
    if own is not None:
        plans: GraphPlans = own(model)
        return plans
    if model.task.name not in PLANS:
        raise UserError(
            f"The task {model.task.name!r} has no graphs to export.",
            "Give it a method graphs(model) that returns GraphPlans: see docs/export.md.",
        )
    return PLANS[model.task.name](model)


__all__ = ["GraphPlan", "GraphPlans", "plans_of"]
