// Producers and readers of one topic, driven by the lines of counted_client.py: arguments are the bootstrap servers and
// the topic.
const readline = require("readline");
const { Kafka, Partitioners, logLevel } = require("kafkajs");

const [bootstrap, topic] = process.argv.slice(2);
const clients = new Map();
const say = (line) => process.stdout.write(`${line}\n`);
const brokers = bootstrap.split(",");
const patient = { initialRetryTime: 50, maxRetryTime: 1000, retries: 50 };
const connection = (clientId, retry) => new Kafka({ clientId, brokers, retry, logLevel: logLevel.NOTHING });

// The default partitioner, with a record of its choices: kafkajs does not tell the partition of each message.
const remembering = (chosen) => () => {
  const choose = Partitioners.DefaultPartitioner();
  return (asked) => {
    chosen.set(asked.message.value, choose(asked));
    return chosen.get(asked.message.value);
  };
};

const commands = {
  async open(name, mode, age) {
    const chosen = new Map();
    const producer = connection(name).producer({
      idempotent: mode === "idempotent" || mode === "transactional",
      transactionalId: mode === "transactional" ? name : undefined,
      maxInFlightRequests: mode === "transactional" ? 1 : undefined,
      metadataMaxAge: Number(age),
      createPartitioner: remembering(chosen),
    });
    await producer.connect();
    clients.set(name, { mode, producer, chosen, close: () => producer.disconnect() });
    return "opened";
  },

  async send(name, first, count) {
    const { mode, producer, chosen } = clients.get(name);
    const messages = [];
    for (let number = Number(first); number < Number(first) + Number(count); number++) {
      const value = `${name}:${number}`;
      messages.push({ key: mode === "unkeyed" ? null : value, value });
    }
    const sender = mode === "transactional" ? await producer.transaction() : producer;
    await sender.send({ topic, acks: -1, messages });
    if (mode === "transactional") await sender.commit();
    return `sent ${messages.map(({ value }) => chosen.get(value)).join(" ")}`;
  },

  async read(name, kind, groupId) {
    const consumer = connection(name, patient).consumer({ groupId, maxWaitTimeInMs: 100 });
    consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || say(`broken ${name}: ${payload.error}`));
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    const eachMessage = async ({ partition, message }) =>
      say(`value ${name} ${partition} ${message.offset} ${message.value.toString()}`);
    await consumer.run({ autoCommitInterval: 300, eachMessage });
    clients.set(name, { close: () => consumer.disconnect() });
    return "reads";
  },

  async close(name) {
    await clients.get(name).close();
    clients.delete(name);
    return "closed";
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split(" ");
    try {
      say(await commands[command](...words));
    } catch (error) {
      say(`failed ${line}: ${error.name} ${error.message}`);
    }
  }
  process.exit(0);
}

main();
