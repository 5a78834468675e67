"""Mailboxes over a WebSocket: the client receives a user's messages and sends messages of this user."""

from __future__ import annotations

from typing import Any

from starlette.types import Send

from penstock.errors import PenstockError
from penstock.gateway.authorization import checks_of, require_all
from penstock.gateway.http.problems import problem_of
from penstock.gateway.push.handshake import Handshake
from penstock.gateway.push.json_message import render_mail
from penstock.gateway.push.socket_endpoints import MAIL_NEEDS, MAILBOX_CLIENT_MESSAGE
from penstock.gateway.push.socket_messages import send_json
from penstock.gateway.push.sources import MailboxSource
from penstock.gateway.push.websocket import SocketStream
from penstock.gateway.records import Limits
from penstock.net.acting import own_requests


async def open_mailbox(handshake: Handshake) -> SocketStream:
    """Open a stream of a mailbox. One message is read first, so that errors are reported before the stream begins."""
    mailbox, parameters = handshake.context.mailbox, handshake.parameters
    user_id, last = parameters["user_id"], parameters.get("last_message_id")
    with own_requests():
        await mailbox.receive(user_id, last, Limits(1, 1), 0)

    async def on_message(asked: dict[str, Any], send: Send) -> None:
        if "send" in asked:
            mail = {"from_user": user_id, **asked["send"]}
            await send_json(send, {"sent": {"id": mail.get("id"), **await _send_mail(handshake, mail)}})

    source = MailboxSource(mailbox, user_id, last, render_mail)
    return SocketStream(source, MAILBOX_CLIENT_MESSAGE, on_message, handshake.request_id)


async def _send_mail(handshake: Handshake, mail: dict[str, Any]) -> dict[str, Any]:
    context = handshake.context
    try:
        await context.learn(handshake.client, checks_of(MAIL_NEEDS, {}, mail))
        require_all(context.authorize, handshake.client, MAIL_NEEDS, {}, mail)
        with own_requests():
            sent = await context.mailbox.send(mail["from_user"], mail["to_user"], mail["message"], None, ())
    except (PenstockError, OSError) as error:
        return {"status": "error", "error": _show_problem(error, handshake.request_id)}
    return {"status": "success", "message_id": sent}


def _show_problem(error: Exception, request_id: str) -> dict[str, Any]:
    problem = problem_of(error)
    assert problem is not None, error
    return problem.document(request_id)
