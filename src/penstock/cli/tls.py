"""`penstock tls`: certificates of a private authority."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failures import Failure
from penstock.cli.options import JsonOption
from penstock.cli.output import print_json
from penstock.clock import SystemClock
from penstock.security.certificates import (
    AUTHORITY_DAYS,
    CERTIFICATE_DAYS,
    CertificateRequest,
    KeyPair,
    describe,
    issue,
    make_authority,
)

CA_FILE, CA_KEY_FILE = "ca.pem", "ca.key"

DirectoryOption = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="The directory of the authority and its certificates.")
]
DaysOption = Annotated[int, typer.Option("--days", min=1, help="Days until the certificate expires.")]

app = typer.Typer(help="Make certificates for TLS.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="tls")


@app.command("init")
def init(directory: DirectoryOption = Path("tls"), days: DaysOption = AUTHORITY_DAYS) -> None:
    """Create an authority: ca.pem is for all clients and brokers, ca.key must be kept secret."""
    if (directory / CA_FILE).exists():
        raise Failure(f"{directory / CA_FILE} exists", "Name another directory with --dir.")
    write_authority(directory, days)
    typer.echo(f"created {directory / CA_FILE} and {directory / CA_KEY_FILE}")


@app.command("issue")
def issue_certificate(
    name: Annotated[str, typer.Argument(help="The name: of a broker, or the user of a client certificate.")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST", help="A name or address of a broker; repeatable."),
    ] = None,
    directory: DirectoryOption = Path("tls"),
    days: DaysOption = CERTIFICATE_DAYS,
) -> None:
    """Issue a certificate with its key in NAME.pem: with --host for a broker, otherwise for a client."""
    file = issue_into(directory, CertificateRequest(name, tuple(host or ()), days))
    typer.echo(f"created {file}")


@app.command("show")
def show(
    file: Annotated[Path, typer.Argument(help="A PEM file with a certificate.")], json: JsonOption = False
) -> None:
    """Show a certificate: subject, issuer, hosts and validity."""
    try:
        fields = describe(file.read_bytes())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it has no PEM certificate"
        raise Failure(f"cannot read {file}: {reason}", "Name a PEM file.") from None
    if json:
        print_json(fields)
        return
    for name, value in fields.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        typer.echo(f"{name.replace('_', ' ') + ':':14}{shown}")


def write_authority(directory: Path, days: int = AUTHORITY_DAYS) -> KeyPair:
    made = make_authority("penstock authority", SystemClock().now_ms(), days)
    directory.mkdir(parents=True, exist_ok=True)
    write_secret(directory / CA_KEY_FILE, made.key)
    (directory / CA_FILE).write_bytes(made.certificate)
    return made


def issue_into(directory: Path, request: CertificateRequest) -> Path:
    """Issue a certificate of the authority in a directory, and return the file."""
    if not request.name or "/" in request.name or request.name.startswith("."):
        raise Failure(f"{request.name!r} cannot be the name of a file", "Give another name.")
    try:
        authority = KeyPair((directory / CA_FILE).read_bytes(), (directory / CA_KEY_FILE).read_bytes())
    except OSError as error:
        raise Failure(
            f"cannot read {error.filename}: {error.strerror}",
            f"`penstock tls init --dir {directory}` makes an authority.",
        ) from None
    made = issue(authority, request, SystemClock().now_ms())
    file = directory / f"{request.name}.pem"
    write_secret(file, made.certificate + made.key)
    return file


def write_secret(file: Path, content: bytes) -> None:
    """Write a file that only this user can read, in one step."""
    new = file.with_name(f".{file.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(content)
    new.replace(file)
