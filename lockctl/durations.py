"""Durations as people write them: ``30s``, ``1h30m``, ``500ms``, or a bare number of seconds."""

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
FOREVER = float("inf")
LONGEST = 3650 * 86400.0  # ten years: beyond it a number is a mistake, and float seconds stay exact


def parse_duration(text: str) -> float:
    """Seconds that *text* means; raises ``ValueError`` with one line for people."""
    total = 0.0
    rest = text.strip()
    if not rest:
        raise ValueError(_no(text))
    if rest.isascii() and rest.replace(".", "", 1).isdigit():
        total = float(rest)
        rest = ""
    while rest:
        number = 0
        while number < len(rest) and (rest[number].isdigit() or rest[number] == "."):
            number += 1
        unit = number
        while unit < len(rest) and rest[unit].isalpha():
            unit += 1
        digits, name = rest[:number], rest[number:unit]
        if not digits.isascii() or not digits.replace(".", "", 1).isdigit() or name not in UNITS:
            raise ValueError(_no(text))
        total += float(digits) * UNITS[name]
        rest = rest[unit:]
    if total > LONGEST:
        raise ValueError(f"{text!r} is longer than ten years")
    return total


def parse_wait(text: str) -> float:
    """Like :func:`parse_duration`, and ``forever`` is endless."""
    return FOREVER if text.strip() == "forever" else parse_duration(text)


def format_duration(seconds: float) -> str:
    """The shortest exact way to write a duration, which :func:`parse_duration` reads back."""
    if seconds == FOREVER:
        return "forever"
    left = round(seconds * 1000)
    if left == 0:
        return "0"
    parts: list[str] = []
    for name, size in (("d", 86400000), ("h", 3600000), ("m", 60000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts)


def format_age(seconds: float) -> str:
    """A span for people, at most two units: ``12m3s``, ``4h``."""
    whole = max(0, int(seconds))
    parts: list[str] = []
    for name, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, whole = divmod(whole, size)
        if count or (name == "s" and not parts):
            parts.append(f"{count}{name}")
    return "".join(parts[:2])


def _no(text: str) -> str:
    return f"{text!r} is not a duration: use for example 30s, 5m, 1h30m, 500ms or a number of seconds"
