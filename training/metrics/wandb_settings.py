"""Says what W&B is to this machine and its user: mode, server, API key, folder.

As wandb itself finds them, but without importing it and without a question at the terminal.
"""

import configparser
import contextlib
import netrc
import os
import socket
import urllib.request
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from configs.training import WandbConfig

PROBE_TIMEOUT_S = 3.0  # of one TCP connection to the server
TOKEN_FILE = "WANDB_IDENTITY_TOKEN_FILE"  # environment variable; replaces a key

Mode = Literal["online", "offline", "disabled"]
MODES: dict[str, Mode] = {"online": "online", "offline": "offline", "disabled": "disabled"}
MODES |= {"run": "online", "dryrun": "offline"}  # W&B's older names, valid in WANDB_MODE alone


def check_wandb(config: WandbConfig) -> Mode:
    """The mode that `config` means on this machine: online, offline or disabled.

    auto is what WANDB_DISABLED or WANDB_MODE says, else online with an API key. Without a key it is
    never online, so that wandb has no reason to ask for one at the terminal. The trainer calls this
    early. Raises ValueError for mode=online without a key and for an unknown WANDB_MODE.
    """
    word = config.mode
    if word == "auto":
        switched_off = os.environ.get("WANDB_DISABLED", "").lower() in ("true", "1")
        word = "disabled" if switched_off else os.environ.get("WANDB_MODE") or "online"
    if word not in MODES:
        raise ValueError(f"WANDB_MODE={word} is unknown; set online, offline or disabled")
    if MODES[word] != "online" or os.environ.get(TOKEN_FILE) or api_key():
        return MODES[word]
    if config.mode == "auto":
        return "offline"
    raise ValueError(
        f"wandb.mode=online, but there is no API key for {base_url()}; "
        "set WANDB_API_KEY, run `wandb login`, or choose wandb.mode=offline"
    )


def online_key() -> str | None:
    """The API key for a server that answers, or None if a token takes its place.

    Used by profiling.verbs.log. Raises ValueError without a key, and if no server answers.
    """
    check_wandb(WandbConfig(mode="online"))
    if reason := why_unreachable(base_url()):
        raise ValueError(f"W&B does not answer; try again later: {reason}")
    return api_key()


def is_trial() -> bool:
    """Whether W&B's agent runs this, for a sweep."""
    return bool(os.environ.get("WANDB_SWEEP_ID"))


def wandb_folder(out_dir: Path) -> Path:
    """Folder for W&B's own folder `wandb`: WANDB_DIR, else the run's folder.

    The agent of a sweep sets WANDB_DIR to its own working directory; it is ignored there, since the
    records of all trials would lie together, and none beside its run.
    """
    named = os.environ.get("WANDB_DIR")
    if not named or (is_trial() and os.path.realpath(named) == os.getcwd()):
        return out_dir
    return Path(os.path.realpath(Path(named).expanduser()))


def why_unreachable(url: str) -> str | None:
    """Reason why no TCP connection to the server can be made, or None if one can.

    Behind a proxy it is None, too, as that cannot be known.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host):
        return None
    port = parts.port or {"http": 80}.get(parts.scheme, 443)
    try:
        socket.create_connection((host, port), timeout=PROBE_TIMEOUT_S).close()
    except OSError as error:
        return f"{url}: {error}"
    return None


def _system_settings() -> dict[str, str]:
    """Settings that `wandb login --host` and the like have stored for this user."""
    folder = Path(os.environ.get("WANDB_CONFIG_DIR") or "~/.config/wandb").expanduser()
    parser = configparser.ConfigParser(default_section="default", interpolation=None)
    with contextlib.suppress(OSError, configparser.Error, UnicodeDecodeError):
        parser.read(folder / "settings")
    return dict(parser.defaults())


def base_url() -> str:
    url = os.environ.get("WANDB_BASE_URL") or _system_settings().get("base_url")
    return (url or "https://api.wandb.ai").rstrip("/")


def api_key() -> str | None:
    """API key from where wandb looks for one: environment, netrc file, settings file; or None."""
    if os.environ.get(TOKEN_FILE):
        return None
    if key := os.environ.get("WANDB_API_KEY"):
        return key
    candidates = [os.environ.get("NETRC") or "~/.netrc", "~/_netrc"]
    for path in (Path(candidate).expanduser() for candidate in candidates):
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            if entry := netrc.netrc(path).authenticators(urlsplit(base_url()).netloc):
                return entry[2] or None
    return _system_settings().get("api_key")
