"""Turns the marks of a program into steps: their times, phases, one window, and the run's files.

Nothing is written before the first step has ended, so a process that never trains leaves nothing.
An error of the hook ends the hook, never the program: every method that the patches call catches
it, and the run's files say what it was.
"""

import os
import sys
from contextlib import suppress

from _profiling_attach.dynamo import hide_hook
from _profiling_attach.forked import is_loader_worker, never_free, skip_destructors
from _profiling_attach.laps import FREE, UNTIMED, Laps
from _profiling_attach.phases import Phases
from _profiling_attach.process_end import ctrl_c_ignored, write_at_end_of_process
from _profiling_attach.run_files import ROW_STEPS, RunFiles
from _profiling_attach.step_rule import LEVELS, StepRule
from _profiling_attach.watch_torch import append_line
from _profiling_attach.window import LEAD, NEXT_MODEL, Window, planned_window, requested_window

SHAPES_EVERY = 10  # forwards between two looks at the shapes of their arguments
LOSS_STEPS = (10, 20, 40)  # whose loss is kept; all their marks are counted (phases.py)
OFF_LEVEL = 99  # above all kinds of marks
BEFORE_TRAINING = "nsys recorded what came before the training; give --step optimizer"
# inside one of these no other begins
MAIN_PHASES = ("data", "forward", "backward", "evaluation", "checkpoint")


class Recorder:
    def __init__(self, settings, torch):
        self.settings, self.torch = settings, torch
        self.notes = hide_hook(torch)
        os.register_at_fork(after_in_child=self.begin_in_child)
        self.begin_anew()

    def begin_in_child(self):
        """Begin anew in a forked process, and leave no trace of a profiler that the parent has."""
        try:
            never_free(vars(self).copy())  # a CUDA event of the parent's, freed here, aborts
            if Window.kineto_started:
                skip_destructors()
        except Exception as error:
            self.step_aside(error)
            return
        self.begin_anew()

    def begin_anew(self):
        """Forget all steps: in a forked child, which is a loader's worker or trains by itself."""
        self.pid = os.getpid()
        self.off = False
        self.rule = StepRule(self.settings.step)
        self.phases = Phases()
        self.laps = None  # until the first mark
        self.files = None  # until the first step has ended
        self.window = None
        self.is_past = False  # whether the step that ends did so before its mark was known
        self.inside = None  # one of MAIN_PHASES
        self.quiet_level = -1  # kinds of marks below it are not even counted in the present step
        self.skipped_steps = 0
        self.names = {}  # mark -> class of its object
        self.parameters = 0  # of all optimizers
        self.shapes = {}  # "float32:8x128" of a forward's arguments -> how often it was seen
        self.losses = {}  # step of LOSS_STEPS -> copy of the scalar that went backward first in it
        self.sampled_steps = self.sampled_backwards = 0  # of steps whose marks were all counted
        self.backwards_before = 0  # the present step
        self.next_look = 0  # steps behind which there is more to do than to time them
        self.steps_to_look = 0  # from the newest lap
        # of the mark that notes its moment, up to a look, and what gives that
        self.quick_kind = self.quick_key = self.quick_now = None
        self.new_ends = []  # moments of such marks, which are no laps yet
        self.ends_to_come = 0  # last ones of these, untimed, whose marks are yet to come

    def step_aside(self, error):
        """End the hook after an error of its own, which the launcher reads."""
        self.turn_off()
        said = f"{type(error).__name__}: {error}"
        self.notes.append(f"the hook stopped: {said}")
        with suppress(OSError):
            append_line(self.settings.folder, {"pid": os.getpid(), "error": said})

    def turn_off(self):
        self.off, self.quiet_level = True, OFF_LEVEL
        self.phases.on = False
        self.quick_kind = None

    # called by the patches

    def optimizer_made(self, optimizer):
        if self.off:
            return
        try:
            self.add_new_ends()
            self.rule.optimizer_made(id(optimizer))
            later = ("optimizer", id(optimizer)) in self.rule.later
            if later and self.window is not None and self.window.is_open:
                self.close_window(NEXT_MODEL)
            for kind in ("optimizer", "zero_grad"):
                self.names[kind, id(optimizer)] = type(optimizer).__name__
            tensors = [p for group in optimizer.param_groups for p in group["params"]]
            self.parameters += sum(each.numel() for each in tensors)
        except Exception as error:
            self.step_aside(error)

    def count(self, kind, what):
        """Number of marks that this object has left."""
        mark = (kind, id(what))
        new = len(self.new_ends) - self.ends_to_come if mark == self.rule.chosen else 0
        return self.rule.counts.get(mark, 0) + new

    def enter(self, phase):
        if self.off:
            return
        try:
            if phase in MAIN_PHASES:
                self.inside = phase
            if self.phases.on:
                self.phases.enter(phase)
        except Exception as error:
            self.step_aside(error)

    def leave(self, phase):
        if self.off:
            return
        try:
            if self.inside == phase:
                self.inside = None
            if self.phases.open:
                self.phases.leave(phase)
        except Exception as error:
            self.step_aside(error)

    def forward(self, module, args, kwargs):
        """The forward of an outermost module has ended."""
        if self.off:
            return
        try:
            self.names["forward", id(module)] = type(module).__name__
            if self.count("forward", module) % SHAPES_EVERY == 0:
                tensors = [t for t in [*args, *kwargs.values()] if isinstance(t, self.torch.Tensor)]
                shapes = " ".join(shape_of(tensor) for tensor in tensors)
                self.shapes[shapes] = self.shapes.get(shapes, 0) + 1
        except Exception as error:
            self.step_aside(error)
        self.mark("forward", module)

    def keep_loss(self, tensors):
        """Keep a copy of the loss in a few steps. It is read at the end: nothing waits for it."""
        if self.off or self.laps is None or len(self.laps.ms) not in LOSS_STEPS:
            return
        try:
            loss = tensors if isinstance(tensors, self.torch.Tensor) else next(iter(tensors))
            plain = type(loss) is self.torch.Tensor and loss.numel() == 1
            if plain and not self.laps.is_capturing():
                self.losses.setdefault(len(self.laps.ms), loss.detach().clone())
        except Exception as error:
            self.step_aside(error)

    def mark(self, kind, what=None):
        """An object has left a mark, which may end a step."""
        try:
            if kind == self.quick_kind and id(what) == self.quick_key:  # nearly all
                if self.ends_to_come:
                    self.ends_to_come -= 1
                    return
                ends, now = self.new_ends, self.quick_now
                ends.append(now())
                if len(ends) >= self.steps_to_look:
                    self.add_new_ends()
                    self.count_backwards()
                    self.look(len(self.laps.ms))
                elif self.laps.to_skip:
                    self.ends_to_come = self.laps.skip(self.steps_to_look - len(ends) - 1)
                    ends += [UNTIMED] * self.ends_to_come
                return
            if self.off:
                return
            mark, rule = (kind, id(what)), self.rule
            if self.new_ends and (LEVELS[kind] > LEVELS[rule.chosen[0]] or mark in rule.later):
                self.add_new_ends()  # as this may take over
            if rule.ignores(mark):
                return
            if self.laps is None:
                if is_loader_worker():  # what it calls transforms its samples
                    self.turn_off()
                    return
                self.laps = Laps(self.torch)
                write_at_end_of_process(self.end)
            before, now = rule.chosen, self.laps.now()
            if now is None:
                rule.was_captured = True
            moments = rule.ends_of_steps(mark, now)
            if before is not None and before != rule.chosen:
                self.quick_kind = None
                if LEVELS[before[0]] < LEVELS[rule.chosen[0]]:
                    self.drop_steps()
            if len(moments) == 1 and self.laps.last is not None:
                self.count_backwards()
            self.end_steps(moments, now)
            if moments:
                self.backwards_before = self.count("backward", None)
        except Exception as error:
            self.step_aside(error)

    def yield_profiler(self):
        """The program starts its own torch.profiler."""
        window = self.window
        if self.off or window is None or window.preparing:
            return
        try:
            self.add_new_ends()
            if window.is_open and window.kind == "torch":
                self.close_window("the program started its own torch.profiler")
            elif not window.is_open:
                window.discard()
        except Exception as error:
            self.step_aside(error)

    # steps

    def count_backwards(self):
        """Count those of the step that ends now, if all its marks were counted."""
        if self.phases.on:
            self.sampled_steps += 1
            self.sampled_backwards += self.count("backward", None) - self.backwards_before

    def add_new_ends(self):
        """Make laps of the moments at which steps ended since the last look."""
        ends, self.new_ends = self.new_ends, []
        if self.ends_to_come:
            del ends[-self.ends_to_come :]
            self.laps.to_skip += self.ends_to_come
            self.ends_to_come = 0
        if not ends:
            return
        rule, window = self.rule, self.window
        self.steps_to_look -= len(ends)
        rule.counts[rule.chosen] += len(ends)
        rule.replays = 0
        rule.was_captured = rule.was_captured or self.laps.was_capturing
        self.laps.extend(ends, FREE if window is None else window.label)

    def drop_steps(self):
        """Forget the steps so far: a mark of a higher kind has shown that they were none."""
        self.phases.close_ranges()
        self.laps = Laps(self.torch)
        self.phases = Phases()
        self.losses = {}
        self.next_look = self.sampled_steps = self.sampled_backwards = 0
        self.quick_kind = None
        if self.files:
            self.files.start_rows()
            self.drop_window()

    def drop_window(self):
        """Forget the window of steps that were none, and plan another one."""
        window = self.window
        if self.settings.kind == "nsys":  # which records one range of a process
            if self.files.windows or (window is not None and window.is_open):
                self.notes.append(BEFORE_TRAINING)
        elif window is not None:
            window.discard()
            self.plan_window()
        elif self.files.drop_only_window():
            self.plan_window()

    def end_steps(self, moments, now):
        """End the step that ends now, or many that ended before the rule was known."""
        for moment in moments:
            self.is_past = moment is not now
            self.end_step(moment)
        self.is_past = False

    def end_step(self, moment):
        laps = self.laps
        if self.files is None:
            self.files = RunFiles(self)
            self.plan_window()
        if laps.last is None:  # the first mark: the steps before it are not known
            laps.last = moment
            return
        window = self.window
        laps.extend([moment], FREE if window is None else window.label)
        self.steps_to_look = self.next_look - len(laps.ms)
        if self.steps_to_look <= 0:
            self.look(len(laps.ms))

    def look(self, done):
        """Decide what begins or ends behind `done` steps: timed phases, a window, a row."""
        window = self.window
        self.phases.end_step(done)
        self.quiet_level = -1 if self.phases.on else LEVELS[self.rule.chosen[0]]
        if window is not None and not self.is_past:
            self.follow_window(window, done)
        if done % ROW_STEPS == 0:
            wrote = self.files.write_rows(done)
            if self.window is None and (wrote or self.files.world_size > 1):  # ranks: all at once
                self.window = self.requested_window(done)
            if self.window is not None:
                self.laps.time_every_step()
            elif wrote and not self.settings.every_step:
                self.laps.choose_stride()
        if self.settings.stop_after and done >= self.settings.stop_after:
            self.stop_program()
        self.next_look = self.step_to_look_at(done)
        self.steps_to_look = self.next_look - done
        self.quick_kind, self.quick_key = self.rule.chosen
        self.quick_now = self.laps.now
        self.backwards_before = self.count("backward", None)

    def step_to_look_at(self, done):
        """The number of steps at which something can begin or end again."""
        if self.phases.on:
            return done + 1
        interval = self.files.look_steps if self.window is None else ROW_STEPS
        step = done - done % interval + interval
        if self.window is not None and self.window.start is not None:
            step = min(step, max(done + 1, self.window.start - LEAD))
        if self.settings.stop_after:
            step = min(step, max(done + 1, self.settings.stop_after))
        return step

    def requested_window(self, done):
        """The window that `profiling trigger` asks for, or None."""
        try:
            request = self.files.take_request(done)
            return request and requested_window(self.torch, self.settings, request)
        except ValueError as error:
            self.notes.append(f"trigger: {error}")
            return None

    def plan_window(self):
        """Plan the window that the settings ask for."""
        try:
            self.window = planned_window(self.torch, self.settings, self.files.world_size)
        except ValueError as error:
            self.notes.append(str(error))

    def follow_window(self, window, done):
        if window.is_open:
            if done >= window.first + window.steps:
                self.close_window()
            else:
                window.begin_step(done)
        elif window.is_due(done, self.laps) and window.open(done):
            self.phases.ranges, self.phases.on = window.range, True
            self.quiet_level = -1
            window.begin_step(done)
            self.laps.last = self.laps.now()  # what opening took is in no step

    def close_window(self, ended_by=None):
        window, self.window = self.window, None
        window.ended_by = ended_by
        self.phases.close_ranges()
        self.phases.ranges = None
        self.files.write_window(window)
        self.laps.last = self.laps.now()

    # the end

    def stop_program(self):
        """End the process: `ab --steps` has measured enough."""
        self.end()
        self.files.wait_for_ranks()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def end(self):
        """Write what is left, at the end of the process."""
        if self.pid != os.getpid() or self.laps is None:
            return
        with ctrl_c_ignored():  # a second one would lose what is left
            try:
                self.end_last_window()
            except Exception as error:
                self.step_aside(error)
            try:
                if self.files is not None:
                    self.files.write_end()
            except Exception as error:
                self.step_aside(error)
        self.off, self.quick_kind = True, None  # what trains after this is written nowhere

    def end_last_window(self):
        """Decide the last steps, and end the window that is open or prepared."""
        self.add_new_ends()
        self.end_steps(self.rule.decide_at_end(), None)
        if self.window is not None and self.window.is_open:
            error = getattr(sys, "last_value", None)  # one that nobody caught
            name = f"{type(error).__name__}: {error}".splitlines()[0] if error else None
            self.close_window(name or "the end of the program")
        elif self.window is not None:
            self.window.discard()


def shape_of(tensor):
    """Type and shape of a tensor, such as float32:8x128."""
    kind = str(tensor.dtype).replace("torch.", "")
    return "{}:{}".format(kind, "x".join(map(str, tensor.shape)))
