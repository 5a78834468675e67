"""TLS as a `Socket` around another `Socket`, so that the connection above it sees plaintext.

The TLS object works on memory buffers. It is created when the first bytes of the peer arrive, so a silent
connection costs little. Counts are plaintext bytes. Ciphertext that the inner socket did not accept, at most
one piece, is kept here. An object is used in the thread of its loop only; a process may have several loops,
each in its own thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress

from typing_extensions import Buffer

from penstock.net.handshake_turns import HandshakeTurns
from penstock.net.network import Socket
from penstock.records.log_slice import SliceFile

PIECE_BYTES = 128 * 1024
"""Bytes of plaintext that are encrypted at once: the ciphertext stays in the processor's cache until it is sent."""
_RECORD_BYTES = 17 * 1024
"""Upper bound of the size of a TLS record in bytes."""
_MAX_SILENT_BYTES = 64 * 1024
"""Limit of ciphertext without plaintext from a peer: four records. More are KeyUpdates or empty records."""
_MAX_HANDSHAKE_BYTES = 128 * 1024
"""Maximum number of bytes that the peer may send in a handshake, including its certificate chain."""
_MAX_OWED_BYTES = 256 * 1024
"""Limit of ciphertext that waits as answers to the peer (KeyUpdate, alerts) while the peer does not read."""
_BUFFER_BYTES = 256 * 1024

# Ciphertext is decrypted as soon as it is received, so connections share a few buffers. The list is used by
# several threads: between `pop` and `append` a buffer belongs to one connection.
_free_buffers: list[memoryview] = []


class TlsSocket:
    """`Socket` that encrypts. `make` creates the TLS object from its incoming and outgoing buffer. `on_end`
    is called once: with None when the handshake is complete, or with the reason why it failed.
    """

    __slots__ = (
        "_closed",
        "_end",
        "_failure",
        "_handshake_bytes",
        "_has_more",
        "_incoming",
        "_is_ended",
        "_make",
        "_outgoing",
        "_reader",
        "_silent_bytes",
        "_socket",
        "_timer",
        "_tls",
        "_turns",
        "_unsent",
        "_writer",
        "is_established",
        "peer",
    )

    def __init__(
        self,
        socket: Socket,
        make: Callable[[ssl.MemoryBIO, ssl.MemoryBIO], ssl.SSLObject],
        turns: HandshakeTurns,
        timeout_seconds: float,
        on_end: Callable[[TlsSocket, str | None], None] = lambda _, __: None,
    ) -> None:
        self.peer = socket.peer
        self.is_established = False
        self._socket = socket
        self._make = make
        self._turns = turns
        self._end: Callable[[TlsSocket, str | None], None] | None = on_end
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._unsent = memoryview(b"")
        self._reader: Callable[[], None] | None = None
        self._writer: Callable[[], None] | None = None
        self._has_more = False
        """True if decrypted bytes, or the end of the stream, may be left to read although the inner socket is
        empty.
        """
        self._is_ended = False
        """True if the peer has sent close_notify. It sends nothing more, and may wait for this side to close."""
        self._silent_bytes = 0
        self._handshake_bytes = 0
        self._failure: str | None = None
        self._closed = False
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(
            timeout_seconds, self._on_timeout
        )
        socket.on_readable(self._on_raw_readable)

    @property
    def tls(self) -> ssl.SSLObject | None:
        """TLS object, which has the certificate of the peer; None before the first bytes arrived."""
        return self._tls

    @property
    def binding(self) -> bytes:
        """Fingerprint of the peer's certificate (on the client side, the broker's); empty if there is none."""
        certificate = None if self._tls is None else self._tls.getpeercert(binary_form=True)
        return b"" if certificate is None else hashlib.sha256(certificate).digest()

    def begin(self) -> None:
        """Send the first bytes of the handshake, as a client does."""
        self._step()

    def refuse(self, reason: str) -> None:
        """End the connection after its handshake. The next read raises an error with the reason."""
        self._failure = reason

    # --- Socket

    def recv_into(self, buffer: memoryview) -> int:
        if self._failure is not None:
            raise ConnectionResetError(self._failure)
        if self._tls is None or not self.is_established:
            raise BlockingIOError
        self._has_more = False
        try:
            filled = self._decrypt(self._tls, buffer)
            if filled < len(buffer):
                filled += self._receive(self._tls, buffer[filled:], filled > 0)
        except ssl.SSLZeroReturnError:
            return 0
        except ssl.SSLError as error:
            raise ConnectionResetError(f"TLS: {_reason(error)}") from None
        self._has_more = filled == len(buffer) or self._is_ended
        return filled

    def sendmsg(self, buffers: Sequence[Buffer], more: bool) -> int:
        tls = self._ready_to_encrypt()
        taken = 0
        for buffer in buffers:
            content = memoryview(buffer)
            if not content:
                continue
            piece = content[: PIECE_BYTES - taken]
            tls.write(piece)
            taken += len(piece)
            if taken == PIECE_BYTES:
                more = False
                break
        self._flush(more)
        return taken

    def sendfile(self, file: SliceFile, position: int, length: int) -> int:
        tls = self._ready_to_encrypt()
        content = file.pread(position, min(length, PIECE_BYTES))
        if content:
            tls.write(content)
        self._flush()
        return len(content)

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        self._reader = callback
        if callback is not None and (self._has_more or self._failure is not None):
            asyncio.get_running_loop().call_soon(self._deliver)
        if self.is_established or self._failure is not None:
            self._socket.on_readable(self._on_raw_readable if callback is not None else None)

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self._writer = callback
        self._watch_writing()

    def close(self) -> None:
        if self._closed:
            return
        if self.is_established and self._tls is not None and self._failure is None and not self._unsent:
            with suppress(ssl.SSLError, OSError):
                self._tls.unwrap()  # Sends close_notify. The peer's close_notify is not awaited.
            self._send_last()
        self._closed = True
        self._stop_timer()
        self._reader = self._writer = self._end = None
        self._socket.close()

    # --- handshake

    def _on_raw_readable(self) -> None:
        if self.is_established or self._failure is not None:
            self._deliver()
            return
        try:
            count = self._receive_ciphertext(_RECORD_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(str(error))
            return
        if count == 0:
            self._fail("the peer closed the connection during the handshake")
            return
        self._handshake_bytes += count
        if self._handshake_bytes > _MAX_HANDSHAKE_BYTES:
            self._fail(f"the handshake has more than {_MAX_HANDSHAKE_BYTES} bytes")
            return
        self._socket.on_readable(None)  # Further bytes wait until the step is done.
        (self._turns.begin if self._tls is None else self._turns.proceed)(self._step)

    def _step(self) -> None:
        if self._closed or self.is_established or self._failure is not None:
            return
        try:
            if self._tls is None:
                self._tls = self._make(self._incoming, self._outgoing)
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush_quietly()
            self._socket.on_readable(self._on_raw_readable)
            return
        except (ssl.SSLError, OSError, ValueError) as error:
            self._flush_quietly()  # The alert tells the peer the reason.
            self._fail(_reason(error))
            return
        self.is_established = True
        self._turns.ended()
        self._stop_timer()
        self._flush_quietly()
        self._report(None)
        if self._closed:
            return
        self._watch_writing()
        self._socket.on_readable(self._on_raw_readable if self._reader is not None else None)
        if self._reader is not None:
            self._deliver()

    def _on_timeout(self) -> None:
        self._timer = None
        self._fail("the handshake took too long")

    def _fail(self, reason: str) -> None:
        if self._failure is not None or self._closed:
            return
        self._failure = reason
        self._stop_timer()
        self._socket.on_readable(None)
        self._report(reason)
        if not self._closed:
            self._deliver()

    def _report(self, reason: str | None) -> None:
        end, self._end = self._end, None
        if end is not None:
            end(self, reason)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- reading

    def _deliver(self) -> None:
        """Call the reader, and again in the next turn if decrypted bytes may be left."""
        if self._reader is None or self._closed:
            return
        self._reader()
        if self._has_more and self._reader is not None and not self._closed:
            asyncio.get_running_loop().call_soon(self._deliver)

    def _receive(self, tls: ssl.SSLObject, buffer: memoryview, has_plaintext: bool) -> int:
        """Receive ciphertext once and decrypt it into the buffer. Returns 0 if the peer has closed the
        connection. Raises BlockingIOError if there is no plaintext yet.
        """
        try:
            count = self._receive_ciphertext(len(buffer) + _RECORD_BYTES)
        except (BlockingIOError, InterruptedError):
            if has_plaintext:
                return 0
            raise
        if count == 0:
            return 0
        filled = self._decrypt(tls, buffer)
        if self._outgoing.pending:
            self._flush_owed()
        if filled or has_plaintext:
            self._silent_bytes = 0
            return filled
        self._silent_bytes += count
        if self._silent_bytes > _MAX_SILENT_BYTES:
            raise ConnectionResetError("TLS: the peer sends records without content")
        raise BlockingIOError

    def _receive_ciphertext(self, max_bytes: int) -> int:
        """Receive ciphertext once for the TLS object and return the number of bytes; 0 if the peer has closed
        the connection.
        """
        try:
            buffer = _free_buffers.pop()
        except IndexError:
            buffer = memoryview(bytearray(_BUFFER_BYTES))
        try:
            count = self._socket.recv_into(buffer[:max_bytes])
            self._incoming.write(buffer[:count])
        finally:
            _free_buffers.append(buffer)
        return count

    def _decrypt(self, tls: ssl.SSLObject, buffer: memoryview) -> int:
        """Decrypt into the buffer until it is full or ciphertext is missing. One TLS read returns one record.

        Raises SSLZeroReturnError at the end of the stream.
        """
        filled = 0
        try:
            while filled < len(buffer):
                # With a buffer, the result is a count, which typeshed does not know.
                count: int = tls.read(len(buffer) - filled, buffer[filled:])  # type: ignore[assignment]
                if not count:  # close_notify
                    self._is_ended = True
                    break
                filled += count
        except ssl.SSLWantReadError:
            pass
        if self._is_ended and not filled:
            raise ssl.SSLZeroReturnError
        return filled

    def _flush_owed(self) -> None:
        """Send what TLS wrote during a read. A peer that causes such writes but does not read them is disconnected."""
        self._flush_quietly()
        if len(self._unsent) + self._outgoing.pending > _MAX_OWED_BYTES:
            raise ConnectionResetError("TLS: the peer does not read the answers to its key updates")

    # --- writing

    def _ready_to_encrypt(self) -> ssl.SSLObject:
        """Return the TLS object when the ciphertext of the last piece is sent. Raises BlockingIOError before."""
        if self._failure is not None:
            raise ConnectionResetError(self._failure)
        if self._tls is None or not self.is_established:
            raise BlockingIOError
        if self._unsent or self._outgoing.pending:
            self._flush()
            if self._unsent:
                raise BlockingIOError
        return self._tls

    def _flush(self, more: bool = False) -> None:
        """Send ciphertext. The rest waits until the inner socket is writable."""
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    return
                self._unsent = memoryview(self._outgoing.read())
            try:
                sent = self._socket.sendmsg((self._unsent,), more)
            except (BlockingIOError, InterruptedError):
                self._watch_writing()
                return
            self._unsent = self._unsent[sent:]

    def _flush_quietly(self) -> None:
        """Flush, ignoring errors, because a broken connection raises an error at the next read."""
        try:
            self._flush()
        except OSError:
            self._unsent = memoryview(b"")

    def _send_last(self) -> None:
        """Try once to send the last bytes. After the close nothing can wait for the inner socket."""
        with suppress(OSError):
            if content := self._outgoing.read():
                self._socket.sendmsg((content,), False)

    def _watch_writing(self) -> None:
        if not self._closed:
            wanted = self._unsent or (self._writer is not None and self.is_established)
            self._socket.on_writable(self._on_raw_writable if wanted else None)

    def _on_raw_writable(self) -> None:
        self._flush_quietly()
        if self._unsent or self._closed:
            return
        if self._writer is not None and self.is_established:
            self._writer()
        self._watch_writing()


def _reason(error: Exception) -> str:
    """Reason of a failed handshake, without the position in OpenSSL's source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).replace("_", " ").lower()
    return str(error) or type(error).__name__
