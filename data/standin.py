"""The built-in text, for a machine without a network and without a text: NOT Shakespeare.

It is random words in the form of a play, as long as tiny Shakespeare and with its 65 characters,
each about as frequent, in lines about as long: shapes and step times are the same, but its losses
cannot be compared with any others. Called by `data.prepare`.
"""

import random
from collections.abc import Callable

LENGTH = 1_115_394  # characters, as many as tiny Shakespeare has

# The first words are drawn most often, the last ones about once in a thousand.
WORDS = """
the and I to of thou a that in is not for with me it he be your this his but so have as him thy I'll
will what my no by all we do shall her if are our on thee 'tis from now then O lord come they or
which at how here was would its she their sir well more them hath let when say must than were go us
am why yet makes like there should comes such an tell had did know too these some gives see takes
speak up can out upon who mine may time most nor hear think much heart never love's made true hands
day men before any own again looks good both away names word great life fair blood world sweet noble
pray done leaves against old down way eyes death fears nay calls night poor those heaven's lives
even bear head till nothing whose friends dead others ever honour peace brother stands wife father
mother better house gone once still things could souls himself since little master hence sets grace
rest long else none crown every young right powers part tongue bring ere gentle hopes keeps find
hold cause home boy bids tears king's forth back about earth die queen deeds turns kind known last
fight ground swear land opens sun follow strange please first arms false women cold bloody ready
thousand shames sorrow swords fortune break light matter body strong child states sea fire ill
cousin doubt soft judges comfort virtue letters present just law sends rise years patience joy
silver garden question justice proud guard summer music harbour weary lion tower bitter ship knave
mercy castle foolish jewel ghosts villains spring to-morrow witness tempest golden measure chambers
treason's wisdom weapon thunder window gallant feather battle vow mirror dagger harvest prophet
banquet zeal vex whispers fox pale wax doze vizard wolf-skin storm-beaten business counsel courage
danger despair dream duty enemy envy fault flesh flower fury grief helmet heir humble hunger
innocent journey labour lips marriage merry minute mountain murder nature obey offence ocean orchard
palace pardon plague pleasure poison prison quiet raven reason rebel remember revenge ruin sacred
shadow shepherd sickness slave slumber spirit stolen stranger subject sudden tailor temple threat
traitor trumpet tyrant vengeance wander winter wretched $3 &c
""".split()  # noqa: SIM905, a list of literals would be four times as long
SPEAKERS = """
KING ODRIC:BRANNOCH:CASSIMER:First Ferryman:QUEEN ANNABEL:HESPER:ROSAMUND:Second Ferryman:LUDOVAR:
Lady Fennimore:ELEANOR:TAMSIN:GALT:All:WYNSTAN:AGRICOLA:IDONEA:JESSAMY:KETTERICK:URBEN:Prince Valdo:
DUKE OF PELL:YSOLDE:ZEBULO:XANTHE
""".replace("\n", "").split(":")
MARKS = [""] * 82 + [","] * 11 + [";"] * 2 + list("...:?!")  # after a word


def stand_in_text(length: int = LENGTH) -> str:
    """First `length` characters of the text, the same on every machine; the last is a newline."""
    # Random.random is the only method that is promised to draw the same numbers in every Python
    draw = random.Random(1337).random
    speeches, written = [], 0
    while written < length:
        lines = [line(draw) for _ in range(1 + int(draw() * draw() * 12))]
        verse = "\n".join(lines).rstrip(",;:.") + "..?!.:"[int(draw() * 6)]
        speeches.append(f"{early(SPEAKERS, draw)}:\n{verse}\n\n")
        written += len(speeches[-1])
    return "".join(speeches)[: length - 1] + "\n"


def line(draw: Callable[[], float]) -> str:
    """A line of about forty characters, which begins like a sentence and may end within one."""
    text, width = "", 28 + 18 * draw()
    while len(text) < width:
        word = early(WORDS, draw)
        begins = text[-2:-1] in ("", ".", "?", "!")
        text += (word[0].upper() + word[1:] if begins else word) + MARKS[int(draw() * len(MARKS))]
        text += " "
    return text[:-1]


def early(options: list[str], draw: Callable[[], float]) -> str:
    """One of the options, an early one more likely: some words are more frequent than others."""
    chance = draw()
    return options[int(chance * chance * len(options))]
