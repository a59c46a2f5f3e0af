"""The help text, made from the table of flags. Pure."""

import textwrap

from services.cli.flags import FLAGS, SECTIONS, Flag

COMMANDS = {
    "serve": "everything on this machine: broker, api process and engine (also: llamatape-server)",
    "api": "gateway, streams and models in one process",
    "gateway": "the HTTP API alone",
    "streams": "the read side alone",
    "models": "the control plane alone",
    "engine": "one engine alone",
    "migrate": "bring the database up to date and end",
    "keys": "create, list and revoke API keys in the database",
    "audit": "list, show, replay, export, verify and erase what was archived",
    "version": "print the version",
}
_WIDTH, _INDENT = 100, 34


def text() -> str:
    """The whole of `--help`."""
    lines = ["usage: llamatape [command] [flag …]", "", "Commands (default: serve)"]
    lines += [f"  {name:10} {what}" for name, what in COMMANDS.items()]
    for service, title in SECTIONS.items():
        lines += ["", title]
        lines += [line for flag in FLAGS if flag.services[0] == service for line in _entry(flag)]
    return "\n".join(
        [*lines, "", "  -h, --help    print this", "  --version     print the version"]
    )


def _entry(flag: Flag) -> list[str]:
    names = ", ".join([*flag.names, *flag.negatives])
    head = f"  {names} {flag.metavar}".rstrip()
    body = textwrap.wrap(f"{flag.help}{_default(flag)} [{flag.env}]", _WIDTH - _INDENT)
    if len(head) >= _INDENT - 1:
        return [head, *(" " * _INDENT + line for line in body)]
    return [head.ljust(_INDENT) + body[0], *(" " * _INDENT + line for line in body[1:])]


def _default(flag: Flag) -> str:
    if flag.default in (None, "", ()) or "(default" in flag.help:
        return ""
    if isinstance(flag.default, bool):
        return f" (default: {'on' if flag.default else 'off'})"
    shown = ",".join(flag.default) if isinstance(flag.default, tuple) else flag.default
    return f" (default: {shown})"
