"""Names of containers: whose one is that has a wanted name already, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from console.common.errors import ServiceError
from console.common.text import clean, one_line
from console.runtime.docker.client import NameTaken, NotFound, ask, inspect
from console.runtime.docker.engine_state import Say, silent, status_of
from console.runtime.spec import (
    OWNER_LABEL,
    RUN_LABEL,
    SERVICE_LABEL,
    SPEC_LABEL,
    is_of_another,
    role_label,
)

if TYPE_CHECKING:
    import docker


def labels_of(found: Mapping[str, Any]) -> dict[str, str]:
    """The labels of an inspected container."""
    return dict((found.get("Config") or {}).get("Labels") or {})


def settle_name(
    client: docker.DockerClient, name: str, digest: str, site: str, say: Say = silent
) -> str | None:
    """Free a name, or the id of the older container that can be reused under it.

    Raises ServiceError when the name belongs to somebody else or to a running older one. Another
    site's or user's is never reused: its own rollback would end it.
    """
    found = inspect(client, name)
    if found is None:
        return None
    labels, container = labels_of(found), str(found["Id"])
    if role_label() not in labels:
        raise name_is_foreign(name)
    alive = status_of(found).alive
    if alive:
        refuse_of_another(name, labels, site)
    ours = not is_of_another(labels.get(OWNER_LABEL, ""), site)
    if ours and labels.get(SPEC_LABEL) == digest:
        run = clean(labels.get(RUN_LABEL, "an unknown run"))
        say(f"reusing {name}, made by {run} from the same specification; its labels name that run")
        return container
    if alive:
        raise _older_runs(name)
    move_aside(client, name, container, say)
    return None


def refuse_of_another(name: str, labels: Mapping[str, str], site: str) -> None:
    """Raise ServiceError for a running container whose labels name another site or user."""
    owner = labels.get(OWNER_LABEL, "")
    if not is_of_another(owner, site):
        return
    uid, _, named = owner.partition(":")
    whose = f"uid {one_line(uid, 20)} on the site {one_line(named, 60) or 'without a name'}"
    raise ServiceError(
        f"The container {one_line(name)} runs for {whose}",
        "it is neither taken over nor stopped here, and it would compete for memory and ports",
        "wait until it has ended, or ask that user for `omni-console rollback` on that site",
    )


def refuse_running_older(client: docker.DockerClient, service: str, digest: str, site: str) -> None:
    """Raise ServiceError when another specification of the same service is still running, or the
    same one for another site or user."""
    wanted = [f"{role_label()}=candidate", f"{SERVICE_LABEL}={service}"]
    rows = ask("Listing containers", lambda: client.api.containers(filters={"label": wanted}))
    for row in rows:
        labels = row.get("Labels") or {}
        name = one_line((row.get("Names") or [row["Id"][:12]])[0].lstrip("/"))
        refuse_of_another(name, labels, site)
        if labels.get(SPEC_LABEL) != digest:
            raise _older_runs(name)


def move_aside(client: docker.DockerClient, name: str, container: str, say: Say = silent) -> str:
    """Rename an older container of a console to `<name>.<6 of its id>-<n>`; the new name."""
    for number in range(1, 1000):
        aside = f"{name}.{container[:6]}-{number}"
        try:
            ask(f"Renaming {name}", lambda aside=aside: client.api.rename(container, aside))  # type: ignore[misc]
        except NameTaken:
            continue
        except NotFound:
            return ""
        say(f"the older {name} is now {aside}")
        return aside
    raise ServiceError(
        f"No free name for the older {name}", "", "`docker ps -a` lists them; remove some by hand"
    )


def name_is_foreign(name: str) -> ServiceError:
    """The error for a name that a container has which the console did not make."""
    return ServiceError(
        f"The name {one_line(name)} is taken by a container that is not ours",
        "it was not made by this console, so it is neither stopped nor renamed",
        f"`docker rename {name} {name}.old` frees the name; `docker inspect {name}` shows whose",
    )


def _older_runs(name: str) -> ServiceError:
    return ServiceError(
        f"{name} still runs with an older specification",
        "it would compete for memory and ports with the new one",
        f"docker stop {name}",
    )
