#!/usr/bin/env python3
"""Takes the events that Fencepost delivers by webhook, and keeps in SQLite the result of each payment.

It needs the standard library alone. docs/receivers.md explains it.
"""

import base64
import contextlib
import hashlib
import hmac
import json
import logging
import os
import sqlite3
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE = 5 * 60  # seconds between the time of a delivery and this machine's clock
MOST = 1 << 20  # bytes of a body
TABLES = """
create table if not exists delivery (id text primary key);
create table if not exists payment (tx_id text primary key, request_id text not null, sequence int not null, result text not null);
"""

# Two during a rotation.
try:
    SECRETS = [base64.b64decode(text.removeprefix("whsec_"), validate=True) for text in os.environ["WEBHOOK_SECRETS"].split(",")]
except ValueError:
    SECRETS = [b""]
if any(len(secret) < 24 for secret in SECRETS):
    raise SystemExit("receiver: WEBHOOK_SECRETS: want whsec_ and the base64 of 24 bytes or more; two are separated by a comma")


def verify(headers, body):
    """Returns the id of a delivery, or raises ValueError. The body is the bytes as they came."""
    delivery, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not delivery or abs(time.time() - int(timestamp)) > TOLERANCE:
        raise ValueError("no id, or a time that is not within five minutes of ours")
    signed = f"{delivery}.{timestamp}.".encode() + body
    given = headers.get("webhook-signature", "").split()  # one for each secret of the sender
    for secret in SECRETS:
        want = b"v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest())
        if any(hmac.compare_digest(want, one.encode()) for one in given):
            return delivery
    raise ValueError("no signature by a known secret")


def store(db, delivery, event):
    """Keeps the id of the delivery and the effect of the event in one transaction.

    Returns "stored", or why there was no effect: the delivery is "repeated", or the event "older" than another of its
    transaction.
    """
    with db:  # commits at its end, or rolls back after an exception
        if db.execute("insert into delivery (id) values (?) on conflict do nothing", (delivery,)).rowcount == 0:
            return "repeated"
        newer = db.execute(
            """
            insert into payment as known (tx_id, request_id, sequence, result) values (?, ?, ?, ?)
            on conflict (tx_id) do update set sequence = excluded.sequence, result = excluded.result
             where known.sequence < excluded.sequence""",
            (event["txId"], event["requestId"], event["sequence"], result(event)),
        ).rowcount
    return "stored" if newer else "older"


def result(event):
    """Returns what an event tells about the payment: "paid" and "failed" are final."""
    if event["type"] == "TxFailed":
        return "failed"
    if event["type"] == "TxConfirmed" and event["data"].get("final"):
        return "paid"
    return "open"  # also for a type that a later version adds


def connect():
    return contextlib.closing(sqlite3.connect(os.environ.get("STORE", "receiver.db"), timeout=4))


class Receiver(BaseHTTPRequestHandler):
    timeout = 5  # seconds of a connection without a byte

    def do_POST(self):
        """Answers 204 once the event is stored. Any answer but 2xx has it delivered again."""
        try:
            length = int(self.headers.get("content-length", ""))
            if not 0 <= length <= MOST:
                self.send_error(413 if length > MOST else 400)
                return
            body = self.rfile.read(length)
            delivery = verify(self.headers, body)
        except ValueError as e:
            self.send_error(401, str(e))
            return
        event = json.loads(body)
        outcome = "ignored"  # an event of no transaction: an operator tests the endpoint
        if "txId" in event:
            try:
                with connect() as db:
                    outcome = store(db, delivery, event)
            except sqlite3.Error as e:
                self.send_error(503, str(e))
                return
        logging.info("%s %s %s %s", outcome, delivery, event.get("requestId", ""), result(event))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    with connect() as made:
        made.executescript(TABLES)
    host, port = os.environ.get("LISTEN", "127.0.0.1:8787").rsplit(":", 1)
    ThreadingHTTPServer((host, int(port)), Receiver).serve_forever()
