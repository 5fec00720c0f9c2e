"""A client that can do wrong: it writes octets and reads frames."""

import socket
import struct

import pamqp.commands as commands
import pamqp.frame
import pamqp.header

HEADER = b"AMQP\x00\x00\x09\x01"


def frame(kind, channel, payload, end=b"\xce"):
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def method(channel, command):
    return bytes(pamqp.frame.marshal(command, channel))


def raw_method(channel, class_id, method_id, arguments=b""):
    return frame(1, channel, struct.pack(">HH", class_id, method_id) + arguments)


def shortstr(text):
    return bytes((len(text),)) + text


class RawClient:
    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.buffer = b""

    @classmethod
    def with_buffer(cls, port, octets):
        """The kernel keeps so little (twice as much, by its rules) for a client that does not read."""
        client = cls.__new__(cls)
        client.buffer = b""
        client.sock = socket.socket()
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, octets)
        client.sock.settimeout(30)
        client.sock.connect(("127.0.0.1", port))
        return client

    def send(self, *octets):
        self.sock.sendall(b"".join(octets))

    def close(self):
        self.sock.close()

    def read(self):
        """The next frame as (channel, pamqp frame); None at the end of the stream."""
        while True:
            if len(self.buffer) >= 8:
                size = struct.unpack_from(">I", self.buffer, 3)[0] + 8
                if len(self.buffer) >= size:
                    octets, self.buffer = self.buffer[:size], self.buffer[size:]
                    return pamqp.frame.unmarshal(octets)[1:]
            got = self.sock.recv(65536)
            if not got:
                return None
            self.buffer += got

    def read_to_end(self):
        octets = self.buffer
        while got := self.sock.recv(65536):
            octets += got
        return octets

    def expect(self, command_type):
        _, command = self.read()
        assert isinstance(command, command_type), command.name
        return command

    def expect_close(self, code, class_id, method_id):
        """Of the connection; answers it, and expects the end."""
        close = self.expect(commands.Connection.Close)
        assert (close.reply_code, close.class_id, close.method_id) == (code, class_id, method_id), close.reply_text
        self.send(method(0, commands.Connection.CloseOk()))
        assert self.read() is None
        return close.reply_text

    def expect_channel_close(self, code, class_id, method_id):
        close = self.expect(commands.Channel.Close)
        assert (close.reply_code, close.class_id, close.method_id) == (code, class_id, method_id), close.reply_text
        return close.reply_text

    # ------------------------------------------------------------ the handshake, step by step

    def start(self):
        self.send(HEADER)
        return self.expect(commands.Connection.Start)

    def start_ok(self, mechanism="PLAIN", response="\0guest\0guest", properties=None):
        self.send(method(0, commands.Connection.StartOk(properties or {}, mechanism, response, "en_US")))

    def login(self, **options):
        self.start()
        self.start_ok(**options)
        return self.expect(commands.Connection.Tune)

    def open(self, channel=1, frame_max=0, channel_max=0, **options):
        self.login(**options)
        self.send(
            method(0, commands.Connection.TuneOk(channel_max, frame_max, 0)), method(0, commands.Connection.Open())
        )
        self.expect(commands.Connection.OpenOk)
        if channel:
            self.open_channel(channel)
        return self

    def open_channel(self, channel):
        self.send(method(channel, commands.Channel.Open()))
        self.expect(commands.Channel.OpenOk)

    def call(self, channel, command, answer):
        self.send(method(channel, command))
        return self.expect(answer)


def publish(body, routing_key, channel=1, **options):
    header = pamqp.header.ContentHeader(body_size=len(body), properties=commands.Basic.Properties())
    octets = method(channel, commands.Basic.Publish(routing_key=routing_key, **options))
    return octets + bytes(pamqp.frame.marshal(header, channel)) + (frame(3, channel, body) if body else b"")
