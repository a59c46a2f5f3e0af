"""`format`s of strings that are followed; others are remarks, as JSON schema has it."""

_HEX = "[0-9a-fA-F]"
_DAYS_31 = '("0" [13578] | "1" [02]) "-" ("0" [1-9] | [12] [0-9] | "3" [01])'
_DAYS_30 = '("0" [469] | "11") "-" ("0" [1-9] | [12] [0-9] | "30")'
_DAYS_28 = '"02-" ("0" [1-9] | "1" [0-9] | "2" [0-8])'
_DATE = f'([1-9] [0-9]{{3}} "-" ({_DAYS_31} | {_DAYS_30} | {_DAYS_28}))'
_HOUR = '([01] [0-9] | "2" [0-3])'
_CLOCK = f'{_HOUR} ":" [0-5] [0-9]'
_TIME = f'({_CLOCK} ":" [0-5] [0-9] ("." [0-9]{{3}})? ("Z" | [-+] {_CLOCK}))'
_UUID = f'({_HEX}{{8}} "-" ({_HEX}{{4}} "-"){{3}} {_HEX}{{12}})'
_FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f'({_DATE} "T" {_TIME})',
    "uuid": _UUID,
    **{f"uuid{n}": _UUID for n in range(1, 6)},
}


def format_body(name: object) -> str | None:
    """The inside of a string of this format, as an element; None for a format that is not followed."""
    return _FORMATS.get(name) if isinstance(name, str) else None
