// node amqplib.js ADDRESSES QUEUE COUNT
// Publishes COUNT messages, each until it is confirmed, and consumes them.  Prints what happens.
// amqplib does not connect again by itself: `connected` does.

const amqp = require("amqplib");
const [addresses, queue, count] = process.argv.slice(2);
const brokers = addresses.split(",");
const received = new Set();
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function connected() {
  for (let turn = 0; ; turn++) {
    const url = `amqp://${brokers[turn % brokers.length]}?heartbeat=1`; // s; a hung broker is given up after two of them
    try {
      const connection = await amqp.connect(url, { timeout: 1000 }); // ms; a hung broker accepts, and says nothing
      connection.on("error", () => {}); // "close" follows
      return connection;
    } catch (error) {
      if (turn % brokers.length === brokers.length - 1) await pause(100); // ms between two rounds
    }
  }
}

async function opened() {
  const connection = await connected();
  const channel = await connection.createConfirmChannel();
  channel.on("error", () => {});
  const lost = new Promise((_, refuse) => connection.on("close", () => refuse(new Error("closed"))));
  lost.catch(() => {});
  await channel.prefetch(100);
  await channel.consume(queue, (message) => {
    received.add(message.content.toString());
    channel.ack(message);
  });
  return { connection, channel, lost };
}

async function publish(broker, body) {
  const confirmed = new Promise((done, refuse) => {
    const options = { persistent: true, mandatory: true };
    broker.channel.publish("", queue, Buffer.from(body), options, (error) => (error ? refuse(error) : done()));
  });
  await Promise.race([confirmed, broker.lost]);
}

async function main() {
  let broker = await opened();
  for (let number = 0; number < Number(count); number++) {
    for (;;) {
      try {
        await publish(broker, String(number));
        break;
      } catch (error) {
        broker = await opened().catch(() => broker); // the message is sent again
      }
    }
    console.log(`confirmed ${number}`);
    await pause(5);
  }
  while (received.size < Number(count)) {
    await Promise.race([pause(20), broker.lost]).catch(async () => (broker = await opened().catch(() => broker)));
  }
  console.log(`received ${received.size}`);
  process.exit(0);
}

main();
