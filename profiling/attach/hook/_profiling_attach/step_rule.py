"""Decides what ends a step of a program that does not say so. No torch, no clock.

The program leaves marks: an optimizer's step, the forward of an outermost module, and so on. A mark
is a pair (kind, key), where the key is the id of the object. A step ends, in this order, with

1. what the program marks itself (`attach.step()`)
2. the optimizer that steps least often; of several that step equally often, the last of a cycle
3. zero_grad, where there are optimizers and none is seen to step: their step is compiled
4. a backward, where there is no optimizer
5. the forward of the outermost module that is called first (in generation: a token)
6. a batch of a DataLoader

A mark of a higher kind takes over when it comes later, and the steps counted so far are dropped, so
an evaluation before training is not mistaken for inference. Replays of a CUDA graph take over where
nothing else happens any more: soon, if a step was captured into a graph, and then all count.

A program may train one model after another, such as a fold of a cross-validation. An optimizer that
was made behind the newest step and has made CYCLES steps since succeeds the one before, and the
steps go on. Where one steps again behind a later one, later ones step within its steps, and so do
those of an inner loop that makes one in each step from the first on, if it is shorter than CYCLES.
"""

from collections import Counter

LEVELS = {
    "data": 0,
    "forward": 1,
    "backward": 2,
    "zero_grad": 3,
    "optimizer": 4,
    "replay": 5,
    "own": 6,
}
CHOICES = ("optimizer", "zero_grad", "backward", "forward", "data", "replay")
CYCLES = 12  # steps of one optimizer after which the others have shown how often they step
ENOUGH = 16  # marks of a lower kind before it is taken for a step
LONG_ACCUMULATION = 200  # replays in one step, at most
MOST_UNDECIDED = 4096  # marks that are kept until the rule is decided


class StepRule:
    def __init__(self, asked=None):
        self.asked = asked  # a kind that the user chose, or None
        self.chosen = None  # (kind, key) of the marks that end a step; None: undecided
        self.counts = {}  # (kind, key) -> number of marks, in the order of the first ones
        self.optimizers_made = 0
        self.later = set()  # marks of optimizers made since the newest step ...
        self.steps_before = 0  # ... of which there were so many
        self.predecessors = set()  # marks that ended the steps of earlier models
        self.successions = 0
        self.nests = False  # whether some optimizers step within the steps of another
        self.inner = set()  # keys of optimizers that are made in each step, as long as undecided
        self.stepped_since = set()  # keys of those that stepped since the newest of them was made
        self.undecided = []  # (mark, moment)
        self.replays = 0  # since the last mark of another kind
        self.was_captured = False  # whether a mark came while a CUDA graph was captured

    def optimizer_made(self, key):
        """Count an optimizer. Behind the newest step it may be that of the next model."""
        self.optimizers_made += 1
        mark = ("optimizer", key)
        if self.chosen is None:
            self.inner_made(key)
            return
        if self.chosen[0] != "optimizer" or self.nests:
            return
        if mark == self.chosen:  # in the place of one that is freed
            self.successions += 1
            return
        if self.steps_before != self.counts[self.chosen]:
            self.nests = any(each in self.counts for each in self.later)
            self.steps_before, self.later, self.undecided = self.counts[self.chosen], set(), []
        self.later.add(mark)
        self.counts.pop(mark, None)
        self.predecessors.discard(mark)

    def inner_made(self, key):
        """Tell an optimizer that is made in each step from the one that ends it, which goes on."""
        stepped = set(self.counts_of("optimizer"))
        if stepped:
            self.inner |= {key} | (stepped - self.stepped_since)
            self.stepped_since = set()

    def may_succeed(self, mark):
        """Whether no step has ended since this optimizer was made."""
        if mark not in self.later:
            return False
        if self.steps_before == self.counts[self.chosen] and not self.nests:
            return True
        self.later.discard(mark)
        return False

    def ignores(self, mark):
        """Whether this mark, which is counted, can neither end a step nor take over."""
        kind = mark[0]
        self.counts[mark] = self.counts.get(mark, 0) + 1
        self.replays = self.replays + 1 if kind == "replay" else 0
        if kind == "optimizer" and self.chosen is None:
            self.stepped_since.add(mark[1])
        if mark == self.chosen:
            return False
        if (self.later and self.may_succeed(mark)) or mark in self.predecessors:
            return False
        if self.asked is not None:
            return kind != self.asked or self.chosen is not None
        if self.chosen is not None and LEVELS[kind] <= LEVELS[self.chosen[0]]:
            return True
        return kind == "replay" and not self.was_captured and self.replays < LONG_ACCUMULATION

    def ends_of_steps(self, mark, moment):
        """Moments at which steps ended: none, this one, or many as soon as the rule is decided."""
        if mark == self.chosen:
            return (moment,)
        if mark in self.predecessors:
            self.chosen, self.nests, self.successions = mark, True, 0
            self.predecessors, self.later, self.undecided = set(), set(), []
            return (moment,)
        if len(self.undecided) < MOST_UNDECIDED:
            self.undecided.append((mark, moment))
        if mark[0] == "replay" and self.asked is None and not self.replays_take_over():
            return ()
        if mark in self.later:
            return self.decide(self.successor())
        return self.decide(self.choice())

    def successor(self):
        """The mark that ends the steps of the next model, or None as long as that is open."""
        counts = {mark[1]: self.counts[mark] for mark in self.later if mark in self.counts}
        if max(counts.values()) < CYCLES:
            return None
        self.predecessors.add(self.chosen)
        self.successions += 1
        self.later = set()
        return rarest("optimizer", counts)

    def replays_take_over(self):
        return self.replays >= (ENOUGH if self.was_captured else LONG_ACCUMULATION)

    def decide_at_end(self):
        """Moments at which steps ended in a program that ends undecided."""
        return () if self.chosen else self.decide(self.choice(at_end=True))

    def decide(self, choice):
        if choice is None:
            return ()
        if choice[0] != "optimizer":
            self.later, self.predecessors = set(), set()
        if choice[1] in self.inner:  # none goes on: they come one after another
            self.inner = set()
        self.chosen, self.nests = choice, self.nests or bool(self.inner)
        moments = [moment for mark, moment in self.undecided if mark == choice]
        self.undecided = []
        return moments

    def counts_of(self, kind):
        """Number of marks for each key of a kind, in the order of the first marks."""
        return {key: count for (each, key), count in self.counts.items() if each == kind}

    def choice(self, at_end=False):
        """(kind, key) of the marks that end a step, or None as long as that is open."""
        if self.asked is not None:
            return rarest(self.asked, self.counts_of(self.asked))
        if self.counts_of("own"):
            return rarest("own", self.counts_of("own"))
        if self.replays_take_over():
            return rarest("replay", self.counts_of("replay"))
        steps = self.counts_of("optimizer")
        steps = {key: n for key, n in steps.items() if key not in self.inner} or steps
        if steps:
            return rarest("optimizer", steps) if at_end or self.cycle_is_known(steps) else None
        backwards = self.counts_of("backward")
        if self.optimizers_made:
            zeroed = self.counts_of("zero_grad")
            if zeroed and (at_end or max(zeroed.values()) >= ENOUGH):
                return rarest("zero_grad", zeroed)
            if not at_end:
                return None
        if backwards:
            enough = at_end or sum(backwards.values()) >= ENOUGH
            return rarest("backward", backwards) if enough else None
        if self.optimizers_made:
            return None
        return self.first_of_inference(at_end)

    def cycle_is_known(self, steps):
        if self.optimizers_made <= 1 or max(steps.values()) >= CYCLES:
            return True
        return len(steps) >= self.optimizers_made and min(steps.values()) >= 2

    def first_of_inference(self, at_end):
        forwards = sum(self.counts_of("forward").values())
        for kind in ("forward", "data"):
            counts = self.counts_of(kind)
            if kind == "data" and 2 * forwards > sum(counts.values()):
                continue  # batches of a model, whose forwards are steps as soon as there are enough
            if counts and (at_end or max(counts.values()) >= ENOUGH):
                most = max(counts.values())
                return kind, next(key for key, count in counts.items() if count >= most - 1)
        return None

    def sentence(self, names):
        """The rule in one sentence; `names` maps a mark to the name of its object's class."""
        if self.chosen is None:
            return "no step was seen"
        kind = self.chosen[0]
        name = names.get(self.chosen, kind)
        text = {
            "optimizer": f"a step ends with {name}.step()",
            "zero_grad": f"a step ends with {name}.zero_grad()",
            "backward": "a step is a backward",
            "forward": f"a step is a forward of {name}",
            "data": "a step is a batch of a DataLoader",
            "replay": "a step is a replay of a CUDA graph",
            "own": "a step ends where the program says so, with attach.step()",
        }[kind]
        why = {
            "zero_grad": "because no optimizer was seen to step (torch.compile or a CUDA graph "
            "holds it)",
            "backward": "because no optimizer of torch was seen",
            "forward": "because nothing was trained",
        }
        if kind == self.asked:
            text += f", as --step {kind} says"
        elif kind in why:
            text += f", {why[kind]}"
        others = [mark for mark in self.counts if mark[0] == kind and mark != self.chosen]
        if self.successions:
            text += f", of {self.successions + 1} optimizers one after another"
        elif kind == "optimizer" and self.inner:
            text += ", within which others are made"
        elif kind == "optimizer" and others:
            steps = self.counts[self.chosen]
            each = Counter(
                f"{names.get(m, kind)} {how_often(self.counts[m] / steps)}" for m in others
            )
            said = [one if n == 1 else f"{one} ({n} of them)" for one, n in each.items()]
            text += f", of {len(others) + 1} optimizers; per step: {', '.join(said)}"
        return text


def how_often(ratio):
    text = f"{ratio:.3g}"
    return "once" if text == "1" else f"{text} times"


def rarest(kind, counts):
    """The mark of this kind that comes least often, or the last of several; None without marks.

    A cycle may be under way, so counts that differ by one are equal.
    """
    if not counts:
        return None
    least = min(counts.values())
    return kind, [key for key, count in counts.items() if count <= least + 1][-1]
