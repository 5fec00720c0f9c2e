// node manager.js ADDRESSES QUEUE COUNT
// Publishes COUNT messages, each until it is confirmed, and consumes them.  Prints what happens.

const amqp = require("amqp-connection-manager");
const [addresses, queue, count] = process.argv.slice(2);
const received = new Set();
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

const connection = amqp.connect(addresses.split(",").map((broker) => `amqp://${broker}`), {
  heartbeatIntervalInSeconds: 1, // a hung broker is given up after two of them
  reconnectTimeInSeconds: 0.1, // between two attempts; 5 by default
  connectionOptions: { timeout: 1000 }, // ms; a hung broker accepts, and says nothing
});
const channel = connection.createChannel({
  setup: async (channel) => {
    await channel.prefetch(100);
    await channel.consume(queue, (message) => {
      received.add(message.content.toString());
      channel.ack(message);
    });
  },
});

async function main() {
  for (let number = 0; number < Number(count); number++) {
    for (;;) {
      try {
        await channel.sendToQueue(queue, Buffer.from(String(number)), { persistent: true, mandatory: true });
        break;
      } catch (error) {
        await pause(20); // the message is sent again
      }
    }
    console.log(`confirmed ${number}`);
    await pause(5);
  }
  while (received.size < Number(count)) await pause(20);
  console.log(`received ${received.size}`);
  process.exit(0);
}

main();
