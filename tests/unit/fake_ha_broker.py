"""A stand-in for `qpidd` that only speaks the management protocol, for tests of the local supervisor's shell.

Started with the configuration file of a broker.  The brokers of a test share a directory (option `shared`) with a
file `primary` ("NAME EPOCH"), which takes the place of everything that real brokers tell each other.  A file
`refuse-NAME` in it makes that broker refuse promotion.
"""

import asyncio
import json
import sys
from pathlib import Path

from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader


class FakeBroker:
    def __init__(self, options):
        self.name = options["broker-name"]
        self.shared = Path(options["shared"])

    def primary(self):
        path = self.shared / "primary"
        name, epoch = path.read_text().split() if path.exists() else ("", "0")
        return name, int(epoch)

    def ask(self):
        name, epoch = self.primary()
        state = "joining" if not epoch else "active" if name == self.name else "ready"
        view = {"state": state, "name": self.name, "epoch": epoch, "position": epoch << 48, "in_sync": None}
        return {**view, "score": 10 if state == "joining" else 100}

    def promote(self):
        if (self.shared / f"refuse-{self.name}").exists():
            raise ValueError(f"{self.name} does not want to")
        self.make_primary(self.name)
        return {}

    def make_primary(self, name):
        temporary = self.shared / f"primary.{self.name}"
        temporary.write_text(f"{name} {self.primary()[1] + 1}")
        temporary.rename(self.shared / "primary")

    async def serve(self, reader, writer):
        await reader.readexactly(8)
        method = ""
        self.send(writer, commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"), channel=0)
        while head := await reader.read(1):
            head += await reader.readexactly(6)
            rest = await reader.readexactly(int.from_bytes(head[3:7], "big") + 1)
            found = frame.unmarshal(head + rest)[2]
            if isinstance(found, commands.Connection.StartOk):
                assert found.client_properties["qpid.ha-admin"] == 1
                self.send(writer, commands.Connection.Tune(2047, 131072, 60), channel=0)
            elif isinstance(found, commands.Connection.Open):
                self.send(writer, commands.Connection.OpenOk(), channel=0)
            elif isinstance(found, commands.Channel.Open):
                self.send(writer, commands.Channel.OpenOk())
            elif isinstance(found, commands.Basic.Consume):
                self.send(writer, commands.Basic.ConsumeOk("tag"))
            elif isinstance(found, commands.Basic.Publish):
                method = found.routing_key
            elif isinstance(found, ContentHeader):
                number = found.properties.correlation_id
            elif isinstance(found, ContentBody):
                self.answer(writer, number, method, json.loads(found.value))

    def relocate(self, to):
        if (self.shared / f"refuse-{to}").exists():
            raise ValueError(f"relocation to {to} failed: {to} does not want to")
        self.make_primary(to)
        return {"primary": to}

    def answer(self, writer, number, method, arguments):
        try:
            if method == "ha.relocate":
                result = {"ok": True, "result": self.relocate(arguments["to"])}
            else:
                result = {"ok": True, "result": {"ha.ask": self.ask, "ha.promote": self.promote}[method]()}
        except ValueError as error:
            result = {"ok": False, "error": str(error)}
        body = json.dumps(result).encode()
        properties = commands.Basic.Properties(correlation_id=number)
        head = ContentHeader(0, len(body), properties)
        self.send(writer, commands.Basic.Deliver("tag", 1, False, "", ""), head, ContentBody(body))

    def send(self, writer, *frames, channel=1):
        writer.write(b"".join(frame.marshal(item, channel) for item in frames))


async def run(words):
    assert words[0] == "--config"
    lines = Path(words[1]).read_text().splitlines()
    options = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    server = await asyncio.start_server(FakeBroker(options).serve, options["interface"], int(options["port"]))
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1:]))
