"""Ends of steps in a program that does not say so: orders of marks, take-over, ties."""

import pytest
from _profiling_attach.step_rule import (
    CYCLES,
    ENOUGH,
    LEVELS,
    LONG_ACCUMULATION,
    StepRule,
)


def play(marks, optimizers=0, asked=None, end=True):
    """(rule, moments at which steps ended) of a program that leaves these marks.

    Marks are (kind, key), or ("made", key) of an optimizer; a mark's moment is its place. A
    take-over drops the steps before it.
    """
    rule, steps = StepRule(asked), []
    rule.optimizers_made = optimizers
    for moment, mark in enumerate(marks):
        if mark[0] == "made":
            rule.optimizer_made(mark[1])
            continue
        if rule.ignores(mark):
            continue
        before = rule.chosen
        ended = rule.ends_of_steps(mark, moment)
        if before is not None and LEVELS[before[0]] < LEVELS[rule.chosen[0]]:
            steps.clear()
        steps += ended
    if end:
        steps += rule.decide_at_end()
    return rule, steps


def iteration(optimizer, backwards=1):
    return [
        *[("forward", 1), ("backward", None)] * backwards,
        ("optimizer", optimizer),
        ("zero_grad", optimizer),
    ]


def test_one_optimizer_is_known_at_its_first_step():
    rule, steps = play(iteration(7) * 5, optimizers=1, end=False)
    assert rule.chosen == ("optimizer", 7) and steps == [2, 6, 10, 14, 18]


def test_of_two_that_step_in_turns_the_last_of_a_cycle_ends_it_and_no_step_is_lost():
    rule, steps = play((iteration(1) + iteration(2)) * 20, optimizers=2)
    assert rule.chosen == ("optimizer", 2)
    assert steps == [6 + 8 * number for number in range(20)]
    text = rule.sentence({("optimizer", 1): "SGD", ("optimizer", 2): "Adam"})
    assert text == "a step ends with Adam.step(), of 2 optimizers; per step: SGD once"

    rule, _ = play((iteration(1) + iteration(3) + iteration(2)) * 20, optimizers=3)
    text = rule.sentence({("optimizer", key): "SGD" for key in (1, 2, 3)})
    assert text == "a step ends with SGD.step(), of 3 optimizers; per step: SGD once (2 of them)"


@pytest.mark.parametrize("end", [True, False])
def test_of_five_critics_and_one_generator_the_generator_ends_a_step(end):
    cycle = iteration(1) * 5 + iteration(2)
    rule, steps = play(cycle * 10, optimizers=2, end=end)
    assert rule.chosen == ("optimizer", 2) and len(steps) == 10
    text = rule.sentence({("optimizer", 1): "RMSprop", ("optimizer", 2): "Adam"})
    assert text == "a step ends with Adam.step(), of 2 optimizers; per step: RMSprop 5 times"


def test_an_optimizer_that_never_steps_holds_the_rule_up_for_a_number_of_cycles_alone():
    rule, steps = play(iteration(1) * (CYCLES + 1), optimizers=2, end=False)
    assert rule.chosen == ("optimizer", 1) and len(steps) == CYCLES + 1


def test_models_that_are_trained_one_after_another_all_make_steps():
    folds = [[("made", fold), *iteration(fold) * 20] for fold in (1, 2, 3, 1)]  # a freed one's id
    rule, steps = play(sum(folds, []), end=False)
    assert len(steps) == 80 and steps == sorted(steps)
    names = {("optimizer", fold): "SGD" for fold in (1, 2, 3)}
    assert rule.sentence(names) == "a step ends with SGD.step(), of 4 optimizers one after another"
    rule, steps = play([("made", 1), *iteration(1) * 20] * 3)
    assert len(steps) == 60 and "3 optimizers one after another" in rule.sentence(names)


def test_the_next_gan_ends_its_steps_with_the_generator_too():
    cycle = (iteration(3) * 5 + iteration(4)) * 20
    first = [("made", 1), ("made", 2), *(iteration(1) * 5 + iteration(2)) * 20]
    rule, steps = play([*first, ("made", 3), ("made", 4), *cycle])
    assert rule.chosen == ("optimizer", 4) and len(steps) == 40


def test_an_optimizer_that_is_made_in_each_step_does_not_end_it():
    inner = [("made", 2), *iteration(2) * 5, *iteration(1)]
    rule, steps = play([("made", 1), *iteration(1), *inner * 20])
    assert rule.chosen == ("optimizer", 1) and len(steps) == 21
    assert len(rule.undecided) <= 5, "ends of inner steps are not kept for long"
    longer = [("made", 2), *iteration(2) * 30, *iteration(1)]
    rule, steps = play([("made", 1), *iteration(1), *longer * 20])
    assert rule.chosen == ("optimizer", 1) and len(steps) == 21 + 30, (
        "the first are taken for steps"
    )
    assert "one after another" not in rule.sentence({})


@pytest.mark.parametrize("inner", [1, 5, 11])
@pytest.mark.parametrize("ids", [60, 2])  # that of one that was freed comes again
def test_optimizers_made_in_each_step_from_the_first_on_do_not_end_it(inner, ids):
    steps = [[("made", 10 + n % ids), *iteration(10 + n % ids) * inner] for n in range(60)]
    rule, ended = play([("made", 1), *sum((each + iteration(1) for each in steps), [])])
    assert rule.chosen == ("optimizer", 1) and len(ended) == 60
    assert rule.sentence({}) == "a step ends with optimizer.step(), within which others are made"


def test_a_second_optimizer_of_the_same_model_may_be_made_behind_the_first_step():
    rule, steps = play(
        [("made", 1), *iteration(1), ("made", 2), *(iteration(1) + iteration(2)) * 30]
    )
    assert rule.chosen == ("optimizer", 1) and len(steps) == 31


def test_forty_backwards_are_one_step():
    rule, steps = play(iteration(3, backwards=40) * 6, optimizers=1)
    assert rule.chosen == ("optimizer", 3) and len(steps) == 6


def test_a_compiled_optimizer_steps_from_zero_grad_to_zero_grad():
    marks = [("forward", 1), ("backward", None), ("zero_grad", 5)]
    rule, steps = play(marks * (ENOUGH + 9), optimizers=1, end=False)
    assert rule.chosen == ("zero_grad", 5) and len(steps) == ENOUGH + 9
    rule, steps = play([("zero_grad", 5)] * ENOUGH, optimizers=1, end=False)
    assert rule.chosen == ("zero_grad", 5), "a graph that holds the backward leaves no other mark"
    assert "no optimizer was seen to step" in rule.sentence({("zero_grad", 5): "AdamW"})
    assert play(marks * 20, optimizers=1)[1] == [2 + 3 * number for number in range(20)]


def test_gradients_without_an_optimizer_are_steps_of_backward():
    rule, steps = play([("forward", 1), ("backward", None)] * 30)
    assert rule.chosen == ("backward", None) and len(steps) == 30


def test_inference_steps_with_the_outermost_module_that_is_called_first():
    rule, steps = play([("data", None), ("forward", 4), ("forward", 9)] * ENOUGH)
    assert rule.chosen == ("forward", 4) and len(steps) == ENOUGH
    assert "nothing was trained" in rule.sentence({})


def test_batches_alone_are_steps_and_too_few_are_none_before_the_end():
    rule, steps = play([("data", None)] * 40)
    assert rule.chosen == ("data", None) and len(steps) == 40
    assert play([("data", None)] * 5, end=False)[1] == []
    assert len(play([("data", None)] * 5)[1]) == 5


def test_an_evaluation_before_training_is_not_taken_for_inference():
    rule, steps = play([("forward", 1)] * 30 + iteration(2) * 10, optimizers=1)
    assert rule.chosen == ("optimizer", 2) and len(steps) == 10


def test_an_evaluation_after_training_takes_nothing_over():
    rule, steps = play(iteration(2) * 10 + [("forward", 1)] * 300, optimizers=1)
    assert rule.chosen == ("optimizer", 2) and len(steps) == 10


def test_replays_take_over_where_nothing_else_happens_any_more():
    rule, steps = play(iteration(2) * 3 + [("replay", 8)] * 300, optimizers=1)
    assert rule.chosen == ("replay", 8) and len(steps) >= 300 - LONG_ACCUMULATION
    assert rule.sentence({}) == "a step is a replay of a CUDA graph"


def test_every_replay_of_a_graph_that_holds_a_step_is_one():
    marks = iteration(2) * 4
    rule, steps = play(marks, optimizers=1, end=False)
    rule.was_captured = True  # by the last of them
    for moment, mark in enumerate([("replay", 8)] * 120, len(marks)):
        assert not rule.ignores(mark)
        ended = rule.ends_of_steps(mark, moment)
        steps = list(ended) if len(ended) > 1 else [*steps, *ended]
    assert rule.chosen == ("replay", 8) and steps == list(range(16, 136))


def test_replays_within_a_step_do_not_take_over():
    rule, steps = play(([("replay", 8)] * 50 + [("optimizer", 2)]) * 20, optimizers=1)
    assert rule.chosen == ("optimizer", 2) and len(steps) == 20


def test_of_two_graphs_that_are_replayed_in_turns_the_last_ends_a_step():
    rule, steps = play([("replay", 1), ("replay", 2)] * LONG_ACCUMULATION)
    assert rule.chosen == ("replay", 2) and len(steps) == LONG_ACCUMULATION / 2 + 1


def test_marks_of_the_program_itself_go_before_all_others():
    marks = iteration(1) + iteration(2) + [("own", None)]
    rule, steps = play(marks * 10, optimizers=2, end=False)
    assert rule.chosen == ("own", None) and steps == [8 + 9 * number for number in range(10)]
    assert rule.sentence({}) == "a step ends where the program says so, with attach.step()"
    assert LEVELS["own"] == max(LEVELS.values())
    rule, steps = play(iteration(1) * 5 + marks * 10, optimizers=1)
    assert rule.chosen == ("own", None) and len(steps) == 10


def test_replays_in_a_step_of_the_program_itself_are_parts_of_it():
    rule, steps = play((([("replay", 8)] * 2 * LONG_ACCUMULATION) + [("own", None)]) * 3)
    assert rule.chosen == ("own", None) and len(steps) == 3


@pytest.mark.parametrize("asked, steps", [("backward", 80), ("forward", 80), ("optimizer", 2)])
def test_a_kind_that_is_asked_for_counts_alone(asked, steps):
    rule, ended = play(iteration(3, backwards=40) * 2, optimizers=1, asked=asked)
    assert rule.chosen[0] == asked and len(ended) == steps
    assert rule.sentence({}).endswith(f", as --step {asked} says")


def test_a_program_without_marks_has_no_step():
    rule, steps = play([])
    assert (rule.chosen, steps, rule.sentence({})) == (None, [], "no step was seen")
