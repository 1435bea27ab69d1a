"""The embedded text: an invented play, for machines that can neither download nor bring a text.

`data.prepare` calls `stand_in_text()`. It has the form, the length and the 65 characters of tiny
Shakespeare, so that shapes and step times are the same; its losses compare with nothing else.
"""

import random
import re

SEED = 1337
LENGTH = 1_115_394  # characters, as many as tiny Shakespeare has

# Header over a speech | how the others address that speaker.
CAST = """
KING ODRIC|my king
QUEEN YSOLDE|good queen
DUKE OF QUENBY|your grace
Lady Fennimore|sweet lady
Prince Valdo|young prince
Abbess Maude|holy mother
First Ferryman|ferryman
Second Ferryman|good ferryman
Third Ferryman|old ferryman
First Juror|honest juror
Second Juror|worthy juror
Harbourmaster|harbourmaster
Nightwatch|watchman
Innkeeper|good host
Miller|miller
Both Millers|you millers
Apothecary|doctor
Clerk|master clerk
Boy|boy
Messenger|fellow
All|my friends
BRANNOCH|Brannoch
CASSIMER|Cassimer
DELPHINE|Delphine
EUGRAM|Eugram
GALT|Galt
HESPER|Hesper
IDONEA|Idonea
JESSAMY|Jessamy
KETTERICK|Ketterick
LUDOVAR|Ludovar
MIRABEK|Mirabek
NESSA|Nessa
PELLWYN|Pellwyn
ROSAMUND|Rosamund
SIBBALD|Sibbald
TAMSIN|Tamsin
URBEN|Urben
WYNSTAN|Wynstan
XANTHE|Xanthe
ZEBULO|Zebulo
"""

PLACES = """
Quenby, Zelmark, Port Averel, the Vale of Junip, Upper Kirrin, Oxmere, Low Fenwater, the Red
Stair, Harrowgate, Saint Ebba's Bridge, Yarrowdown, the Weir, Umberleigh, Castle Dunmorrow,
Ivelstone, Northing
"""

# Each slot, a word of two or more capitals, is replaced by one of its alternatives; the early ones
# come up more often. An ending written after a slot (VERBs, VERBed) is part of the text.
GRAMMAR = {
    "SENTENCE": """
        CLAUSE. | OPENER, CLAUSE. | CLAUSE, and CLAUSE. | QUESTION? | YOU, CLAUSE. |
        CLAUSE; CLAUSE. | If CLAUSE, then CLAUSE. | CRY! | CLAUSE, YOU. | ORDER, YOU. |
        ORDER, and CLAUSE. | CLAUSE: CLAUSE. | When CLAUSE, CLAUSE. | QUESTION, YOU? |
        CRY! CLAUSE. | ORDER; CLAUSE, or CLAUSE. | SAYING. | Though CLAUSE, yet CLAUSE. |
        OPENER, ORDER! | Not THING, nor THING, but THING. | CLAUSE--nay, CLAUSE. |
        Before CLAUSE, ORDER. | 'Tis MANNER said that CLAUSE. | Why, CLAUSE; and shall CLAUSE? |
        What, shall CLAUSE? | LEDGERLINE.
    """,
    "CLAUSE": """
        ONE VERBs THING | I will VERB THING | ONE has VERBed THING | you VERB THING |
        I VERB THING WHERE | THING is ADJ | we shall VERB THING | ONE MANNER VERBs THING |
        there is STUFF in THING | you have VERBed THING WHERE | THING must GO WHERE |
        I have no STUFF to VERB THING | ONE would not VERB THING for all the STUFF WHERE |
        they GO WHERE | THING is but a NOUN of STUFF | I never VERBed so ADJ a NOUN |
        ONE, who VERBed THING, must GO | my STUFF is ADJ as a NOUN |
        you are more ADJ than THING | ONE and I did VERB THING |
        half of WHEREPLACE VERBs THING | STRANGER is MANNER VERBed by THING |
        ONE knows that CLAUSE | I dreamt that CLAUSE | it was THING that VERBed ONE |
        we GO as NOUNs GO | let ONE VERB THING | NUMBER NOUNs VERB THING
    """,
    "QUESTION": """
        Who VERBed THING | Where is THING | What NOUN is this | Will you VERB THING |
        Did ONE VERB THING | How shall we VERB THING WHERE | Is THING so ADJ |
        Why do you VERB THING | Have you VERBed THING | What says ONE of THING |
        Must STUFF ever VERB STUFF | Which NOUN did STRANGER VERB | Can a NOUN VERB a NOUN |
        Who goes WHERE | Are there NOUNs WHERE
    """,
    "CRY": """
        O ADJ NOUN | Alas, THING | Fie upon THING | To WHEREPLACE | A NOUN, a NOUN |
        No more of THING | Hark, THING | Long live STRANGER | Out, ADJ NOUN | Peace, YOU |
        What a ADJ NOUN is ONE | Jest not with THING | Quick, THING
    """,
    "ORDER": """
        VERB THING | go and VERB THING | let us VERB THING WHERE | speak of THING |
        bring me THING | give STRANGER THING | do not VERB THING | VERB not THING MANNER |
        tell ONE that CLAUSE | keep THING from THING | GO WHERE | swear that you VERBed THING |
        look WHERE
    """,
    "SAYING": """
        A ADJ NOUN VERBs no NOUNs | STUFF is the NOUN of STUFF |
        Where STUFF will GO, STUFF VERBs | One NOUN VERBs another |
        NOUNs are not VERBed with STUFF | First STUFF, then STUFF, and last a NOUN |
        Who VERBs a NOUN shall VERB a NOUN
    """,
    "LEDGERLINE": """
        Item: NUMBER NOUNs, at $3 | Article 3: no NOUN may VERB a NOUN |
        NOUNs & NOUNs, $33 in all | Sign here: STRANGER & sons
    """,
    "ONE": """
        THING | STRANGER | THING | the NOUN | he | she | STRANGER's NOUN | this ADJ NOUN |
        the world | my father | your sister | no man | every NOUN WHERE | the MATTER
    """,
    "THING": """
        the NOUN | my NOUN | the ADJ NOUN | your NOUN | the MATTER | a ADJ NOUN | STRANGER |
        my ADJ NOUN | his NOUN | her STUFF | STRANGER's NOUN | this NOUN | our STUFF |
        that ADJ NOUN | the NOUN of STUFF | NUMBER NOUNs | their NOUNs |
        the NOUNs of WHEREPLACE | STUFF | ADJ STUFF | your ADJ MATTER | the NOUN's NOUN |
        a NOUN and a NOUN | all these ADJ NOUNs
    """,
    "WHERE": """
        in WHEREPLACE | by the NOUN | beyond the NOUN | at WHEREPLACE | to the NOUN |
        before the NOUN VERBs | under the ADJ NOUN | with STUFF | upon the NOUN | like a NOUN |
        till morning | these NUMBER years | from WHEREPLACE to PLACE | without STUFF | here |
        against my NOUN | to-night
    """,
    "WHEREPLACE": "HERE | HERE | PLACE",
    "GO": """
        wait | wander | return | tremble | kneel | vanquish all and rest | sail | turn | burn |
        linger
    """,
    "MANNER": """
        never | often | gently | boldly | seldom | still | quietly | always | falsely | gladly |
        hardly | justly | twice | vainly | oddly | exactly
    """,
    "OPENER": """
        Nay | Good sir | In truth | Come | Well | I pray you | By my faith | Sirs | Marvel not |
        Soft | Believe me | Now then | As I live | Peace | Enough | Zounds | For shame | Quietly
    """,
    "NUMBER": "two | three | a dozen | seven | ten | forty | a hundred | six | twenty | nine score",
    "ADJ": """
        poor | gentle | cold | true | false | proud | bitter | weary | crooked | silver |
        brave | hollow | sweet | black | noble | foolish | gracious | wicked | salt | broken |
        merry | cruel | humble | bright | stubborn | quiet | faithful | strange | heavy |
        jealous | rusty | young | worthy | barren | dusty | patient | narrow | sudden | golden |
        lame | costly | windy | secret | mortal | fatal | pale | zealous | rotten | vexed |
        luckless | tawny | peevish | thrifty | borrowed | twice-sold | storm-beaten |
        moon-white | well-kept | lawful | juggling | perplexed | hazy
    """,
    "STUFF": """
        love | honour | time | silver | grief | justice | bread | fortune | silence | war |
        salt | mercy | sorrow | truth | wine | patience | winter | faith | music | sleep |
        envy | gold | pity | treason | wisdom | smoke | duty | anger | rain | friendship |
        iron | beauty | memory | hunger | fire | thunder | hope | malice | weather | courage |
        luxury | quicksilver | zeal | jest | virtue | exile | gossip
    """,
    "NOUN": """
        river | harbour | lantern | king | hammer | door | ship | heart | brother | ledger |
        candle | crown | daughter | horse | promise | ferry | bell | garden | sword | letter |
        tower | widow | winter | mirror | mill | judge | miller | raven | bridge-keeper |
        tavern | soldier | market | star | field | merchant | son | thief | net | rope |
        window | tailor | feather | fool | stone | table | cradle | king's seal | kettle |
        grave | ring | barrel | pilgrim | mountain | harp | bargain | garland | needle |
        cellar | question | quarrel | debt | fever | prison | cousin | gallows-tree | throne |
        drum | wheel | wound | goat | hawk | beggar | saddle | veil | lion | dagger |
        ditch-digger | hound | meadow | sailor | vow | shepherd | banner | riddle | tongue |
        quill | jailer | squire | jewel | zither | lynx-pelt | vizard | queen | wolf-trap |
        tide-table | rumour | hinge | pear | hedge | cloak | whisper | jug | loaf-cart
    """,
    "VERB": """
        follow | guard | mend | fear | remember | honour | answer | borrow | trust | plunder |
        doubt | turn | reckon | reward | burn | pardon | gather | weigh | summon | scorn |
        shelter | count | claim | flatter | number | question | ransom | anchor | wrong | open |
        scatter | water | betray | visit | hinder | mark | comfort | season | tempt | unlock |
        ask | crown | conquer | kill | disdain | quell | murder | ponder | avow | expect |
        question | mistrust | outlast | entreat | devour | reward | call | join
    """,
}

# A coined name is one syllable of each line.
COINED = (
    "B C D F G H J K L M N P Q R S T V W X Y Z Br Cl Dr Fl Gr Pr St Th Tr",
    "al an ar el en er il in ir ol on or ul un ur ae ia",
    "a ard by den dric fax gar is lyn mund o ric rin sa tan thus vane ver wick zo",
)

_SLOT = re.compile("([A-Z]{2,})")
# Each alternative, split: literal, slot, literal, slot, ..., literal.
_RULES = {
    slot: [_SLOT.split(alternative.strip()) for alternative in " ".join(text.split()).split(" | ")]
    for slot, text in GRAMMAR.items()
}


class _Playwright:
    """Writes scenes; uses `Random.random()` alone, whose sequence Python promises not to change."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random
        self.places = [place.strip() for place in PLACES.split(",")]
        self.cast = [line.split("|") for line in CAST.split("\n") if line]

    def pick(self, options: list) -> object:
        return options[int(self.random() * len(options))]

    def pick_early(self, options: list) -> object:
        """Prefers early options, as words are unequally frequent in real texts."""
        chance = self.random()
        return options[int(chance * chance * len(options))]

    def write(self, slot: str, names: dict[str, str]) -> str:
        if slot in names:
            return names[slot]
        parts = self.pick_early(_RULES[slot])
        return "".join(self.write(part, names) if i % 2 else part for i, part in enumerate(parts))

    def speech(self, names: dict[str, str]) -> str:
        """One to six sentences, broken into lines of verse (capitals at each start) or of prose."""
        sentences = []
        for _ in range(1 + int(self.random() * self.random() * 6)):
            sentence = self.write("SENTENCE", names)
            sentences.append(sentence[0].upper() + sentence[1:])
        is_verse = self.random() < 0.7
        lines, line = [], ""
        width = 0.0
        for word in " ".join(sentences).split(" "):
            if line and len(line) + len(word) >= width:
                lines.append(line)
                line = word[0].upper() + word[1:] if is_verse else word
            else:
                line = f"{line} {word}" if line else word
                width = width or 36 + self.random() * 14
        return "\n".join([*lines, line])

    def scene(self) -> str:
        """Speeches of a few speakers about one place, one matter and one stranger."""
        first = int(self.random() * (len(self.cast) - 4))
        cast = self.cast[first : first + 3 + int(self.random() * 3)]
        names = {
            "HERE": self.pick(self.places),
            "STRANGER": "".join(self.pick(part.split()) for part in COINED),
            "MATTER": self.write("NOUN", {}),
        }
        speeches = []
        for _ in range(8 + int(self.random() * 24)):
            speaker = self.pick(cast)
            listener = self.pick([other for other in cast if other is not speaker])
            names["YOU"], names["PLACE"] = listener[1], self.pick(self.places)
            speeches.append(f"{speaker[0]}:\n{self.speech(names)}\n\n")
        return "".join(speeches)


def stand_in_text(seed: int = SEED, length: int = LENGTH) -> str:
    """A play of exactly `length` characters, the same on every platform; ends with a newline."""
    playwright = _Playwright(seed)
    scenes, written = [], 0
    while written < length:
        scenes.append(playwright.scene())
        written += len(scenes[-1])
    return "".join(scenes)[: length - 1] + "\n"
