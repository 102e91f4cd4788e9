"""Send one message by SMTP, to Slack or to a webhook. Errors never contain an address of a webhook or a password."""

import base64
import json
import smtplib
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from http.client import HTTPException
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

LIMIT_SECONDS = 20
_MOST_CHARACTERS = 20_000
# Port of SMTP with TLS from the start.
_TLS_PORT = 465
# Statuses of HTTP that are worth another try, besides those of the server's own errors.
_LATER = (408, 425, 429)


class NotSent(Exception):
    """A message was not sent. `final`: another try cannot succeed. `server`: the server fails, not this message."""

    def __init__(self, reason: str, *, final: bool = False, server: bool = False) -> None:
        super().__init__(reason)
        self.final = final
        self.server = server


@dataclass(frozen=True)
class Message:
    """A message to one receiver. `key` is the same at each try."""

    key: str
    to: str
    title: str
    text: str


def send_mail(server: Mapping[str, Any], password: str, cluster: str, message: Message) -> None:
    """Send a mail. Raise NotSent."""
    try:
        mail = _mail(server, cluster, message)
        with _connected(server, password) as connection:
            connection.send_message(mail, server["sender"], [message.to])
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        raise NotSent(f"the mail server refuses the recipient ({codes})", final=min(codes) >= 500) from None
    except (smtplib.SMTPAuthenticationError, smtplib.SMTPSenderRefused) as error:
        raise NotSent(f"the mail server refuses the log-in or sender ({error.smtp_code})", server=True) from None
    except smtplib.SMTPDataError as error:
        raise NotSent(f"the mail server refuses the mail ({error.smtp_code})", final=error.smtp_code >= 500) from None
    except (smtplib.SMTPException, OSError) as error:
        raise NotSent(f"the mail server does not answer as expected ({type(error).__name__})", server=True) from None


def _connected(server: Mapping[str, Any], password: str) -> smtplib.SMTP:
    host, _, port = server["smarthost"].rpartition(":")
    context = ssl.create_default_context()
    connection: smtplib.SMTP
    if int(port) == _TLS_PORT:
        connection = smtplib.SMTP_SSL(host, int(port), timeout=LIMIT_SECONDS, context=context)
    else:
        connection = smtplib.SMTP(host, int(port), timeout=LIMIT_SECONDS)
    try:
        connection.ehlo_or_helo_if_needed()
        if int(port) != _TLS_PORT and server["encrypted"]:
            # Raises an error if the server lacks it.
            connection.starttls(context=context)
            connection.ehlo_or_helo_if_needed()
        if server["user"] and password:
            connection.login(server["user"], password)
    except BaseException:
        connection.close()
        raise
    return connection


def _mail(server: Mapping[str, Any], cluster: str, message: Message) -> EmailMessage:
    mail = EmailMessage()
    # A header with a line break raises an error.
    mail["Subject"] = f"[{cluster}] {message.title}"
    mail["From"] = server["sender"]
    mail["To"] = message.to
    mail["Date"] = formatdate()
    mail["Message-ID"] = f"<{message.key}@{server['sender'].partition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(f"{message.text[:_MOST_CHARACTERS]}\n")
    return mail


def post(kind: str, url: str, cluster: str, message: Message) -> None:
    """Post to Slack or a webhook. Raise NotSent."""
    text = message.text[:_MOST_CHARACTERS]
    if kind == "slack":
        # Slack reads <, > and & as links and mentions such as <!channel>, also inside a block of code.
        escaped = f"[{cluster}] {message.title}\n\n{text}"
        for letter, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
            escaped = escaped.replace(letter, entity)
        body: dict[str, Any] = {"text": escaped, "mrkdwn": False}
    else:
        body = {"cluster": cluster, "id": message.key, "title": message.title, "text": text}
    headers = {"Content-Type": "application/json", "User-Agent": "tailrack"}
    try:
        url, login = _without_login(url)
        if login:
            headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310 the config's check
        with _OPENER.open(request, timeout=LIMIT_SECONDS):
            pass
    except urllib.error.HTTPError as error:
        final = 400 <= error.code < 500 and error.code not in _LATER
        raise NotSent(f"it answers with HTTP status {error.code}", final=final, server=not final) from None
    except (OSError, ValueError, HTTPException) as error:
        raise NotSent(f"it does not answer ({type(error).__name__})", server=True) from None


def _without_login(url: str) -> tuple[str, str]:
    """Return an address without `name:password@`, and the log-in."""
    parts = urlsplit(url)
    login, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), unquote(login)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirection could lead to another machine."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


# Neither a proxy of the environment nor a redirection.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)
