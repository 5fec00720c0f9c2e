"""python3 aiormq_client.py ADDRESSES QUEUE COUNT

Publishes COUNT messages, each until it is confirmed, and consumes them.  Prints what happens.  aiormq does not connect
again by itself: `opened` does.
"""

import asyncio
import sys
from typing import Any

import aiormq  # type: ignore[import-not-found]

brokers, queue, count = sys.argv[1].split(","), sys.argv[2], int(sys.argv[3])
received = set()
SILENT = 2  # s; a hung broker is given up
PROPERTIES = aiormq.spec.Basic.Properties(delivery_mode=2)


async def note(message: Any) -> None:
    received.add(message.body)
    await message.channel.basic_ack(message.delivery.delivery_tag)


async def opened() -> Any:
    turn = 0
    while True:
        url = f"amqp://guest:guest@{brokers[turn % len(brokers)]}/?heartbeat=1"
        try:
            return await asyncio.wait_for(ready(url), SILENT)
        except (OSError, aiormq.exceptions.AMQPError):
            turn += 1
            await asyncio.sleep(0 if turn % len(brokers) else 0.1)  # between two rounds


async def ready(url: str) -> Any:
    channel = await (await aiormq.connect(url)).channel()
    await channel.basic_qos(prefetch_count=100)
    await channel.basic_consume(queue, note)
    return channel


async def main() -> None:
    channel = await opened()
    for number in range(count):
        while True:
            try:
                sent = channel.basic_publish(b"%d" % number, routing_key=queue, properties=PROPERTIES)
                await asyncio.wait_for(sent, SILENT)
                break
            except (OSError, aiormq.exceptions.AMQPError, RuntimeError):
                channel = await opened()  # the message is sent again
        print(f"confirmed {number}", flush=True)
        await asyncio.sleep(0.005)
    while len(received) < count:
        await asyncio.sleep(0.02)
        if channel.is_closed:
            channel = await opened()
    print(f"received {len(received)}", flush=True)


asyncio.run(main())
