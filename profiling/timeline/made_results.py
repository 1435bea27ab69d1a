"""Recognition of a verb's own JSON, given in place of a capture. Called by chrome_events."""

import msgspec

from profiling.shared.json_records import JsonObject

# a member that only such a record has -> what the record is; the first one counts
KINDS = {
    "factor": "an experiment already made by ab",
    "baseline": "a comparison already made by compare",
    "stuck": "an answer already given by hang",
    "predictions": "a prediction already made by whatif or scale",
    "capture": "a report already made by report --json",
    "ranks": "a report already made by report --json",
    "devices": "a report already made by report --json",
    "files": "the manifest of a capture",
}
MOST_NAMED = 2  # captures in a message


def result_words(text: bytes) -> str | None:
    """Words on what the JSON is and which capture to give instead; None: no verb wrote it."""
    try:
        record = msgspec.json.decode(text, type=JsonObject)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    what = next((words for member, words in KINDS.items() if member in record), None)
    if what is None or "schema_version" not in record:
        return None
    named = captures_named(record)
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    which = f": {', '.join(named[:MOST_NAMED])}{more}" if named else ""
    return f"is {what}, not a capture; give the capture instead{which}"


def captures_named(record: JsonObject) -> list[str]:
    """File names of the captures that a record is about, each once."""
    parts = [record, *(record.get(name) for name in ("capture", "baseline", "candidate"))]
    for several in (record.get("ranks"), record.get("files")):
        parts += several if isinstance(several, list) else []
    names = [part.get("file") if isinstance(part, dict) else part for part in parts]
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))
