"""python3 aio_pika_client.py ADDRESSES QUEUE COUNT

Publishes COUNT messages, each until it is confirmed, and consumes them.  Prints what happens.  `connect_robust`
goes back to one address: with a list of them the program connects again.
"""

import asyncio
import sys
from typing import Any

import aio_pika  # type: ignore[import-not-found]

brokers, queue, count = sys.argv[1].split(","), sys.argv[2], int(sys.argv[3])
received = set()
SILENT = 2  # s; a hung broker is given up


async def note(message: Any) -> None:
    received.add(message.body)
    await message.ack()


async def opened() -> Any:
    turn = 0
    while True:
        url = f"amqp://guest:guest@{brokers[turn % len(brokers)]}/?heartbeat=1"
        try:
            return await asyncio.wait_for(ready(await aio_pika.connect(url, timeout=SILENT)), SILENT)
        except (OSError, aio_pika.exceptions.AMQPError):
            turn += 1
            await asyncio.sleep(0 if turn % len(brokers) else 0.1)  # between two rounds


async def ready(connection: Any) -> Any:
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=100)
    await (await channel.get_queue(queue)).consume(note)
    return channel


async def main() -> None:
    channel = await opened()
    for number in range(count):
        message = aio_pika.Message(b"%d" % number, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        while True:
            try:
                await asyncio.wait_for(channel.default_exchange.publish(message, queue), SILENT)
                break
            except (OSError, aio_pika.exceptions.AMQPError, RuntimeError):
                channel = await opened()  # the message is sent again
        print(f"confirmed {number}", flush=True)
        await asyncio.sleep(0.005)
    while len(received) < count:
        await asyncio.sleep(0.02)
        if channel.is_closed:
            channel = await opened()
    print(f"received {len(received)}", flush=True)


asyncio.run(main())
