// Delayed messages: arguments are the bootstrap servers and a name for the topic. A leader is killed while it is written.
const { Kafka, logLevel } = require("kafkajs");

const RECORDS = 2100;
const DELAY_MS = 1500;
const HOUR_MS = 3600000;
const [bootstrap, topic] = process.argv.slice(2);
const kafka = new Kafka({
  brokers: bootstrap.split(","),
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 50 },
});

// Dense at first, then sparse, then a long stretch of pending messages, one that is due, and pending ones at the end.
const isDue = (number) =>
  (number < 200 && number % 2 === 0) || (number >= 200 && number < 700 && number % 90 === 0) || number === 1500;

function headersOf(number) {
  if (isDue(number) && number % 4 !== 0) return {};
  return { "penstock-delay-ms": String(isDue(number) ? DELAY_MS : HOUR_MS) };
}

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  const configEntries = [{ name: "delivery.delay", value: "true" }];
  await admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 3, configEntries }] });
  await admin.disconnect();
  await produce();
  for (const bytes of [100, 2000, 1048576]) await read(bytes);
}

async function produce() {
  console.log("PRODUCING");
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  for (let start = 0; start < RECORDS; start += 7) {
    const messages = [];
    for (let number = start; number < start + 7; number++) {
      messages.push({ key: "k", value: String(number), partition: 0, headers: headersOf(number) });
    }
    await producer.send({ topic, acks: -1, messages });
  }
  await producer.disconnect();
}

// Read as a group until every due message has come and the position is behind the last pending one.
async function read(bytes) {
  const consumer = kafka.consumer({ groupId: `${topic}-${bytes}`, maxBytesPerPartition: bytes, maxWaitTimeInMs: 100 });
  const shown = [];
  let end = -1;
  consumer.on(consumer.events.END_BATCH_PROCESS, ({ payload }) => (end = Number(payload.lastOffset)));
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({ eachMessage: async ({ message }) => shown.push(Number(message.value.toString())) });
  const wanted = [...Array(RECORDS).keys()].filter(isDue);
  const deadline = Date.now() + 60000;
  while ((shown.length < wanted.length || end < RECORDS - 1) && Date.now() < deadline) await sleep(50);
  await consumer.disconnect();
  shown.sort((a, b) => a - b);
  if (JSON.stringify(shown) !== JSON.stringify(wanted)) throw new Error(`${bytes} bytes: ${shown.length} of ${wanted.length}`);
  console.log(`${bytes} bytes: ${shown.length} messages, position ${end}`);
}

const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
