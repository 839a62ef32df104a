#!/usr/bin/env python3
"""Computes the test vectors of docs/protocol.md, apart from the Rust code that must match them.

    python3 protocol/vectors/make.py            writes the files beside this script
    python3 protocol/vectors/make.py --check    says whether they are the ones it would write

Needs the package `cryptography`. Everything is fixed: keys, nonces, times.
"""

import base64
import datetime
import hashlib
import json
import pathlib
import struct
import sys

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

HERE = pathlib.Path(__file__).parent
ISSUED = 1_792_659_600  # 2026-10-22T09:00:00Z


def canonical(value):
    """Compact JSON, fields in the order given, nothing but control characters escaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def b64(data):
    return base64.b64encode(data).decode()


def base32(data):
    return base64.b32encode(data).decode().rstrip("=").lower()


def rfc3339(unix_ms, digits=0):
    time = datetime.datetime.fromtimestamp(unix_ms // 1000, datetime.timezone.utc)
    fraction = f".{unix_ms % 1000:03}" if digits else ""
    return time.strftime("%Y-%m-%dT%H:%M:%S") + fraction + "Z"


def sha256(data):
    return hashlib.sha256(data).digest()


def read_id(body):
    return "dbr_" + base32(body)


# Names


CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def ulid(unix_ms, random):
    number = unix_ms << 80 | random
    return "".join(CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


def incarnation(account, app, host, created_at):
    data = b"carlos-incarnation-v1\0"
    for field in (account, app, host, created_at):
        data += struct.pack(">I", len(field)) + field.encode()
    return sha256(data).hex()


def root_key_id(public):
    return "rk_" + sha256(b"carlos-root-key-v1\0" + public).hex()[:16]


def scoped_key_id(purpose, public):
    data = b"carlos-scoped-key-v1\0" + purpose.encode() + b"\0" + public
    return "sk_" + sha256(data).hex()[:16]


def ids():
    bodies = [bytes(16), bytes(range(16)), b"\xff" * 16]
    record = ("acme", "shop", "shop.example.com", ulid(ISSUED * 1000, 1))
    token = "cpt_acme_" + base32(bytes(range(32)))
    zero = read_id(bytes(16))
    times = [0, 951_782_400_000, ISSUED * 1000 + 250, 4_107_542_400_000, 253_402_300_799_999]
    return {
        "read_ids": [{"bytes": body.hex(), "text": read_id(body)} for body in bodies],
        "refused_read_ids": [
            zero[:-1] + "b",
            zero[:-1],
            zero + "a",
            zero.upper(),
            zero.replace("dbr_", "run_"),
            zero.replace("aaaa", "aa1a", 1),
            zero + "====",
        ],
        "nonces": [{"bytes": body.hex(), "text": base32(body)} for body in bodies],
        "txids": [{"number": str(n), "text": f"0x{n:016x}"} for n in (0, 42, 2**64 - 1)],
        "incarnation": {
            "account": record[0],
            "app": record[1],
            "host": record[2],
            "created_at": record[3],
            "text": incarnation(*record),
        },
        "token": {"text": token, "account": "acme", "sha256": sha256(token.encode()).hex()},
        "times": [
            {
                "unix_ms": ms,
                "seconds": rfc3339(ms),
                "millis": rfc3339(ms, 3),
                "hour": rfc3339(ms)[:13].replace("-", "").replace("T", ""),
                "day": rfc3339(ms)[:10].replace("-", ""),
            }
            for ms in times
        ],
    }


def keys():
    rid = read_id(bytes(range(16)))
    one = ulid(ISSUED * 1000, 1)
    rev = f"{1:020}"
    return {
        "queue": f"db-reads/queue/uk/2026102209/{ISSUED}-{rid}",
        "request": f"db-reads/{rid}/request.json",
        "picked": f"db-reads/{rid}/picked",
        "chunk": f"db-reads/{rid}/out/{12:08}",
        "result": f"db-reads/{rid}/result.json",
        "cancel": f"db-reads/{rid}/cancel",
        "serial": "control/serial/uk",
        "status": "control/status/uk-1",
        "edges": f"control/edges/uk-1/{rev}",
        "host": f"hosts/shop.example.com/{rev}",
        "app": "apps/acme/shop/shop.example.com",
        "account": f"accounts/acme/{rev}",
        "activity": f"activity/acme/20261022/{one}",
        "probe": f"probe/console/{one}",
    }


# Sealing


def p256(scalar):
    return ec.derive_private_key(int.from_bytes(scalar, "big"), ec.SECP256R1())


def point(private):
    return private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def seal(recipient, sender, nonce, rid, seq, stream, last, plaintext):
    shared = sender.exchange(ec.ECDH(), recipient.public_key())
    salt = point(sender) + point(recipient)
    key = HKDF(hashes.SHA256(), 32, salt, b"carlos-db-read-v1").derive(shared)
    aad = b"carlos-db-read-v1\0" + rid.encode() + struct.pack(">QBB", seq, stream, last)
    return b"CDR1" + point(sender) + nonce + AESGCM(key).encrypt(nonce, plaintext, aad)


RECIPIENT = bytes(range(1, 33))
SENDER = bytes(range(101, 133))
NONCE = bytes(range(201, 213))


def seals():
    recipient, sender = p256(RECIPIENT), p256(SENDER)
    rid = bytes(range(16))
    cases = [
        ("a chunk", 3, 1, 0, b"rows"),
        ("the last chunk", 4, 1, 1, b"more rows"),
        ("an empty answer", 1, 1, 1, b""),
        ("a summary", 0, 2, 1, canonical(summary()).encode()),
    ]
    return {
        "recipient_secret": RECIPIENT.hex(),
        "recipient_public": b64(point(recipient)),
        "sender_secret": SENDER.hex(),
        "nonce": NONCE.hex(),
        "read_id": read_id(rid),
        "cases": [
            {
                "name": name,
                "seq": seq,
                "stream": stream,
                "last": bool(last),
                "plaintext": plaintext.hex(),
                "sealed": seal(
                    recipient, sender, NONCE, read_id(rid), seq, stream, last, plaintext
                ).hex(),
            }
            for name, seq, stream, last, plaintext in cases
        ],
    }


# Envelopes


ROOT = bytes(range(1, 33))
SCOPED = bytes(range(33, 65))


def raw_public(secret):
    key = ed25519.Ed25519PrivateKey.from_private_bytes(secret).public_key()
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def sign(secret, key_id, payload):
    key = ed25519.Ed25519PrivateKey.from_private_bytes(secret)
    sig = key.sign(b"carlos-root-envelope-v1\0" + payload)
    return {"payload": b64(payload), "key": key_id, "sig": b64(sig)}


def request(sql, at, params=None):
    given = {"params": params} if params else {}
    return {
        "purpose": "carlos-db-read-v1",
        "v": 1,
        "id": read_id(bytes(range(16))),
        "account": "acme",
        "app": "shop",
        "host": "shop.example.com",
        "incarnation": incarnation("acme", "shop", "shop.example.com", ulid(ISSUED * 1000, 1)),
        "region": "uk",
        "op": "query",
        "sql": sql,
        **given,
        "at": at,
        "reply_key": b64(point(p256(RECIPIENT))),
        "by": "member@example.com",
        "issued_at": rfc3339(ISSUED * 1000),
    }


def params():
    """One value of each type, by position."""
    values = [
        "null",
        {"int": -(1 << 63)},
        {"real": struct.pack(">d", -1.5).hex()},
        {"text": "it's \"é\"\0"},
        {"blob": b64(bytes([0, 255]))},
    ]
    return [{"value": value} for value in values]


def envelopes():
    public, scoped = raw_public(ROOT), raw_public(SCOPED)
    root_id, scoped_id = root_key_id(public), scoped_key_id("release", scoped)
    cert = {
        "purpose": "carlos-scoped-key-v1",
        "v": 1,
        "key": scoped_id,
        "scope": "release",
        "public": b64(scoped),
    }
    cert = sign(ROOT, root_id, canonical(cert).encode())
    plain = canonical(request("SELECT count(*) FROM orders", ""))
    awkward = canonical(request("SELECT '\0\t\n\"\\é/\x7f'", rfc3339(ISSUED * 1000 - 750, 3)))
    bound = canonical(request("SELECT ?, ?, ?, ?, ?", "", params()))
    named = canonical(request("SELECT :id", "", [{"name": ":id", "value": {"int": 7}}]))
    spaced = plain.replace('"v":1', '"v": 1')
    other = plain.replace("carlos-db-read-v1", "carlos-host-retry-v1")
    later = plain.replace('"v":1', '"v":2')
    extra = plain[:-1] + ',"bucket":"b"}'
    reorder = '{"v":1,"purpose":"carlos-db-read-v1",' + plain.split(",", 2)[2]
    empty = plain.replace(',"at":', ',"params":[],"at":')
    mixed = named.replace('"params":[', '"params":[{"value":"null"},')
    accepted = [{"payload": p, "envelope": canonical(sign(ROOT, root_id, p.encode()))}
                for p in (plain, awkward, bound, named)]
    bare_sig = ed25519.Ed25519PrivateKey.from_private_bytes(ROOT).sign(plain.encode())
    bare = {"payload": b64(plain.encode()), "key": root_id, "sig": b64(bare_sig)}
    refused = [
        ("BadSignature", canonical(sign(SCOPED, root_id, plain.encode()))),
        ("BadSignature", canonical(bare)),
        ("ScopedKey", canonical(sign(SCOPED, scoped_id, plain.encode()))),
        ("UnknownKey", canonical(sign(SCOPED, root_key_id(scoped), plain.encode()))),
        ("NotCanonical", canonical(sign(ROOT, root_id, spaced.encode()))),
        ("NotCanonical", canonical(sign(ROOT, root_id, reorder.encode()))),
        ("NotCanonical", canonical(sign(ROOT, root_id, plain.encode())) + "\n"),
        ("WrongPurpose", canonical(sign(ROOT, root_id, other.encode()))),
        ("UnknownVersion", canonical(sign(ROOT, root_id, later.encode()))),
        ("Malformed", canonical(sign(ROOT, root_id, extra.encode()))),
        ("Malformed", "{}"),
        ("NotCanonical", canonical(sign(ROOT, root_id, empty.encode()))),
        ("Malformed", canonical(sign(ROOT, root_id, mixed.encode()))),
    ]
    return {
        "root_secret": ROOT.hex(),
        "root_public": b64(public),
        "root_key_id": root_id,
        "scoped_key_id": scoped_id,
        "root_key_file": canonical({"kind": "root", "id": root_id, "secret": b64(ROOT)}),
        "scoped_key_file": canonical(
            {
                "kind": "scoped",
                "id": scoped_id,
                "purpose": "release",
                "secret": b64(SCOPED),
                "cert": cert,
            }
        ),
        "accepted": accepted,
        "refused": [{"error": error, "envelope": envelope} for error, envelope in refused],
    }


def strings():
    awkward = [
        "",
        "plain",
        'quote " and backslash \\ and slash /',
        "".join(map(chr, range(0x20))),
        "\x7f\x80\x9f",
        "é ü 漢字 🦀",
        "\u2028\u2029\ufeff\ufffd\uffff",
        "SELECT 'it''s' -- <&>",
    ]
    return [{"codepoints": [ord(c) for c in s], "json": canonical(s)} for s in awkward]


# Bodies


def summary():
    return {
        "txid": "0x000000000000002a",
        "time": rfc3339(ISSUED * 1000 - 750, 3),
        "rows": 3,
        "bytes": 43,
        "sha256": sha256(row_stream()).hex(),
        "oldest": "",
        "restored_bytes": 8192,
        "cap_bytes": 2 << 30,
        "sql_error": "",
    }


def result(sealed):
    return {
        "state": "done",
        "code": "",
        "box": "carlos-flagship-uk",
        "last_seq": 12,
        "started": rfc3339(ISSUED * 1000 + 1000),
        "ended": rfc3339(ISSUED * 1000 + 9000),
        "sealed": b64(sealed),
    }


def host_record():
    return {
        "v": 1,
        "host": "shop.example.com",
        "account": "acme",
        "app": "shop",
        "class": "sleeping",
        "region": "uk",
        "created_at": ulid(ISSUED * 1000, 1),
        "move": None,
        "pooled": False,
        "fleet": False,
        "deleted": False,
    }


def bodies():
    nonce = base32(bytes(range(16)))
    token = {"kind": "person", "sha256": sha256(b"token").hex(), "expires": None}
    member = {"email": "member@example.com", "tokens": [token], "also": ["other"]}
    edges = {"v": 1, "box": "uk-1", "region": "uk", "capabilities": ["db-read-1"],
             "draining": False}
    status = {"v": 1, "box": "uk-1", "time_unix": ISSUED, "edges_rev": 1, "region": "uk",
              "capabilities": ["db-read-1"], "draining": False}
    picked = {"box": "uk-1", "boot": "b-1", "nonce": nonce,
              "deadline": rfc3339((ISSUED + 1200) * 1000)}
    moving = dict(host_record(), move={"to": "ie", "since": rfc3339(ISSUED * 1000)})
    entry = {"by": "console", "nonce": nonce, "content": host_record()}
    return {
        "picked": canonical(picked),
        "result": canonical(result(bytes(97))),
        "summary": canonical(summary()),
        "summary_coarser": canonical({**summary(), "coarser": True}),
        "host": canonical(host_record()),
        "host_moving": canonical(moving),
        "account": canonical({"v": 1, "account": "acme", "members": [member]}),
        "edges": canonical(edges),
        "status": canonical(status),
        "chain_entry": canonical(entry),
        "lines": [
            canonical(line)
            for line in (
                {"admitted": read_id(bytes(range(16)))},
                {"wait": "queued"},
                {"picked": "uk-1"},
                {"wait": "reading"},
                {"chunk": 1, "data": b64(bytes(97))},
                {"wait": "streaming"},
                {"result": result(bytes(97))},
            )
        ],
    }


# Frames and rows


def frame(kind, payload):
    return struct.pack(">IB", len(payload) + 1, kind) + payload


def frames():
    limits = {"core": 0, "data": 480 << 20, "file": 2 << 30, "open": 64}
    sandbox = {"loopback_only": True, "data_empty": True, "config_hidden": True, "uid": 62439,
               "no_new_privileges": True, "no_capabilities": True, "no_dump": True,
               "limits": limits, "landlock_abi": 6, "landlock_offered": 7, "seccomp": True}
    header = {
        "files": [{"level": 9, "name": f"{1:016x}-{42:016x}.ltx", "size": 512}],
        "target": "0x000000000000002a",
        "limits": {"restored_bytes": 2 << 30, "output_bytes": 64 << 20, "restore_ms": 600000,
                   "query_ms": 300000, "heap_bytes": 1 << 28},
    }
    ready = {"txid": "0x000000000000002a", "pages": 2, "page_size": 4096,
             "time": rfc3339(ISSUED * 1000 - 750, 3)}
    stream = row_stream()
    status = {"outcome": "done", "message": "", "rows": 3, "bytes": len(stream),
              "sha256": sha256(stream).hex()}
    parts = [
        ("hello", frame(1, canonical({"v": 2}).encode())),
        ("hello with sandbox", frame(1, canonical({"v": 2, "sandbox": sandbox}).encode())),
        ("header", frame(2, canonical(header).encode())),
        ("file data", frame(3, bytes(range(8)))),
        ("ready", frame(4, canonical(ready).encode())),
        ("run", frame(5, canonical({"sql": "SELECT 1"}).encode())),
        ("run with values", frame(5, canonical({"sql": "SELECT ?1", "params": params()}).encode())),
        ("stop", frame(6, b"")),
        ("output", frame(7, stream)),
        ("status", frame(8, canonical(status).encode())),
    ]
    return [{"name": name, "hex": data.hex()} for name, data in parts]


def varint(number):
    """Seven bits a byte, lowest first; the top bit says that more follow."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out + bytes([number]))


def row_stream():
    names = ["id", "naïve"]
    out = b"CRS1" + varint(len(names))
    for name in names:
        out += varint(len(name.encode())) + name.encode()
    rows = [
        b"\x01" + struct.pack(">q", -2) + b"\x03" + varint(2) + b"\xff\x00",
        b"\x02" + struct.pack(">d", 0.5) + b"\x00",
    ]
    for row in rows:
        out += b"\x01" + row
    blob = b"\x01" + b"\x04" + varint(200) + bytes(200) + b"\x00"
    return out + blob + b"\x00" + varint(3)


def row_vector():
    return {
        "columns": ["id", "naïve"],
        "rows": [
            [{"integer": -2}, {"text_hex": "ff00"}],
            [{"real_bits": struct.pack(">d", 0.5).hex()}, None],
            [{"blob_hex": bytes(200).hex()}, None],
        ],
        "stream": row_stream().hex(),
        "sha256": sha256(row_stream()).hex(),
    }


def mesh_segment(name):
    plain = base32(name.encode())
    return plain if len(plain) <= 120 else base32(hashlib.sha256(name.encode()).digest())


def mesh_descriptor():
    return {
        "v": 1,
        "mesh": "game-mesh",
        "rid": "eu-1-3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        "generation": "00000000000000ff",
        "revision": 3,
        "endpoint": "10.0.0.1:7001",
        "identity": raw_public(bytes([1] * 32)).hex(),
        "trust": "bucket",
        "vouch": "",
        "role": "none",
        "members": [{"channel": "chat", "weight": 0}, {"channel": "match", "weight": 100}],
        "state": "serving",
    }


def mesh_hello():
    descriptor = mesh_descriptor()
    return {
        "v": 1,
        "capabilities": ["routemesh-1"],
        "mesh": "game-mesh",
        "link": 5,
        "replaces": 4,
        "expected": {"rid": "node-b", "generation": None, "identity": None},
        "window": 4096000,
        "descriptor": descriptor,
    }


def mesh_record(kind, body):
    return struct.pack(">IB", 1 + len(body), kind) + body


def short(text):
    return bytes([len(text)]) + text.encode()


def mesh_records():
    metadata = short("room") + struct.pack(">H", 2) + b"42"
    send = b"\x00" + struct.pack(">H", 1) + short("say") + b"hi"
    asked = struct.pack(">HQI", 0, 7 << 32 | 3, 30000)
    request = b"\x13" + asked + short("join-match") + struct.pack(">H", len(metadata)) + metadata
    large = b"\x24" + struct.pack(">H", 0xFFFF) + short("blob") + short("a/b")
    large += struct.pack(">IQ", 9, 1 << 32) + b"abc"
    named = {
        "hello": (1, canonical(mesh_hello()).encode()),
        "admit": (2, b""),
        "reject not required": (3, bytes([13])),
        "update": (4, canonical(mesh_descriptor()).encode()),
        "probe": (5, struct.pack(">Q", 77)),
        "ack": (6, struct.pack(">Q", 77)),
        "credit": (7, struct.pack(">HIHI", 0, 500, 0xFFFF, 9)),
        "send": (16, send),
        "request with metadata": (16, request + b'{"player":1}'),
        "first part of a large message": (16, large),
        "further part": (17, struct.pack(">I", 9) + b"def"),
        "reply": (18, b"\x10" + struct.pack(">QB", 7 << 32 | 3, 0) + b'{"room":"a"}'),
        "rejected": (18, b"\x00" + struct.pack(">QB", 8, 2) + b"full"),
        "first part of a reply": (18, b"\x04" + struct.pack(">QBQ", 8, 0, 70000) + b"abc"),
        "reply part": (19, struct.pack(">Q", 8) + b"def"),
    }
    return [{"name": n, "hex": mesh_record(k, b).hex()} for n, (k, b) in named.items()]


def mesh():
    rid, rev, m = mesh_descriptor()["rid"], "%020d" % 3, mesh_segment("game-mesh")
    minute = ISSUED // 60
    long = "x" * 80
    presence = {
        "v": 1,
        "mesh": "game-mesh",
        "rid": rid,
        "generation": "00000000000000ff",
        "revision": 3,
        "at": rfc3339(ISSUED * 1000),
        "peers": [{"rid": "node-b", "state": "ready"}],
    }
    return {
        "segments": [{"name": n, "segment": mesh_segment(n)} for n in ["game-mesh", "ü/.", long]],
        "rids": [{"hex": h.hex(), "text": t} for h, t in [
            (b"node-a.b_c", "node-a.b_c"),
            (b"a b%\x00\xff", "a%20b%25%00%FF"),
        ]],
        "keys": [
            f"control/serial/mesh/{m}",
            f"mesh/nodes/{m}/{rid}/{rev}",
            f"presence/mesh/{m}/{minute}/{rid}.{rev}",
        ],
        "descriptor": canonical(mesh_descriptor()),
        "hello": canonical(mesh_hello()),
        "presence": canonical(presence),
        "records": mesh_records(),
    }


FILES = {
    "ids.json": ids,
    "keys.json": keys,
    "seal.json": seals,
    "envelope.json": envelopes,
    "strings.json": strings,
    "bodies.json": bodies,
    "frames.json": frames,
    "rows.json": row_vector,
    "mesh.json": mesh,
}


def main():
    stale = []
    for name, make in FILES.items():
        text = json.dumps(make(), indent=1, ensure_ascii=True) + "\n"
        path = HERE / name
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(name)
    if stale:
        sys.exit("differ: " + ", ".join(stale))


if __name__ == "__main__":
    main()
